package versionskew

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"kubernetes-release/internal/apiclient"
)

// TestStoppedThroughUpdates is a VM that was stopped while the others were updated by more than one minor version.
func TestStoppedThroughUpdates(t *testing.T) {
	for name, test := range map[string]struct {
		before, running, installed string
		accepted                   bool
	}{
		"all others run its version":         {"v1.37.2", "v1.39.0", "v1.39.1", true},
		"one minor version of all is left":   {"v1.37.2", "v1.38.0", "v1.39.0", false},
		"nobody runs":                        {"v1.37.2", "", "v1.39.0", false},
		"its version is older than before":   {"v1.39.0", "v1.37.1", "v1.37.2", true},
		"the others are too old for it":      {"v1.39.0", "v1.37.1", "v1.39.0", false},
		"the next one of a deploy, as usual": {"v1.37.2", "v1.37.2", "v1.38.0", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := func(name, content string, mode os.FileMode) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(content), mode); err != nil {
					t.Fatal(err)
				}
				return path
			}
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.running == "" {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = fmt.Fprintf(w, `{"gitVersion": %q}`, test.running)
			}))
			defer server.Close()
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			err := APIServer{
				Program:     path("kube-apiserver", "#!/bin/sh\necho Kubernetes "+test.installed+"\n", 0o700),
				Record:      path("version", test.before+"\n", 0o600),
				URL:         server.URL,
				Credentials: apiclient.Credentials{CA: path("ca.pem", string(ca), 0o600)},
			}.Check(t.Context(), slog.New(slog.DiscardHandler))
			if (err == nil) != test.accepted {
				t.Errorf("got %v, accepted should be %t", err, test.accepted)
			}
			kept, readErr := readRecord(filepath.Join(dir, "version"))
			want := test.before
			if test.accepted {
				want = test.installed
			}
			if readErr != nil || kept.Full != want {
				t.Errorf("the record has %s, want %s: %v", kept, want, readErr)
			}
		})
	}
}

// TestNameResolvesLater is bosh-dns that starts while a pre-start asks: what cannot be asked yet must not count as
// nobody to compare with.
func TestNameResolvesLater(t *testing.T) {
	want, asked := Version{1, 37, "v1.37.2"}, 0
	got, err := byName(t.Context(), func(context.Context) (Version, error) {
		if asked++; asked < 3 {
			return Version{}, fmt.Errorf("ask: %w", &net.DNSError{Err: "no such host", IsNotFound: true})
		}
		return want, nil
	})
	if err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	refused := errors.New("connection refused")
	asked = 0
	if _, err := byName(t.Context(), func(context.Context) (Version, error) {
		asked++
		return Version{}, refused
	}); !errors.Is(err, refused) || asked != 1 {
		t.Errorf("asked %d times a server that does not run: %v", asked, err)
	}
}
