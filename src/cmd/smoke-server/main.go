// Command smoke-server is what the smoke tests run in their pods.
//
// Without arguments it serves HTTP on :8080 and answers every request with the host name, which in a pod is the pod's
// name, so that a caller sees who answered. Its two other forms are for exec into a pod, and let the tests look from
// inside the cluster without putting a proxy where others could reach it:
//
//	smoke-server resolve NAME   prints the addresses of a name, one a line, as the pod's resolver knows them
//	smoke-server fetch URL      prints the body of an HTTP answer with status 200
//	smoke-server hostname       prints the host name
//
// Exit status 0 on success, 1 with one line on standard error on failure, 2 for wrong arguments. The image must hold the
// binary, statically linked, at /smoke-server and run it as its entry point; it needs no other file and no privilege.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	address = ":8080"
	// lookTimeout bounds resolve and fetch.
	lookTimeout = 10 * time.Second
	// lingerTime is how long requests are still answered after SIGTERM: so long may a node take to learn that the pod is going.
	lingerTime = 2 * time.Second
	// finishTime is for requests that have begun.
	finishTime  = 5 * time.Second
	maximumBody = 64 << 10
)

// errUsage marks wrong arguments.
var errUsage = errors.New("usage: smoke-server [resolve NAME | fetch URL | hostname]")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "smoke-server:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, output io.Writer) error {
	if len(arguments) == 0 {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		return serve(ctx, listener, lingerTime)
	}
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	switch {
	case arguments[0] == "resolve" && len(arguments) == 2:
		return resolve(look, arguments[1], output)
	case arguments[0] == "fetch" && len(arguments) == 2:
		return fetch(look, arguments[1], output)
	case arguments[0] == "hostname" && len(arguments) == 1:
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(output, name)
		return err
	default:
		return fmt.Errorf("%w; got %q", errUsage, arguments)
	}
}

// serve answers until the context ends, lingers, finishes what has begun, and returns.
func serve(ctx context.Context, listener net.Listener, linger time.Duration) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprintln(w, name)
		}),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       30 * time.Second,
	}
	slog.Info("listening", "address", listener.Addr().String(), "hostname", name)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	slog.Info("stopping", "linger", linger)
	time.Sleep(linger)
	finish, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	return server.Shutdown(finish)
}

func resolve(ctx context.Context, name string, output io.Writer) error {
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	slices.Sort(addresses)
	_, err = fmt.Fprintln(output, strings.Join(addresses, "\n"))
	return err
}

func fetch(ctx context.Context, url string, output io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// Each fetch is a new connection, so that a Service may choose another pod.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maximumBody))
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	_, err = output.Write(body)
	return err
}
