package awsclient

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRegistryThroughProxy(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "")
	t.Setenv("AWS_ENDPOINT_URL_ECR", "")
	t.Setenv("NO_PROXY", "")
	for _, status := range []int{http.StatusOK, http.StatusForbidden} {
		var asked string
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.Host
			w.WriteHeader(status)
		}))
		defer proxy.Close()
		t.Setenv("HTTPS_PROXY", strings.Replace(proxy.URL, "http://", "http://user:secret-password@", 1))
		err := Reachable(t.Context(), RegistryEndpoint("us-east-1", ""))
		if want := "CONNECT api.ecr.us-east-1.amazonaws.com:443"; asked != want {
			t.Errorf("the proxy was asked to %q, want %q", asked, want)
		}
		if (err == nil) != (status == http.StatusOK) || err != nil && strings.Contains(err.Error(), "secret-password") {
			t.Errorf("the proxy answers %d: %v", status, err)
		}
	}
}

func TestRegistryEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"":               "api.ecr.us-east-1.amazonaws.com:443",
		"http://a":       "a:80",
		"https://a/b":    "a:443",
		"https://a:1":    "a:1",
		"http://[::1]:2": "[::1]:2",
	} {
		t.Setenv("AWS_ENDPOINT_URL", "")
		t.Setenv("AWS_ENDPOINT_URL_ECR", endpoint)
		if got := HostPort(RegistryEndpoint("us-east-1", "")); got != want {
			t.Errorf("%q: %s, want %s", endpoint, got, want)
		}
	}
}
