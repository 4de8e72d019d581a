package main

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
)

// link is a page with a link that the API server changes, of at least this length.
func link(length int) string {
	const page = `<html><a href="/other">other</a>`
	return page + strings.Repeat("x", max(0, length-len(page)))
}

// responder answers with the error of a request.
type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// apiServer passes on requests to a pod as the API server does (newThrottledUpgradeAwareProxyHandler in
// pkg/registry/core/pod/rest/subresources.go of Kubernetes), with its transport (CreateProxyTransport in
// pkg/controlplane/apiserver/config.go).
func apiServer(t *testing.T, pod *httptest.Server) *httptest.Server {
	t.Helper()
	location, err := url.Parse(pod.URL)
	if err != nil {
		t.Fatal(err)
	}
	limited := limitPages(utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the API server's
	}))
	server := httptest.NewServer(http.StripPrefix("/proxy", http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			target := *location
			target.Path = r.URL.Path
			r.URL.Path = "/proxy" + r.URL.Path
			proxy.NewUpgradeAwareHandler(&target, limited, true, false, responder{}).ServeHTTP(w, r)
		},
	)))
	t.Cleanup(server.Close)
	return server
}

// get returns what a client gets, which decodes nothing.
func get(t *testing.T, server *httptest.Server, path string) (status int, encoding string, body io.ReadCloser) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/proxy/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", "gzip, deflate")
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.StatusCode, response.Header.Get("Content-Encoding"), response.Body
}

func compress(t *testing.T, encoding, text string) []byte {
	t.Helper()
	var compressed bytes.Buffer
	var writer io.WriteCloser = gzip.NewWriter(&compressed)
	if encoding == "deflate" {
		writer, _ = flate.NewWriter(&compressed, flate.BestSpeed)
	}
	if _, err := io.WriteString(writer, text); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return compressed.Bytes()
}

func pod(t *testing.T, kind string, body func(w http.ResponseWriter)) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		body(w)
	}
}

// TestEndlessPages is a pod whose page does not end: the client gets its beginning all the same, which it cannot if the
// API server reads all of it first.
func TestEndlessPages(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(pod(t, "text/html; charset=utf-8", func(w http.ResponseWriter) {
		defer close(gone)
		for {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	_, _, body := get(t, apiServer(t, server), "")
	if _, err := io.CopyN(io.Discard, body, 4*longestPage); err != nil {
		t.Errorf("the page is not passed on: %v", err)
	}
	_ = body.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the API server still reads the page, without a client")
	}
}

// TestPages is that links are changed in pages that are short enough, and that all others arrive as they are.
func TestPages(t *testing.T) {
	const changed = `<a href="/proxy/other">`
	for _, test := range []struct {
		name, kind, encoding string
		text                 string
		wantChanged          bool
	}{
		{"short", "text/html", "", link(0), true},
		{"as long as it can be", "text/html;charset=utf-8", "", link(longestPage), true},
		{"too long", "text/html; charset=utf-8", "", link(longestPage + 1), false},
		{"compressed", "text/html", "gzip", link(0), true},
		{"compressed and too long", "text/html", "gzip", link(longestPage + 1), false},
		{"deflated", "text/html", "deflate", link(0), true},
		{"deflated and too long", "text/html", "deflate", link(longestPage + 1), false},
		{"something else", "text/plain", "", link(longestPage + 1), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewTLSServer(pod(t, test.kind, func(w http.ResponseWriter) {
				sent := []byte(test.text)
				if test.encoding != "" {
					w.Header().Set("Content-Encoding", test.encoding)
					sent = compress(t, test.encoding, test.text)
				}
				_, _ = w.Write(sent)
			}))
			t.Cleanup(server.Close)
			_, encoding, body := get(t, apiServer(t, server), "")
			var decoded io.Reader = body
			var err error
			switch test.encoding {
			case "gzip":
				decoded, err = gzip.NewReader(body)
			case "deflate":
				decoded = flate.NewReader(body)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(decoded)
			if err != nil {
				t.Fatal(err)
			}
			if encoding != test.encoding {
				t.Errorf("encoding %q, want %q", encoding, test.encoding)
			}
			if text := string(got); strings.Contains(text, changed) != test.wantChanged {
				t.Errorf("got %.60s, want its link changed: %t", text, test.wantChanged)
			} else if !test.wantChanged && text != test.text {
				t.Errorf("%d bytes arrive of %d", len(text), len(test.text))
			}
		})
	}
}

// TestUpgrades is that a client still gets a connection of another protocol, such as a WebSocket.
func TestUpgrades(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = connection.Close() }()
		_, _ = fmt.Fprintf(
			buffer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nhello",
			r.Header.Get("Upgrade"),
		)
		_ = buffer.Flush()
	}))
	t.Cleanup(server.Close)
	connection, err := net.Dial("tcp", apiServer(t, server).Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.WriteString(connection, "GET /proxy/ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	text := make([]byte, 5)
	if _, err := io.ReadFull(reader, text); err != nil || response.StatusCode != 101 || string(text) != "hello" {
		t.Errorf("status %d, %q, %v", response.StatusCode, text, err)
	}
}

// TestPagesAtOnce is that many clients get pages at the same time, of which few are changed at once.
func TestPagesAtOnce(t *testing.T) {
	server := httptest.NewServer(pod(t, "text/html", func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, link(1000))
	}))
	t.Cleanup(server.Close)
	proxied := apiServer(t, server)
	var clients sync.WaitGroup
	for range 5 * pagesAtOnce {
		clients.Go(func() {
			status, _, body := get(t, proxied, "")
			text, err := io.ReadAll(body)
			if status != http.StatusOK || !strings.Contains(string(text), "/proxy/other") {
				t.Errorf("status %d, %.80s (%v)", status, text, err)
			}
		})
	}
	clients.Wait()
	places := pageTransport{places: make(chan struct{}, 1)}
	first, err := places.change(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := places.change(ctx, nil); err == nil {
		t.Error("a second page is changed beside the first")
	}
	_ = first.Close()
	if _, err := places.change(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
