package join

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/joinapi"
)

// proverFunc is a node.Prover.
type proverFunc func() (json.RawMessage, error)

func (f proverFunc) Prove(context.Context, []byte) (json.RawMessage, error) { return f() }

// TestJoinAsksAsSoonAsTheEndpointListens: the interval between two requests would outlast the timeout.
func TestJoinAsksAsSoonAsTheEndpointListens(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(joinapi.Response{Certificate: "invalid"})
	}))
	address := server.Listener.Addr().String()
	_ = server.Listener.Close()
	server.StartTLS() // for its certificate; it serves nothing yet
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	served := make(chan error, 1)
	listen := func() {
		listener, err := net.Listen("tcp", address)
		if err == nil {
			t.Cleanup(func() { _ = listener.Close() })
			err = server.Config.Serve(tls.NewListener(listener, server.TLS))
		}
		served <- err
	}
	t.Cleanup(server.Close)

	dir := t.TempDir()
	c := &Client{
		URL:            "https://" + address,
		CA:             writeTestFile(t, "ca.pem", string(ca)),
		Node:           "worker-5d4a0eb4",
		CertificateDir: filepath.Join(dir, "pki"),
		Kubeconfig:     filepath.Join(dir, "kubeconfig"),
		Timeout:        8 * time.Second,
		Interval:       time.Hour,
		Log:            slog.New(slog.DiscardHandler),
		Now:            time.Now,
		Prover: proverFunc(func() (json.RawMessage, error) {
			time.AfterFunc(2*dialInterval, listen) // long after the first connection is refused
			return json.RawMessage("{}"), nil
		}),
	}
	err := c.Join(t.Context())
	if err == nil || !strings.Contains(err.Error(), "store the client certificate") {
		select {
		case problem := <-served:
			t.Fatalf("the endpoint ended with %v", problem)
		default:
			t.Errorf("the endpoint's answer did not arrive: %v", err)
		}
	}
}
