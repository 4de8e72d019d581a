package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// TestPortClosesBeforeTheServer is that nobody can connect any more to a server whose port has closed early, which goes
// on to serve the connections that it has and ends as any other.
func TestPortClosesBeforeTheServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	leaving, ended := make(chan struct{}), make(chan error, 1)
	port := &servedListener{Listener: listener, leaving: leaving, served: make(chan struct{})}
	server := httptest.NewUnstartedServer(goAwayWhen(leaving, http.NotFoundHandler())).Config
	go func() { ended <- server.Serve(port) }()
	client := &http.Client{Transport: &http.Transport{}}
	get := func() (*http.Response, error) { return client.Get("http://" + listener.Addr().String()) }
	for _, want := range []struct{ leaving, closes bool }{{false, false}, {true, true}} {
		if want.leaving {
			close(leaving)
			_ = listener.Close()
		}
		response, err := get()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body) // or the client does not keep the connection
		_ = response.Body.Close()
		if response.Close != want.closes {
			t.Errorf("leaving %t: the connection closes: %t, want %t", want.leaving, response.Close, want.closes)
		}
	}
	if _, err := get(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want it refused", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the server ended with its port: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the server ended with %v", err)
	}
}
