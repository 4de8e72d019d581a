package launcher

import (
	"context"
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
	"sync/atomic"
	"testing"
	"time"

	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/duration"
)

func timeout(d time.Duration) *duration.Duration {
	timeout := duration.Duration(d)
	return &timeout
}

func testLauncher() *Launcher {
	l := New(io.Discard)
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
	err := testLauncher().wait(t.Context(), Wait{
		URL: address + "/readyz", Timeout: timeout(time.Minute), credentials: apiclient.Credentials{CA: ca},
	}, logger(&lines, "x"))
	if err != nil || calls.Load() != 4 {
		t.Errorf("wait = %v after %d calls", err, calls.Load())
	}
	contains(t, lines.String(), "msg=waiting", "etcd is not there", "no longer waiting")
}

func TestWaitForAccess(t *testing.T) {
	var calls atomic.Int32
	address, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).
			Encode(map[string]any{
				"kind":   "SelfSubjectAccessReview",
				"status": map[string]any{"allowed": calls.Add(1) > 2, "reason": "no role binding"},
			})
	})
	var lines strings.Builder
	err := testLauncher().wait(t.Context(), Wait{
		URL:         address + "/readyz",
		credentials: apiclient.Credentials{CA: ca},
		Timeout:     timeout(time.Minute),
		AccessReview: &apiclient.Access{
			Verb:     "create",
			Group:    "certificates.k8s.io",
			Resource: "certificatesigningrequests",
		},
	}, logger(&lines, "x"))
	if err != nil || calls.Load() != 3 {
		t.Errorf("%v after %d requests", err, calls.Load())
	}
	contains(
		t, lines.String(),
		"no permission (yet) to create certificatesigningrequests.certificates.k8s.io: no role binding",
	)
}

func TestWaitTimesOut(t *testing.T) {
	release := make(chan struct{})
	var calls atomic.Int32
	address, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			select { // the deadline cancels this request; the operator must see the response before it
			case <-release:
			case <-r.Context().Done():
			}
		}
		http.Error(w, "etcd is not there", http.StatusServiceUnavailable)
	})
	defer close(release)
	err := testLauncher().wait(t.Context(), Wait{
		URL: address, Timeout: timeout(2 * time.Second), credentials: apiclient.Credentials{CA: ca},
	}, logger(io.Discard, "x"))
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), address, "timed out after 2s", "503 Service Unavailable: etcd is not there")
}

func TestWaitRefusesBrokenFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, wait := range map[string]Wait{
		"no CA file":     {credentials: apiclient.Credentials{CA: "/absent"}},
		"empty CA":       {credentials: apiclient.Credentials{CA: empty}},
		"no certificate": {credentials: apiclient.Credentials{Certificate: "/absent", PrivateKey: "/absent"}},
	} {
		t.Run(name, func(t *testing.T) {
			wait.URL = "https://127.0.0.1:1/"
			wait.Timeout = timeout(time.Minute)
			started := time.Now()
			if err := testLauncher().wait(t.Context(), wait, logger(io.Discard, "x")); err == nil ||
				time.Since(started) > 30*time.Second {
				t.Errorf("error = %v after %s", err, time.Since(started))
			}
		})
	}
}

func TestInterruptedWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	err := testLauncher().wait(
		ctx, Wait{URL: "http://127.0.0.1:1/", Timeout: timeout(time.Minute)}, logger(io.Discard, "x"),
	)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error = %v", err)
	}
}

func TestWaitForFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	l := testLauncher()
	err := l.wait(t.Context(), Wait{File: path, Timeout: timeout(20 * time.Millisecond)}, logger(io.Discard, "x"))
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("absent file: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- l.wait(t.Context(), Wait{File: path, Timeout: timeout(time.Minute)}, logger(io.Discard, "x"))
	}()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("file that appears: %v", err)
	}
}

func TestSetUp(t *testing.T) {
	l := testLauncher()
	var log strings.Builder
	l.Stderr = &log
	if err := l.setUp(t.Context(), []string{"/bin/sh", "-c", "echo $WHO joined"}, []string{"WHO=node-a"}); err != nil ||
		log.String() != "node-a joined\n" {
		t.Errorf("%v, log %q", err, log.String())
	}
	if err := l.setUp(t.Context(), []string{"/bin/sh", "-c", "exit 3"}, nil); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a command that fails: %v", err)
	}
	if err := l.setUp(t.Context(), nil, nil); err != nil {
		t.Errorf("no command: %v", err)
	}
	for content, want := range map[string]string{
		`"setup": ["kube-tools"]`:              `setup[0] is "kube-tools": set an absolute path`,
		`"wait_for": [{"file": "kubeconfig"}]`: `wait_for[0].file is "kubeconfig"`,
		`"wait_for": [{"file": "/kubeconfig",
			"url": "https://api:6443"}]`: "file and url are two conditions",
	} {
		_, err := Parse([]byte(`{`+minimal+`, `+content+`}`), "/config/flags.json")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}
