// Package nodeleave takes this machine's Node out of the cluster, before the machine itself goes.
//
// It runs with the kubelet's own kubeconfig: of all Nodes, NodeRestriction lets a kubelet delete its own. The kubelet has to be
// stopped before: one that starts again afterwards registers again.
package nodeleave

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Options says which Node is to go.
type Options struct {
	// Kubeconfig is the kubelet's. Where there is none, the machine has not joined, and there is nothing to delete.
	Kubeconfig string
	// Name is the name of the Node.
	Name string
	// Timeout is for all tries together and must be positive.
	Timeout time.Duration
	// Interval between two tries; 0 means 500 ms.
	Interval time.Duration
}

// Delete returns nil when the Node is gone. It tries again what may pass, such as an API server that is just being
// restarted, and gives up at once where the machine lacks the right.
func Delete(ctx context.Context, options Options, log *slog.Logger) error {
	if options.Interval == 0 {
		options.Interval = 500 * time.Millisecond
	}
	if _, err := os.Stat(options.Kubeconfig); errors.Is(err, fs.ErrNotExist) {
		log.Info("nothing to delete: this machine has not joined", "node", options.Name, "kubeconfig", options.Kubeconfig)
		return nil
	}
	client, err := newClient(options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, options.Timeout)
	defer cancel()
	begun := time.Now()
	var last error
	for {
		err := client.CoreV1().Nodes().Delete(ctx, options.Name, metav1.DeleteOptions{})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			log.Info("node is gone", "node", options.Name, "already", err != nil, "took", time.Since(begun).Round(time.Millisecond))
			return nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return fmt.Errorf("delete Node %s with %s: %w; the job kubernetes-addons of this release gives the right", options.Name, options.Kubeconfig, err)
		case last == nil || ctx.Err() == nil: // keep the reason from before the deadline cut a request short
			last = err
			log.Info("node could not be deleted, trying again", "node", options.Name, "error", err, "at_most", options.Timeout)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("delete Node %s with %s: not within %s; the last try: %w", options.Name, options.Kubeconfig, options.Timeout, last)
		case <-time.After(options.Interval):
		}
	}
}

func newClient(options Options) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", options.Kubeconfig, err)
	}
	config.UserAgent = "kube-tools"
	config.QPS = -1                      // unlimited: at the deadline the limiter's own error would hide the reason
	config.Timeout = options.Timeout / 2 // an API server that accepts and never answers leaves time for another
	return kubernetes.NewForConfig(config)
}
