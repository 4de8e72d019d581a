package labeler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

func internal(address string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
}

func reportNode(t *testing.T, client kubernetes.Interface, name string, addresses ...corev1.NodeAddress) error {
	t.Helper()
	object, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Status.Addresses = addresses
	_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
	return err
}

// TestNodesCannotRedirectTheAPIServer is root on a worker that reports another machine's address as its own: the API
// server would connect there for logs and commands, with its certificate for all kubelets.
func TestNodesCannotRedirectTheAPIServer(t *testing.T) {
	cluster := withPolicies(t)
	const name = "worker-3c5e8f1a"
	admin, worker := cluster.Admin(), cluster.ClientFor("system:node:"+name, "system:nodes")
	hostname := corev1.NodeAddress{Type: corev1.NodeHostName, Address: name}
	created, err := worker.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{internal("10.0.0.5"), hostname}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(created.Status.Addresses) > 0 {
		t.Errorf("a new Node has addresses: %v", created.Status.Addresses)
	}
	kubetest.MustForbid(
		t, "before BOSH's address is known", reportNode(t, worker, name, internal("10.0.0.4")), "a node can report",
	)
	if err := patchLabels(t, admin, name, "", map[string]any{"bosh.io/addresses": "10.0.0.4_10.1.0.22"}); err != nil {
		t.Fatal(err)
	}
	if err := reportNode(t, worker, name, internal("10.0.0.4"), hostname); err != nil {
		t.Errorf("kubelet's own report: %v", err)
	}
	for what, address := range map[string]corev1.NodeAddress{
		"another node's address": internal("10.0.0.5"),
		"by IPv6":                internal("fd00::5"),
		"by the public address":  {Type: corev1.NodeExternalIP, Address: "10.0.0.5"},
		"another name":           {Type: corev1.NodeHostName, Address: "worker-other"},
		"a name of DNS":          {Type: corev1.NodeInternalDNS, Address: "api.prod.kubernetes.internal"},
	} {
		kubetest.MustForbid(t, what, reportNode(t, worker, name, address), "a node can report")
	}

	// What a cloud controller manager has added, kubelet repeats.
	public := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.7"}
	dns := corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: name}
	if err := reportNode(t, admin, name, internal("10.0.0.4"), public, dns, hostname); err != nil {
		t.Fatal(err)
	}
	if err := reportNode(t, worker, name, hostname, internal("10.0.0.4"), dns, public); err != nil {
		t.Errorf("kubelet repeats the cloud's addresses: %v", err)
	}
}

// TestNodesAreReadyWhenTheyAreKnown is root on a worker that registers again and again as Ready, so that the AWS Load
// Balancer Controller finds a Node without a provider ID and changes no load balancer.
func TestNodesAreReadyWhenTheyAreKnown(t *testing.T) {
	cluster := withPolicies(t)
	worker := cluster.ClientFor("system:node:"+stolen, "system:nodes")
	condition := func(status corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
	nodes := worker.CoreV1().Nodes()
	created, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: stolen}, Status: corev1.NodeStatus{Conditions: condition("True")},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(created.Status.Conditions) > 0 {
		t.Errorf("a Node is registered with the conditions %v", created.Status.Conditions)
	}
	report := func(status corev1.ConditionStatus) error {
		node, err := nodes.Get(t.Context(), stolen, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = condition(status)
		_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	}
	kubetest.MustForbid(t, "an unknown Node", report("True"), "when the job node-controller knows its instance")
	label := func(value any) {
		t.Helper()
		labels := map[string]any{"bosh.io/addresses": value}
		if err := patchLabels(t, cluster.Admin(), stolen, "", labels); err != nil {
			t.Fatal(err)
		}
	}

	// The friends: kubelet before, and when its instance is known, and one that was Ready before there was a policy.
	for _, status := range []corev1.ConditionStatus{"False", "Unknown"} {
		if err := report(status); err != nil {
			t.Errorf("a Node that is not known, with Ready %s: %v", status, err)
		}
	}
	label("10.0.0.4")
	if err := report("True"); err != nil {
		t.Errorf("a Node that is known: %v", err)
	}
	label(nil)
	if err := report("True"); err != nil {
		t.Errorf("a Node that is Ready already: %v", err)
	}
}
