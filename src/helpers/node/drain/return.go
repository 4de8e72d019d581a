package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/nospace"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/readywait"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/tail"
	"kubernetes-release/node/object"
)

const (
	// restoreTimeout bounds how long Return tries to change the Node, unless it may wait longer for the Node itself.
	restoreTimeout = time.Minute
	// logLines is how much Return repeats of kubelet's log, from its last logBytes.
	logLines, logBytes = 5, 64 << 10
)

// Files of the VM that Return reads and writes.
type Files struct {
	// KubeletLog is kubelet's log; empty if there is none to show.
	KubeletLog string
	// ControllerLogs are patterns of logs of the cloud controller manager, of its job and of its pods. They match none
	// on a VM that does not run it.
	ControllerLogs []string
	// Pending exists while a node has not returned into service after its VM has started. See Finish.
	Pending string
}

// Return waits until the Node of this VM is Ready and takes it back into service after a drain, as post-start of
// kubelet does. An error repeats the end of kubelet's log, if it has the path of one, and the end of the cloud
// controller manager's if it is waited for. With a timeout of 0 Return does not wait and only tries the latter. It ends
// with a *readywait.NoQuorumError as object.Wait does.
func Return(ctx context.Context, node object.Options, files Files, log *slog.Logger) error {
	if err := rootfile.Write(files.Pending, nil, 0o600); err != nil {
		log.Error("if the node cannot return into service now, post-deploy does not try again", "error", err)
	}
	if node.Timeout <= 0 {
		log.Info("not waiting for the node", "timeout", node.Timeout)
		if err := restore(ctx, node, files.Pending, log); err != nil {
			log.Error("the node is not taken back into service; post-deploy tries again", "error", err)
		}
		return nil
	}
	err := object.Wait(ctx, node, log)
	var none *readywait.NoQuorumError
	switch {
	case errors.As(err, &none):
		log.Info("not waiting for the node; post-deploy takes it back into service", "reason", err)
	case errors.Is(err, nodestatus.ErrUninitialized):
		return fmt.Errorf("%w%s%s%s", err, waiting(ctx, node), end(files.KubeletLog), end(newest(files.ControllerLogs)))
	case err != nil:
		return fmt.Errorf("%w%s", err, end(files.KubeletLog))
	}
	return restore(ctx, node, files.Pending, log)
}

// waiting is why containers of the cloud's programs do not run in pods on this node, such as an image that cannot be
// pulled, for an error. They have no log then.
func waiting(ctx context.Context, node object.Options) string {
	client, err := node.Client()
	if err != nil {
		return ""
	}
	pods, err := client.CoreV1().
		Pods(metav1.NamespaceAll). // a kubelet may list those of its node
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
	if err != nil {
		return fmt.Sprintf("; its pods cannot be listed: %v", err)
	}
	var reasons string
	for _, pod := range pods.Items {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			reason := c.State.Waiting
			if reason != nil && pod.Namespace == metav1.NamespaceSystem && strings.HasPrefix(pod.Name, "cloud-") {
				reasons += fmt.Sprintf(
					"; pod %s waits with the image %s: %s: %s", pod.Name, c.Image, reason.Reason,
					cmp.Or(reason.Message, "no message"),
				)
			}
		}
	}
	return reasons
}

// Finish takes the node back into service if Return could not, as post-deploy of kubelet does: when the first control
// VMs start after all were stopped, etcd has no quorum yet, and post-start must let the deploy start the others.
func Finish(ctx context.Context, node object.Options, pending string, log *slog.Logger) error {
	if !exists(pending) {
		return nil
	}
	return restore(ctx, node, pending, log)
}

// restore repeats Restore until it succeeds, or etcd refuses writes, which no repetition changes. The node is then no
// longer pending.
func restore(ctx context.Context, node object.Options, pending string, log *slog.Logger) error {
	node.Timeout = max(node.Timeout, restoreTimeout)
	try := func(ctx context.Context) error {
		client, err := node.Client()
		if errors.Is(err, fs.ErrNotExist) {
			log.Info("nothing to restore: this VM has not joined the cluster", "reason", err)
			return nil
		}
		if err != nil {
			return err
		}
		err = Restore(ctx, client, node.Name, log)
		if nospace.Is(err) {
			return noSpace(err)
		}
		if err != nil {
			return err
		}
		if err := os.Remove(pending); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Error("post-deploy takes the node back into service once more", "error", err)
		}
		return nil
	}
	return poll.Within(ctx, node.Timeout, time.Second, readywait.UnlessNoQuorum(node.EtcdMembers, try))
}

// newest is the file that was written last of those that match one of the patterns; "" if none does.
func newest(patterns []string) string {
	var path string
	var written time.Time
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern)
		for _, match := range matches {
			if info, err := os.Stat(match); err == nil && info.ModTime().After(written) {
				path, written = match, info.ModTime()
			}
		}
	}
	return path
}

// end is the last lines of a log, for an error.
func end(path string) string {
	if path == "" {
		return ""
	}
	lines, err := tail.File(path, 0, logBytes, logLines)
	if err != nil {
		return fmt.Sprintf("; its log cannot be read: %v", err)
	}
	return fmt.Sprintf(". The end of %s:\n%s", path, lines)
}
