package nodedrain

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/nodeobject"
)

func TestReturnNamesWhyTheNodeIsNotReady(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "kubelet.stderr.log")
	if err := os.WriteFile(log, []byte("1\n2\n3\n4\n5\nno such sandbox\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := nodeobject.Options{
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Name: "n",
		Timeout: 50 * time.Millisecond, Interval: time.Millisecond,
	}
	pending := filepath.Join(dir, "pending")
	err := Return(t.Context(), node, Files{log, pending}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasSuffix(err.Error(), "The end of "+log+":\n2\n3\n4\n5\nno such sandbox") {
		t.Errorf("got %v, want the missing kubeconfig and five lines of kubelet's log", err)
	}
	err = Return(t.Context(), node, Files{filepath.Join(dir, "none"), pending}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), node.Kubeconfig) ||
		!strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("got %v, want both problems", err)
	}
}

// A VM that has never joined has no kubeconfig: with a timeout of 0, and on the first VMs of a new cluster, that must
// not fail the deploy.
func TestReturnDoesNotWait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for name, node := range map[string]nodeobject.Options{
		"no timeout": {},
		"no quorum": {
			Timeout: time.Minute, EtcdMembers: []string{listener.Addr().String(), "127.0.0.1:1", "127.0.0.1:1"},
		},
	} {
		node.Kubeconfig, node.Name = filepath.Join(t.TempDir(), "kubeconfig"), "n"
		pending := filepath.Join(t.TempDir(), "pending")
		if err := Return(t.Context(), node, Files{Pending: pending}, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !exists(pending) {
			t.Errorf("%s: post-deploy does not try again", name)
		}
	}
}
