package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/cli"
)

// run runs smoke-server and returns its exit code and what it printed.
func run(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	code = cli.Run(t.Context(), command, arguments, &errors)
	return code, out.String(), errors.String()
}

func TestServeAnswersWithTheHostNameUntilItHasStopped(t *testing.T) {
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
		if code, stdout, stderr := run(t, "fetch", url); code != 0 || strings.TrimSpace(stdout) != name {
			t.Errorf("%s: got exit code %d, %q and %q; want %q", when, code, stdout, stderr, name)
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

func TestCommands(t *testing.T) {
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	}))
	defer failing.Close()
	tests := map[string]struct {
		arguments []string
		code      int
		stdout    string
		stderr    string
	}{
		"address":      {arguments: []string{"resolve", "127.0.0.1"}, stdout: "127.0.0.1\n"},
		"name":         {arguments: []string{"resolve", "localhost"}, stdout: "127.0.0.1\n"},
		"unknown name": {arguments: []string{"resolve", "nowhere.invalid"}, code: 1, stderr: "nowhere.invalid"},
		"bad status": {
			arguments: []string{"fetch", failing.URL},
			code:      1,
			stderr:    "503 Service Unavailable: out of order",
		},
		"bad URL":            {arguments: []string{"fetch", "http://127.0.0.1:x"}, code: 1, stderr: "invalid port"},
		"unknown command":    {arguments: []string{"serve"}, code: 2, stderr: `"serve"`},
		"missing name":       {arguments: []string{"resolve"}, code: 2, stderr: "1 arg"},
		"too many arguments": {arguments: []string{"hostname", "x"}, code: 2, stderr: `"x"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, test.arguments...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf(
					"got exit code %d, %q and %q; want %d, %q and %q", code, stdout, stderr, test.code, test.stdout,
					test.stderr,
				)
			}
		})
	}
}
