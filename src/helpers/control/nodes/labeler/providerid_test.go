package labeler

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/node"
)

// TestNodesCannotNameAnotherInstance is root on a worker that registers with the provider ID of another instance, such
// as another cluster's: the cloud controller would open that one's security group and send it the traffic of load
// balancers.
func TestNodesCannotNameAnotherInstance(t *testing.T) {
	cluster := withPolicies(t)
	const other = "aws:///us-east-1a/i-other"
	machine := node.Machine{
		ID: "i-own", Node: "ip-10-0-0-5.ec2.internal", ProviderID: "aws:///us-east-1a/i-own",
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.5")},
	}
	admin, worker := cluster.Admin(), cluster.ClientFor("system:node:"+machine.Node, "system:nodes")
	nodes := worker.CoreV1().Nodes()
	register := func(id string) error {
		created, err := nodes.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: machine.Node}, Spec: corev1.NodeSpec{ProviderID: id},
		}, metav1.CreateOptions{})
		if err == nil && created.Spec.ProviderID != "" {
			t.Errorf("registered with the provider ID %s", created.Spec.ProviderID)
		}
		return err
	}
	patch := func(id string, subresources ...string) error {
		_, err := nodes.Patch(
			t.Context(), machine.Node, types.MergePatchType, fmt.Appendf(nil, `{"spec": {"providerID": %q}}`, id),
			metav1.PatchOptions{}, subresources...)
		return err
	}
	if err := register(other); err != nil {
		t.Fatal(err)
	}
	kubetest.MustForbid(t, "before the approver has set it", patch(other), "a node cannot set its provider ID")

	instances := &Instances{Deployment: deployment("kube", writeRecords(t)), Cloud: cloudOf{machine}}
	startKeeper(t, cluster, instances)
	expect := func(when string) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, when, func() error {
			object, err := admin.CoreV1().Nodes().Get(t.Context(), machine.Node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if object.Spec.ProviderID != machine.ProviderID || object.Labels["bosh.io/addresses"] == "" {
				err = fmt.Errorf("provider ID %q, labels %v", object.Spec.ProviderID, object.Labels)
			}
			return err
		})
	}
	expect("set by the authority")
	if err := patch(other); !apierrors.IsInvalid(err) { // the API server lets nobody change it
		t.Errorf("afterwards: %v, want it invalid", err)
	}
	if err := nodes.Delete(t.Context(), machine.Node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := register(machine.ProviderID); err != nil { // as kubelet does
		t.Fatal(err)
	}
	expect("registered again")

	// One that was registered before there was a policy has no address.
	if err := nodes.Delete(t.Context(), machine.Node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	forged := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machine.Node}, Spec: corev1.NodeSpec{ProviderID: other},
	}
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(forged); err != nil {
		t.Fatal(err)
	}
	k := &Keeper{
		instances: instances, known: map[types.UID]Instance{}, nodes: corelisters.NewNodeLister(indexer),
	}
	if err := k.label(t.Context(), machine.Node); err == nil || !strings.Contains(err.Error(), other) ||
		!strings.Contains(err.Error(), machine.ProviderID) {
		t.Errorf("a Node of another instance: %v", err)
	}
}
