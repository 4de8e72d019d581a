package object

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/stopwatch"
)

// Delete returns nil when the Node is deleted. Without a kubeconfig the VM has never joined the cluster, and there is
// nothing to delete. The kubelet must be stopped before: one that starts again registers the Node again.
//
// Delete retries what may be temporary, such as an API server that restarts, but not a missing permission.
func Delete(ctx context.Context, options Options, log *slog.Logger) error {
	if _, err := os.Stat(options.Kubeconfig); errors.Is(err, fs.ErrNotExist) {
		log.Info(
			"nothing to delete: this VM has not joined the cluster", "node", options.Name, "kubeconfig",
			options.Kubeconfig,
		)
		return nil
	}
	client, err := options.Client()
	if err != nil {
		return err
	}
	took := stopwatch.Start()
	err = poll.Within(ctx, options.Timeout, options.interval(), func(ctx context.Context) error {
		err := client.CoreV1().Nodes().Delete(ctx, options.Name, metav1.DeleteOptions{})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return poll.Permanent(
				fmt.Errorf("%w; the job kubernetes-addons of this release grants this permission", err),
			)
		}
		log.Info("cannot delete the node yet, retrying", "node", options.Name, "error", err, "timeout", options.Timeout)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete Node %s with %s: %w", options.Name, options.Kubeconfig, err)
	}
	log.Info("node is deleted", "node", options.Name, "took", took().Round(time.Millisecond))
	return nil
}
