package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kubernetes-release/internal/atomicfile"
)

// Serve serves the images of the tests at address until ctx ends. The file at ready is written when it serves, with the
// references of the images.
func (s ImageSources) Serve(ctx context.Context, address, ready string) error {
	references, err := exec.CommandContext(ctx, filepath.Join(s.Programs, "e2e.test"), "--list-images").Output()
	if err != nil {
		return fmt.Errorf("images of e2e.test: %w", err)
	}
	registry, added, err := s.Registry(strings.Fields(string(references)))
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := atomicfile.Write(ready, []byte(strings.Join(added, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
