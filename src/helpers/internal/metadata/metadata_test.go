package metadata

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestGet: what may end by itself is marked, and neither a proxy nor a redirect leads to what another VM is told.
func TestGet(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("another VM"))
	}))
	defer elsewhere.Close()
	for _, variable := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(variable, elsewhere.URL)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Asked", r.Header.Get("X-Header"))
		switch r.URL.Path {
		case "/name":
			_, _ = w.Write([]byte("this VM"))
		case "/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/starting":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer service.Close()
	answer, err := Get(t.Context(), service.URL+"/name", map[string]string{"X-Header": "set"})
	if err != nil || string(answer.Body) != "this VM" || answer.Header.Get("X-Asked") != "set" {
		t.Errorf("%q, %v, %v", answer.Body, answer.Header, err)
	}
	for path, want := range map[string]struct {
		status    string
		temporary bool
	}{
		"/busy": {"429", true}, "/starting": {"503", true}, "/moved": {"302", false}, "/other": {"404", false},
	} {
		_, err := Get(t.Context(), service.URL+path, nil)
		if err == nil || !strings.Contains(err.Error(), want.status) || errors.Is(err, ErrTemporary) != want.temporary {
			t.Errorf("%s: %v", path, err)
		}
	}
	service.Close()
	if _, err := Get(t.Context(), service.URL+"/name", nil); !errors.Is(err, ErrTemporary) {
		t.Errorf("not answering: %v", err)
	}
}
