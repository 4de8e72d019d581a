package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

func TestServeAnswersItsHostNameAndEndsByItself(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, 100*time.Millisecond) }()
	url := "http://" + listener.Addr().String() + "/any"
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string) {
		t.Helper()
		var got bytes.Buffer
		if err := run(context.Background(), []string{"fetch", url}, &got); err != nil || strings.TrimSpace(got.String()) != name {
			t.Errorf("%s: got %q, %v; want %q", when, got.String(), err, name)
		}
	}
	expect("running")
	stop()
	expect("just after the signal")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still serving 10 s after the signal")
	}
}

func TestRun(t *testing.T) {
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	}))
	defer failing.Close()
	tests := map[string]struct {
		arguments []string
		want      string
		failure   string
		usage     bool
	}{
		"address":       {arguments: []string{"resolve", "127.0.0.1"}, want: "127.0.0.1"},
		"name":          {arguments: []string{"resolve", "localhost"}, want: "127.0.0.1"},
		"unknown name":  {arguments: []string{"resolve", "nowhere.invalid"}, failure: "nowhere.invalid"},
		"bad status":    {arguments: []string{"fetch", failing.URL}, failure: "503 Service Unavailable: out of order"},
		"bad URL":       {arguments: []string{"fetch", "http://127.0.0.1:x"}, failure: "invalid port"},
		"unknown word":  {arguments: []string{"serve"}, failure: "usage", usage: true},
		"missing name":  {arguments: []string{"resolve"}, failure: "usage", usage: true},
		"too many args": {arguments: []string{"hostname", "x"}, failure: "usage", usage: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			err := run(context.Background(), test.arguments, &output)
			if test.failure == "" && err != nil {
				t.Fatal(err)
			}
			if test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)) {
				t.Errorf("got %v, want %q", err, test.failure)
			}
			if errors.Is(err, errUsage) != test.usage {
				t.Errorf("got %v, usage error wanted: %v", err, test.usage)
			}
			if !strings.Contains(output.String(), test.want) {
				t.Errorf("got %q, want %q", output.String(), test.want)
			}
		})
	}
}
