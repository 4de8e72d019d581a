package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"kubernetes-release/helpers/apiclient"
	"kubernetes-release/helpers/node"
)

// A new VM with the address of a previous one has the same name as a node. The Node of the previous VM keeps its provider ID,
// so the cloud-controller-manager deletes it when it finds that instance gone. If the new VM's kubelet had taken over the Node
// by then, it would lose it, because a kubelet registers only when it starts, and everything else on the VM would keep using
// the part of the pod network that the Node had. Hence nothing that uses the Node may start before the stale one is deleted.

// checkStaleNode returns an error while the Node with this VM's name belongs to a previous VM.
func checkStaleNode(ctx context.Context, client *apiclient.Client, id node.Identity) error {
	providerID, err := client.NodeProviderID(ctx, id.Name)
	switch {
	case errors.Is(err, apiclient.ErrNoNode):
		return nil
	case err != nil:
		return err
	case providerID == "" || providerID == id.ProviderID:
		return nil
	}
	return fmt.Errorf("Node %s belongs to a previous VM, %s, and this VM is %s: the cloud-controller-manager deletes the Node when it finds the previous VM gone; "+
		"if it does not, see the log of the job cloud-controller-manager, or delete the Node yourself: kubectl delete node %[1]s", id.Name, providerID, id.ProviderID)
}

// tolerateNoPermission makes a check succeed if after some time the client still has no permission for it. A cluster whose
// add-ons are of an earlier release never grants it, and without the check the VM is no worse off than in that release.
func (l *Launcher) tolerateNoPermission(log *slog.Logger, check func(context.Context) error) func(context.Context) error {
	started := time.Now()
	return func(ctx context.Context) error {
		err := check(ctx)
		var status *apiclient.StatusError
		if !errors.As(err, &status) || status.StatusCode != http.StatusForbidden {
			return err
		}
		err = fmt.Errorf("no permission (yet) to read the Node; the job kubernetes-addons of this release grants it: %w", err)
		if time.Since(started) < l.permissionTimeout {
			return err
		}
		log.Warn("giving up the check for a stale Node", "elapsed", time.Since(started).Round(time.Second), "reason", err)
		return nil
	}
}
