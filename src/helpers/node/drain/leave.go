package drain

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"kubernetes-release/internal/rootfile"
)

// Names of the files that pre-stop of kubelet leaves, since the Director tells only pre-stop scripts what happens next,
// and of the one that Leave does. pre-stop and pre-start remove them.
const (
	leavingFile    = "leaving"    // the VM is about to be deleted
	undeployedFile = "undeployed" // the whole deployment is
	leftFile       = "left"       // kubelet must not start again
)

// cancelTimeout bounds Restore: the agent kills a drain script 10 s after it has canceled it
// (agent/script/drain/concrete_script.go of bosh-agent).
const cancelTimeout = 5 * time.Second

// errCanceled is a drain that was canceled, after which the Director stops nothing.
var errCanceled = errors.New("the drain was canceled, as bosh cancel-task does")

// Steps are what Leave does.
type Steps struct {
	// Drain takes the node out of service. It gets whether the VM is about to be deleted.
	Drain func(ctx context.Context, vmDeleted bool) error
	// Restore takes the node back into service when the drain is canceled.
	Restore func(context.Context) error
	// StopKubelet stops kubelet, which would register a deleted Node again, and DeleteNode deletes the Node.
	StopKubelet, DeleteNode func(context.Context) error
}

// Leave is the drain script of kubelet: it takes the node out of service and evicts its pods while kubelet still runs.
// If the VM is about to be deleted, it then deletes its Node: monit no longer restarts kubelet, and an API server still
// serves. If that fails, the next VM with this node name waits longer to join, until the cloud controller manager has
// deleted the Node. If the whole deployment is deleted, pods and Nodes need no care.
//
// What keeps kubelet from starting again is left here and not by pre-stop: if the pre-stop of another job fails, the VM
// stays, and neither drain nor pre-start follows.
//
// The files that pre-stop left are in the directory run. After an error the VM stays: it is that of Drain, or ctx has
// ended.
func Leave(ctx context.Context, run string, steps Steps, log *slog.Logger) error {
	if exists(filepath.Join(run, undeployedFile)) {
		log.Info("not draining: the deployment is deleted")
		return nil
	}
	leaving, left := exists(filepath.Join(run, leavingFile)), filepath.Join(run, leftFile)
	err := steps.Drain(ctx, leaving)
	if err == nil && leaving && ctx.Err() == nil {
		steps.deregister(ctx, left, log)
	}
	if ctx.Err() == nil {
		return err
	}
	restoring, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	err = errors.Join(errCanceled, err, steps.Restore(restoring))
	if removed := os.Remove(left); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// deregister stops kubelet for good, which the file left says, and deletes its Node.
func (s Steps) deregister(ctx context.Context, left string, log *slog.Logger) {
	if err := rootfile.Write(left, nil, 0o600); err != nil {
		log.Error("monit may start kubelet again", "error", err)
	}
	if err := s.StopKubelet(ctx); err != nil {
		log.Error("kubelet is not stopped", "error", err)
	}
	if ctx.Err() != nil {
		return
	}
	if err := s.DeleteNode(ctx); err != nil {
		log.Error("the Node is not deleted", "error", err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
