package nodelabels

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
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

// TestNodesCannotAddressOthersAsTheirPods is root on a worker that gives its pods the addresses of others, so that they
// become endpoints of a Service, and that creates pods with the labels of another's Service.
func TestNodesCannotAddressOthersAsTheirPods(t *testing.T) {
	cluster := withPolicies(t)
	admin := cluster.Admin()
	const name, other = "worker-3c5e8f1a", "worker-0d9b2c4e"
	worker := cluster.ClientFor("system:node:"+name, "system:nodes")
	for node, network := range map[string][2]string{
		name:  {"10.0.0.4", "10.244.1.0/24"},
		other: {"10.0.0.5", "10.244.2.0/24"},
	} {
		if _, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: node, Labels: map[string]string{"bosh.io/addresses": network[0]},
				Annotations: map[string]string{flannel + "public-ip": network[0]},
			},
			Spec: corev1.NodeSpec{PodCIDR: network[1], PodCIDRs: []string{network[1]}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pods := admin.CoreV1().Pods("default")
	createServiceAccount(t, admin)
	create := func(pod string, host bool) {
		t.Helper()
		if _, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod},
			Spec: corev1.PodSpec{
				NodeName: name, HostNetwork: host, Containers: []corev1.Container{{Name: "main", Image: "image"}},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("plain", false)
	create("host", true)
	report := func(pod string, addresses ...string) error {
		ips := make([]map[string]string, len(addresses))
		for i, address := range addresses {
			ips[i] = map[string]string{"ip": address}
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"podIP": addresses[0], "podIPs": ips}})
		if err != nil {
			return err
		}
		_, err = worker.CoreV1().Pods("default").
			Patch(t.Context(), pod, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	foreign := []string{"10.244.2.9", "10.0.0.5"}
	eventually.Succeeds(t, 30*time.Second, "another node's address is refused", func() error {
		foreign[0], foreign[1] = foreign[1], foreign[0] // a report without a change is not looked at
		if err := report("plain", foreign[0]); apierrors.IsForbidden(err) {
			return nil
		} else if err != nil {
			return err
		}
		return errors.New("it was written")
	})
	if err := report("plain", "10.244.1.7"); err != nil {
		t.Errorf("kubelet's own report of a pod: %v", err)
	}
	for what, attack := range map[string][]string{
		"metadata":                                {"plain", "169.254.169.254"},
		"a pod of another node":                   {"plain", "10.244.2.9"},
		"its own VM":                              {"plain", "10.0.0.4"},
		"a second address":                        {"plain", "10.244.1.7", "fd00:ec2::254"},
		"another node, on the host network":       {"host", "10.0.0.5"},
		"metadata, on the host network":           {"host", "169.254.169.254"},
		"an address of a pod, on the host":        {"host", "10.244.1.7"},
		"another node's pod, on the host network": {"host", "10.244.2.9"},
	} {
		kubetest.MustForbid(t, what, report(attack[0], attack[1:]...), "a node can report")
	}
	if err := report("host", "10.0.0.4"); err != nil {
		t.Errorf("kubelet's own report of a pod on the host network: %v", err)
	}

	// The host of a pod, by which network-policy knows those of its node.
	host := func(status map[string]any) error {
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return err
		}
		_, err = worker.CoreV1().Pods("default").
			Patch(t.Context(), "plain", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	hosts := func(addresses ...string) []map[string]string {
		ips := make([]map[string]string, len(addresses))
		for i, address := range addresses {
			ips[i] = map[string]string{"ip": address}
		}
		return ips
	}
	kubetest.MustForbid(
		t, "another node as the host", host(map[string]any{"hostIP": "10.0.0.5", "hostIPs": hosts("10.0.0.5")}),
	)
	for _, others := range []map[string]any{{"hostIP": "10.0.0.5"}, {"hostIP": "10.0.0.5", "hostIPs": nil}} {
		kubetest.MustForbid(t, "another node as the only host", host(others))
	}
	if err := host(map[string]any{"hostIP": "10.0.0.4", "hostIPs": hosts("10.0.0.4")}); err != nil {
		t.Errorf("kubelet's own report of the host: %v", err)
	}
	kubetest.MustForbid(t, "a second host", host(map[string]any{"hostIPs": hosts("10.0.0.4", "fd00::5")}))

	// A CNI that does not use the pod subnets: its Nodes have no annotations of flannel.
	if err := annotate(t, admin, name, map[string]any{flannel + "public-ip": nil}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "a pod of another CNI has an address outside of pod subnets", func() error {
		return report("plain", "10.99.0.7")
	})
	kubetest.MustForbid(t, "a VM, with another CNI", report("plain", "10.0.0.4"), "a node can report")
	kubetest.MustForbid(
		t, "another node's pod, with another CNI here", report("plain", "10.244.2.9"), "a node can report",
	)

	// Without its Node, the node still cannot name others.
	if err := admin.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubetest.MustForbid(t, "another node, without a Node", report("plain", "10.0.0.5"), "a node can report")
	kubetest.MustForbid(t, "another node's pod, without a Node", report("plain", "10.244.2.9"), "a node can report")
}

// staticPod creates the object of a static pod in kube-system, which has no account, as kubelet does.
func staticPod(t *testing.T, worker kubernetes.Interface, node *corev1.Node, m metav1.ObjectMeta) (*corev1.Pod, error) {
	t.Helper()
	yes := true
	m.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	m.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes},
	}
	return worker.CoreV1().Pods(metav1.NamespaceSystem).Create(t.Context(), &corev1.Pod{
		ObjectMeta: m,
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}, metav1.CreateOptions{})
}

// TestStaticPodsHaveNoLabels is a node that creates the object of a static pod with the labels of another's Service.
func TestStaticPodsHaveNoLabels(t *testing.T) {
	cluster, worker := withNodes(t)
	node, err := cluster.Admin().CoreV1().Nodes().Get(t.Context(), stolen, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created, err := staticPod(t, worker, node, metav1.ObjectMeta{
		Name: "static-" + stolen, Labels: map[string]string{"k8s-app": "kube-dns"},
		Finalizers: []string{"example.com/stay"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(created.Labels) > 0 {
		t.Errorf("a static pod has labels: %v", created.Labels)
	}
	if len(created.Finalizers) > 0 {
		t.Errorf("a static pod has finalizers: %v", created.Finalizers)
	}
}

// TestNodesCannotKeepPods is root on a worker that keeps pods from being deleted, and their namespace with them, or
// that removes what a controller waits for.
func TestNodesCannotKeepPods(t *testing.T) {
	cluster := withPolicies(t)
	admin := cluster.Admin()
	const name = "worker-3c5e8f1a"
	worker := cluster.ClientFor("system:node:"+name, "system:nodes")
	if _, err := admin.CoreV1().Nodes().Create(
		t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	createServiceAccount(t, admin)
	const tracking = "batch.kubernetes.io/job-tracking"
	if _, err := admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Finalizers: []string{tracking}},
		Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(text string) error {
		_, err := worker.CoreV1().Pods("default").Patch(
			t.Context(), "job", types.MergePatchType, []byte(text), metav1.PatchOptions{}, "status",
		)
		return err
	}
	for what, text := range map[string]string{
		"one more": `{"metadata": {"finalizers": ["` + tracking + `", "example.com/stay"]}}`,
		"none":     `{"metadata": {"finalizers": null}}`,
	} {
		kubetest.MustForbid(t, what, patch(text), "finalizers")
	}
	if err := patch(`{"status": {"phase": "Succeeded"}}`); err != nil {
		t.Errorf("kubelet's own report: %v", err)
	}
}

// TestNodesCannotKeepTheirNode is root on a worker whose Node an operator deletes: by a finalizer it would stay, and
// so would what the cluster grants to it. What others wait for with a finalizer is theirs to remove.
func TestNodesCannotKeepTheirNode(t *testing.T) {
	cluster := withPolicies(t)
	admin := cluster.Admin()
	const name, others = "worker-3c5e8f1a", "example.com/backup"
	worker := cluster.ClientFor("system:node:"+name, "system:nodes")
	register := func(finalizers ...string) error {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
		_, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	patch := func(client kubernetes.Interface, finalizers any, subresources ...string) error {
		t.Helper()
		return patchMetadata(t, client, name, map[string]any{"finalizers": finalizers}, subresources...)
	}
	kubetest.MustForbid(t, "at the registration", register("example.com/stay"), "finalizers")
	if err := register(); err != nil {
		t.Fatalf("as kubelet registers: %v", err)
	}
	kubetest.MustForbid(t, "of its own", patch(worker, []string{"example.com/stay"}), "finalizers")
	kubetest.MustForbid(t, "by its status", patch(worker, []string{"example.com/stay"}, "status"), "finalizers")
	if err := patch(admin, []string{others}); err != nil {
		t.Fatalf("an operator's: %v", err)
	}
	kubetest.MustForbid(t, "removes an operator's", patch(worker, nil), "finalizers")
	for _, subresource := range [][]string{nil, {"status"}} {
		if err := annotate(t, worker, name, map[string]any{"a": "b"}, subresource...); err != nil {
			t.Errorf("kubelet's own update %v: %v", subresource, err)
		}
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
	kubetest.MustForbid(t, "an unknown Node", report("True"), "when kubelet-csr-approver knows its instance")
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
