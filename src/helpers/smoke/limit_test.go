package smoke

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
)

// flood is what a node sends that wants to fill memory, in pieces of 32 KiB. It ends, so that a test does.
const (
	piece = 32 << 10
	flood = 64 << 20
)

// TestNodesCannotFillMemory: logs, and the answers of pods, are what a node makes of them.
func TestNodesCannotFillMemory(t *testing.T) {
	var sent atomic.Int64
	channel := func(connection *websocket.Conn) {
		connection.PayloadType = websocket.BinaryFrame
		number := byte(1) // standard output, in the protocol of the API server
		if strings.HasSuffix(connection.Request().URL.Path, "/stderr/exec") {
			number = 2
		}
		for range flood / piece {
			if _, err := connection.Write(append([]byte{number}, make([]byte, piece)...)); err != nil {
				return
			}
			sent.Add(piece)
		}
	}
	exec := websocket.Server{Handler: channel, Handshake: func(config *websocket.Config, _ *http.Request) error {
		config.Protocol = config.Protocol[:1]
		return nil
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/exec") {
			exec.ServeHTTP(w, r)
			return
		}
		if strings.Contains(r.URL.Path, "fails") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		for range flood / piece {
			if _, err := w.Write(bytes.Repeat([]byte("x"), piece)); err != nil {
				return
			}
			sent.Add(piece)
		}
	}))
	defer server.Close()
	pods, err := newExecutor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(context.Context) (string, error){
		"log":          func(ctx context.Context) (string, error) { return pods.logs(ctx, "ns", "web") },
		"log fails":    func(ctx context.Context) (string, error) { return pods.logs(ctx, "ns", "fails") },
		"answer":       func(ctx context.Context) (string, error) { return pods.proxy(ctx, "ns", "web", 80) },
		"answer fails": func(ctx context.Context) (string, error) { return pods.proxy(ctx, "ns", "fails", 80) },
		"output":       func(ctx context.Context) (string, error) { return pods.run(ctx, "ns", "web", "hostname") },
		"errors":       func(ctx context.Context) (string, error) { return pods.run(ctx, "ns", "stderr", "hostname") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			sent.Store(0)
			text, err := ask(ctx)
			if err == nil || len(err.Error()) > 2*maxAnswer || sent.Load() == flood {
				t.Errorf("got %d of %d bytes, %.200s", len(text), sent.Load(), fmt.Sprint(err))
			}
			if !strings.Contains(name, "fails") && !strings.Contains(fmt.Sprint(err), "more than 65536 bytes") {
				t.Errorf("got %.200s", fmt.Sprint(err))
			}
		})
	}
}

// TestNodesCannotRedirect: the errand runs on a control VM, which reaches what a node does not.
func TestNodesCannotRedirect(t *testing.T) {
	var reached atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer target.Close()
	server := httptest.NewServer(http.RedirectHandler(target.URL, http.StatusFound))
	defer server.Close()
	pods, err := newExecutor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func() (string, error){
		"log":    func() (string, error) { return pods.logs(t.Context(), "ns", "web") },
		"answer": func() (string, error) { return pods.proxy(t.Context(), "ns", "web", 80) },
	} {
		if text, err := ask(); err == nil || !strings.Contains(err.Error(), "redirect") || reached.Load() {
			t.Errorf("%s: got %q, %v; the other server was asked: %t", name, text, err, reached.Load())
		}
	}

	// The API server adds a slash to the path by a redirect.
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/") {
			http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
			return
		}
		_, _ = w.Write([]byte("web-1"))
	}))
	defer server.Close()
	if pods, err = newExecutor(&rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	if text, err := pods.proxy(t.Context(), "ns", "web", 80); err != nil || text != "web-1" {
		t.Errorf("by a redirect to the same path with a slash: %q, %v", text, err)
	}
}

// TestReportsAreForTerminals: what a node says of a pod can be a sequence that a terminal obeys.
func TestReportsAreForTerminals(t *testing.T) {
	var output bytes.Buffer
	r := &report{output: &output}
	r.line("FAILED", "pods", "web-1 Waiting \x1b[2J\x1b[Hok      pods\r\nok      nodes")
	want := "FAILED  pods                   web-1 Waiting \\x1b[2J\\x1b[Hok      pods\\r\n" +
		strings.Repeat(" ", 31) + "ok      nodes\n"
	if output.String() != want {
		t.Errorf("got\n%q\nwant\n%q", output.String(), want)
	}
}
