package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	address = ":8080"
	// lingerTime is how long requests are still answered after SIGTERM. Nodes may need that long to learn that the pod
	// stops.
	lingerTime = 2 * time.Second
	// shutdownTimeout limits requests that are in progress after that.
	shutdownTimeout = 5 * time.Second
)

// serve answers requests until ctx ends and for the linger time after that, and completes requests in progress.
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
	shutdown, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return server.Shutdown(shutdown)
}
