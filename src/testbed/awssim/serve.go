package awssim

import (
	"context"
	"net"
	"net/http"
	"time"
)

// shutdownTimeout limits what is left of requests when Serve ends.
const shutdownTimeout = 2 * time.Second

// Serve serves the API and instance metadata at these addresses until ctx ends or a server fails.
func (s *Simulator) Serve(ctx context.Context, api, metadata string) error {
	servers := map[string]*http.Server{api: s.APIServer(), metadata: s.MetadataServer()}
	failed := make(chan error, len(servers))
	for address, server := range servers {
		listener, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		s.log.Info("listening", "address", listener.Addr().String())
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case <-ctx.Done():
	case err := <-failed:
		return err
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	for _, server := range servers {
		_ = server.Shutdown(shutdown) // Close ends requests that are still running
	}
	return nil
}

// Handler serves the API endpoint and, under /_sim/, the admin API.
func (s *Simulator) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/_sim/", s.adminHandler())
	mux.HandleFunc("/", s.serveAPI)
	return mux
}

// APIServer serves the API and the admin API.
func (s *Simulator) APIServer() *http.Server {
	return &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
}
