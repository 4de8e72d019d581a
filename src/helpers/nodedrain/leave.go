package nodedrain

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"kubernetes-release/internal/rootfile"
)

// Names of the files that pre-stop of kubelet leaves, since the Director tells only pre-stop scripts what happens next,
// and of the one that Leave does. pre-stop and pre-start remove them.
const (
	leavingFile    = "leaving"    // the VM is about to be deleted
	undeployedFile = "undeployed" // the whole deployment is
	leftFile       = "left"       // kubelet must not start again
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
// Only from then on kubelet does not start again, and not since pre-stop: if that of another job fails, the VM stays
// without a drain and without a pre-start, and kubelet must.
//
// The files that pre-stop left are in the directory run. The only error is that of Drain, after which the VM stays.
func Leave(ctx context.Context, run string, steps Steps, log *slog.Logger) error {
	if exists(filepath.Join(run, undeployedFile)) {
		log.Info("not draining: the deployment is deleted")
		return nil
	}
	leaving := exists(filepath.Join(run, leavingFile))
	if err := steps.Drain(ctx, leaving); err != nil || !leaving {
		return err
	}
	if err := rootfile.Write(filepath.Join(run, leftFile), nil, 0o600); err != nil {
		log.Error("monit may start kubelet again", "error", err)
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
