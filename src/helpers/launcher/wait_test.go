package launcher

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func testLauncher() *Launcher {
	l := New("/nowhere", io.Discard)
	l.poll, l.progress = 5*time.Millisecond, 20*time.Millisecond
	return l
}

// serve starts a TLS server and writes its certificate, which is its own CA, to a file.
func serve(t *testing.T, handler http.HandlerFunc) (address, ca string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, ca
}

func TestWaitUntilItAnswers(t *testing.T) {
	var calls atomic.Int32
	address, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || calls.Add(1) < 4 {
			http.Error(w, "etcd is not there", http.StatusInternalServerError)
		}
	})
	var lines strings.Builder
	err := testLauncher().wait(t.Context(), Wait{URL: address + "/readyz", CA: ca}, logger(&lines, "x"))
	if err != nil || calls.Load() != 4 {
		t.Errorf("wait = %v after %d calls", err, calls.Load())
	}
	contains(t, lines.String(), "msg=waiting", "etcd is not there", "msg=answered")
}

func TestWaitForAccess(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	address, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion, Kind string
			Spec             struct{ ResourceAttributes AccessReview }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		want := AccessReview{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
		if r.Method != http.MethodPost || r.URL.Path != reviewPath || review.Kind != "SelfSubjectAccessReview" || review.APIVersion != "authorization.k8s.io/v1" || review.Spec.ResourceAttributes != want {
			t.Errorf("%s %s %+v", r.Method, r.URL.Path, review)
		}
		if r.Header.Get("Authorization") != "Bearer secret-token" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "SelfSubjectAccessReview", "status": map[string]any{"allowed": calls.Add(1) > 2, "reason": "no role binding"}})
	})
	var lines strings.Builder
	err := testLauncher().wait(t.Context(), Wait{URL: address + "/readyz", CA: ca, TokenFile: token,
		AccessReview: &AccessReview{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}}, logger(&lines, "x"))
	if err != nil {
		t.Error(err)
	}
	contains(t, lines.String(), "not allowed (yet) to create certificatesigningrequests.certificates.k8s.io: no role binding")
	if strings.Contains(lines.String(), "secret-token") {
		t.Error("the log holds the token")
	}
}

func TestTrySaysWhy(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter)
		wait   Wait
		want   string
	}{
		"status":       {func(w http.ResponseWriter) { http.Error(w, "not yet", http.StatusServiceUnavailable) }, Wait{}, "503 Service Unavailable: not yet"},
		"redirect":     {func(w http.ResponseWriter) { w.Header().Set("Location", "/x"); w.WriteHeader(302) }, Wait{}, "302 Found"},
		"unauthorized": {func(w http.ResponseWriter) { w.WriteHeader(401) }, Wait{TokenFile: token}, "does not accept the token in " + token},
		"no token":     {func(http.ResponseWriter) {}, Wait{TokenFile: "/absent/token"}, "/absent/token"},
		"no review":    {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"kind": "Status"}`)) }, Wait{AccessReview: &AccessReview{Verb: "get", Resource: "x"}}, "is no SelfSubjectAccessReview"},
		"other CA":     {func(http.ResponseWriter) {}, Wait{CA: "none"}, "x509"},
	} {
		t.Run(name, func(t *testing.T) {
			address, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) { test.answer(w) })
			test.wait.URL = address
			if test.wait.CA == "none" {
				test.wait.CA = ""
			} else {
				test.wait.CA = ca
			}
			client, err := test.wait.client()
			if err != nil {
				t.Fatal(err)
			}
			if err := test.wait.try(t.Context(), client); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}

func TestWaitInVain(t *testing.T) {
	release := make(chan struct{})
	var calls atomic.Int32
	address, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			select { // the deadline cuts this one short, and the answer before it is what the operator should read
			case <-release:
			case <-r.Context().Done():
			}
		}
		http.Error(w, "etcd is not there", http.StatusServiceUnavailable)
	})
	defer close(release)
	err := testLauncher().wait(t.Context(), Wait{URL: address, CA: ca, Timeout: Duration(2 * time.Second)}, logger(io.Discard, "x"))
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), address+" did not answer as it should within 2s", "503 Service Unavailable: etcd is not there")
}

func TestWaitUnlessExists(t *testing.T) {
	if err := testLauncher().wait(t.Context(), Wait{URL: "https://127.0.0.1:1/", UnlessExists: "/dev/null"}, logger(io.Discard, "x")); err != nil {
		t.Error(err)
	}
}

func TestWaitStopsAtOnce(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, wait := range map[string]Wait{
		"no CA file":     {CA: "/absent"},
		"empty CA":       {CA: empty},
		"no certificate": {Certificate: "/absent", PrivateKey: "/absent"},
	} {
		t.Run(name, func(t *testing.T) {
			wait.URL = "https://127.0.0.1:1/"
			begun := time.Now()
			if err := testLauncher().wait(t.Context(), wait, logger(io.Discard, "x")); err == nil || time.Since(begun) > 5*time.Second {
				t.Errorf("error = %v after %s", err, time.Since(begun))
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := testLauncher().wait(ctx, Wait{URL: "http://127.0.0.1:1/"}, logger(io.Discard, "x"))
	if err == nil || !strings.Contains(err.Error(), "interrupted") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("interrupted: %v", err)
	}
}
