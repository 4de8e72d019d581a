package nodedrain

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
)

// Names of the files that pre-stop of kubelet leaves, since the Director tells only pre-stop scripts what happens next.
const (
	leavingFile    = "leaving"    // the VM is about to be deleted
	undeployedFile = "undeployed" // the whole deployment is
)

// Steps are what Leave does.
type Steps struct {
	// Drain takes the node out of service. It gets whether the VM is about to be deleted.
	Drain func(ctx context.Context, vmDeleted bool) error
	// StopKubelet stops kubelet, which would register a deleted Node again, and DeleteNode deletes the Node.
	StopKubelet, DeleteNode func(context.Context) error
}

// Leave is the drain script of kubelet: it takes the node out of service and evicts its pods while kubelet still runs.
// If the VM is about to be deleted, it then deletes its Node: monit no longer restarts kubelet, and an API server still
// serves. If that fails, the next VM with this node name waits longer to join, until the cloud controller manager has
// deleted the Node. If the whole deployment is deleted, pods and Nodes need no care.
//
// The files that pre-stop left are in the directory run. The only error is that of Drain, after which the VM stays.
func Leave(ctx context.Context, run string, steps Steps, log *slog.Logger) error {
	if exists(filepath.Join(run, undeployedFile)) {
		log.Info("not draining: the deployment is deleted")
		return nil
	}
	marker := filepath.Join(run, leavingFile)
	leaving := exists(marker)
	if err := steps.Drain(ctx, leaving); err != nil {
		if !leaving {
			return err
		}
		return errors.Join(err, os.Remove(marker)) // with it kubelet would not start
	}
	if !leaving {
		return nil
	}
	if err := steps.StopKubelet(ctx); err != nil {
		log.Error("kubelet is not stopped", "error", err)
	}
	if err := steps.DeleteNode(ctx); err != nil {
		log.Error("the Node is not deleted", "error", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
