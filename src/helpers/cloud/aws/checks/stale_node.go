package checks

import (
	"errors"
	"fmt"
	"io/fs"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/internal/apiclient"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "stale-node",
	rank:     410,
	title:    "the Node object does not belong to a previous VM",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionOverview,
	Needs:    facts.FromNode,
	run:      checkStaleNode,
	fix:      "`kubectl delete node NAME`, then `sudo " + monit + " restart kubelet` on the VM.",
})

// monit is not in the path of users of bosh ssh, and requires root.
var monit = bosh.DefaultRoot.Path("bosh/bin/monit")

// checkStaleNode compares the Node object with the instance. Only a kubelet that has joined can read it.
func checkStaleNode(f *facts.Facts) preflight.Outcome {
	if f.MetadataErr != nil {
		return skipped(facts.NoMetadata)
	}
	name, want := f.Metadata.Hostname, f.Metadata.Identity().ProviderID
	compare := fmt.Sprintf(
		"to compare: kubectl get node %s -o jsonpath={.spec.providerID} must print %s, otherwise kubectl delete node "+
			"%s",
		name, want, name,
	)
	switch {
	case f.Settings.NodeKubeconfig == "", errors.Is(f.NodeErr, fs.ErrNotExist):
		return skipped("a machine that has not joined cannot read its Node; %s", compare)
	case errors.Is(f.NodeErr, apiclient.ErrNoNode):
		return passed("there is no Node yet")
	case f.NodeErr != nil:
		return skipped("the Node could not be read (%s); %s", awserr.RootMessage(f.NodeErr), compare)
	case f.NodeProviderID == want:
		return passed("%s is %s", name, want)
	case f.NodeProviderID == "":
		return passed("%s has no provider id, which the cloud controller will set", name)
	}
	return found(preflight.Finding{
		Resource: "node " + name,
		Wanted:   "provider id " + want,
		Found:    f.NodeProviderID,
		Why: "A Node keeps the provider id of the instance that it was created for: load balancers target that " +
			"instance, and the Node is deleted together with it.",
		Fix: []preflight.Fix{
			fixes.ByCommand("delete the Node", fixes.Line("kubectl", "delete", "node", name)),
			fixes.ByCommand(
				"also, then on the VM, let kubelet register the node again",
				"sudo "+monit+" restart kubelet",
			),
		},
	})
}
