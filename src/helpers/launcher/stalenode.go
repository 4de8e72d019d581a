package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// A VM that is made anew with the address of an earlier one gets that one's name as a node, too. The earlier one's Node keeps
// its provider id for ever, so the cloud controller deletes it when it finds that instance gone. A kubelet that has taken the
// Node over by then is left without one, as it registers only when it starts, and what else runs on the VM is left with the
// part of the pod network that the Node had. Hence nothing may start on the VM that goes by its Node before the old one is gone.

const nodesPath = "/api/v1/nodes/"

// errMayNotRead is no reason to wait for long: a cluster whose add-ons are of an earlier release never gives the right, and
// without a look it is no worse off than it was.
var errMayNotRead = errors.New("may not read Nodes")

// judgeNode tells by the answer to a request for the machine's Node whether the machine may become that Node.
func (w Wait) judgeNode(response *http.Response, body []byte) error {
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil
	case http.StatusForbidden:
		return fmt.Errorf("%w (yet): %w; the job kubernetes-addons of this release gives the right", errMayNotRead, w.refused(response, body))
	default:
		return w.refused(response, body)
	}
	var found struct {
		Kind string
		Spec struct{ ProviderID string }
	}
	if err := json.Unmarshal(body, &found); err != nil || found.Kind != "Node" {
		return fmt.Errorf("the answer is no Node: %s", excerptText(body))
	}
	switch found.Spec.ProviderID {
	case "", w.machine.ProviderID:
		return nil
	}
	return fmt.Errorf("Node %s is that of an earlier machine, %s, and this one is %s: the cloud controller deletes the Node when it finds the earlier machine gone; "+
		"if it does not, see the log of the job cloud-controller-manager, or mend it by hand: kubectl delete node %[1]s", w.machine.Name, found.Spec.ProviderID, w.machine.ProviderID)
}
