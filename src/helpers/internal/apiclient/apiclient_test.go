package apiclient

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serve starts a TLS server and writes its certificate, which is its own CA, to a file.
func serve(t *testing.T, handler http.HandlerFunc) (address, ca string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, writeFile(
		t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	)
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newClient(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	address, ca := serve(t, handler)
	client, err := New(address, Credentials{CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestGet(t *testing.T) {
	client := newClient(
		t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Method+" "+r.URL.String()) },
	)
	if got, err := client.Get(t.Context(), "/readyz?verbose"); err != nil || string(got) != "GET /readyz?verbose" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestGetReturnsTheStatus(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusServiceUnavailable: "503 Service Unavailable: not yet",
		http.StatusFound:              "302 Found",
		http.StatusUnauthorized:       "401 Unauthorized",
	} {
		client := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			answer(status, "not\n  yet\n")(w, nil)
		})
		_, err := client.Get(t.Context(), "/")
		var statusError *StatusError
		if !errors.As(err, &statusError) || statusError.StatusCode != status || !strings.Contains(err.Error(), want) {
			t.Errorf("status %d: %v, want %q", status, err, want)
		}
	}
	client := newClient(t, answer(http.StatusInternalServerError, strings.Repeat("x", 10000)))
	if _, err := client.Get(t.Context(), "/"); err == nil || len(err.Error()) > 400 {
		t.Errorf("long response: %v", err)
	}
}

func TestNewRefusesBrokenFiles(t *testing.T) {
	empty := writeFile(t, "")
	for name, credentials := range map[string]Credentials{
		"missing CA":          {CA: "/absent"},
		"empty CA":            {CA: empty},
		"missing certificate": {Certificate: "/absent", PrivateKey: "/absent"},
	} {
		if _, err := New(
			"https://127.0.0.1:1",
			credentials,
		); err == nil ||
			!strings.Contains(err.Error(), credentials.CA+credentials.Certificate) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServerOfAnotherCA(t *testing.T) {
	address, _ := serve(t, answer(http.StatusOK, ""))
	client, err := New(address, Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(), "/"); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("%v", err)
	}
}

func TestNodeProviderID(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   string
		err    string
	}{
		"registered": {
			http.StatusOK, `{"kind": "Node", "spec": {"providerID": "aws:///z/i-1"}}`, "aws:///z/i-1", "",
		},
		"without provider ID": {http.StatusOK, `{"kind": "Node", "spec": {}}`, "", ""},
		"another kind":        {http.StatusOK, `{"kind": "Status"}`, "", "not a Node"},
		"text":                {http.StatusOK, "not JSON", "", "not a Node: not JSON"},
		"forbidden":           {http.StatusForbidden, `{"kind": "Status"}`, "", "403 Forbidden"},
		"no Node":             {http.StatusNotFound, `{"kind": "Status"}`, "", ErrNoNode.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/api/v1/nodes/node-a" {
					t.Errorf("%s %s", r.Method, r.URL.Path)
				}
				answer(test.status, test.body)(w, r)
			})
			got, err := client.NodeProviderID(t.Context(), "node-a")
			if got != test.want || (err == nil) != (test.err == "") ||
				err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, test.want, test.err)
			}
			if errors.Is(err, ErrNoNode) != (test.status == http.StatusNotFound) {
				t.Errorf("%v, want ErrNoNode for status 404 only", err)
			}
		})
	}
}

func TestCheckAccess(t *testing.T) {
	access := Access{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	for name, test := range map[string]struct {
		body string
		want string
	}{
		"allowed": {`{"kind": "SelfSubjectAccessReview", "status": {"allowed": true}}`, ""},
		"not allowed": {
			`{"kind": "SelfSubjectAccessReview",
				"status": {"reason": "no role", "evaluationError": "role x not found"}}`,
			"no permission (yet) to create certificatesigningrequests.certificates.k8s.io: " +
				"no role: role x not found",
		},
		"no review":     {`{"kind": "Status"}`, "not a SelfSubjectAccessReview"},
		"not JSON":      {"x", "not a SelfSubjectAccessReview"},
		"no status yet": {`{"kind": "SelfSubjectAccessReview"}`, "no permission"},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				var review struct {
					APIVersion, Kind string
					Spec             struct{ ResourceAttributes Access }
				}
				if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
					t.Error(err)
				}
				if r.Method != http.MethodPost ||
					r.URL.Path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" ||
					review.Kind != "SelfSubjectAccessReview" ||
					review.APIVersion != "authorization.k8s.io/v1" ||
					review.Spec.ResourceAttributes != access {
					t.Errorf("%s %s %+v", r.Method, r.URL.Path, review)
				}
				answer(http.StatusCreated, test.body)(w, r)
			})
			err := client.CheckAccess(t.Context(), access)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestList(t *testing.T) {
	pages := map[string]string{
		"":    `{"kind": "ServiceList", "metadata": {"continue": "a/b"}, "items": [1, 2]}`,
		"a/b": `{"kind": "ServiceList", "metadata": {}, "items": [3]}`,
	}
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/services" || r.URL.Query().Get("limit") != "250" {
			t.Errorf("asked %s", r.URL)
		}
		_, _ = io.WriteString(w, pages[r.URL.Query().Get("continue")])
	})
	items, err := client.List(t.Context(), "/api/v1/services")
	if err != nil || len(items) != 3 || string(items[2]) != "3" {
		t.Errorf("%s, %v", items, err)
	}
	for body, status := range map[string]int{"no": 200, `{"kind": "Status"}`: 200, `{"kind": "List"}`: 403} {
		if _, err := newClient(t, answer(status, body)).List(t.Context(), "/"); err == nil {
			t.Errorf("%d %s: no error", status, body)
		}
	}
}
