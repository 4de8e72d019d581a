package labeler

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

const flannel = "flannel.alpha.coreos.com/"

// announcement is what flannel writes to its Node (AcquireLease in pkg/subnet/kube/kube.go of flannel).
func announcement(address, mac string) map[string]any {
	return map[string]any{
		flannel + "backend-data": `{"VNI":1,"VtepMAC":"` + mac + `"}`, flannel + "backend-type": "vxlan",
		flannel + "kube-subnet-manager": "true", flannel + "public-ip": address,
	}
}

// routes is what it writes with the backend host-gw.
func routes(address string) map[string]any {
	return map[string]any{
		flannel + "backend-data": "null", flannel + "backend-type": "host-gw",
		flannel + "kube-subnet-manager": "true", flannel + "public-ip": address,
	}
}

func annotate(
	t *testing.T, client kubernetes.Interface, name string, annotations map[string]any, subresources ...string,
) error {
	t.Helper()
	return patchMetadata(t, client, name, map[string]any{"annotations": annotations}, subresources...)
}

// patchMetadata changes the metadata of a Node, or those that a subresource can change.
func patchMetadata(
	t *testing.T, client kubernetes.Interface, name string, metadata map[string]any, subresources ...string,
) error {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().
		Nodes().
		Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

// TestNodesCannotRerouteOthers is root on a worker, with kubelet's certificate: it deletes its Node and creates it
// again with a pod subnet of its choice, such as the address of instance metadata, and announces to flannel what
// belongs to others.
func TestNodesCannotRerouteOthers(t *testing.T) {
	cluster := withPolicies(t)
	const name = "worker-3c5e8f1a"
	admin, worker := cluster.Admin(), cluster.ClientFor("system:node:"+name, "system:nodes")
	create := func(spec corev1.NodeSpec, annotations map[string]string) error {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: spec}
		_, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	const metadata = "169.254.169.254/32"
	kubetest.MustForbid(
		t, "a Node with a pod subnet of its choice",
		create(corev1.NodeSpec{PodCIDR: metadata, PodCIDRs: []string{metadata}}, nil),
		"from none to 169.254.169.254/32", "kube-controller-manager assigns it",
	)
	kubetest.MustForbid(
		t, "a new Node with an address",
		create(corev1.NodeSpec{}, map[string]string{flannel + "public-ip": "10.0.0.4"}),
		"that BOSH knows",
	)

	// The friends: kubelet registers, kube-controller-manager assigns a subnet, node-controller labels, flannel
	// announces.
	if err := create(corev1.NodeSpec{}, nil); err != nil {
		t.Fatal(err)
	}
	kubetest.MustForbid(
		t, "before BOSH's address is known",
		annotate(t, worker, name, announcement("10.0.0.4", "0a:58:0a:00:00:04"), "status"),
	)
	cidr := `{"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}`
	manager := cluster.ClientFor("system:kube-controller-manager", "system:masters")
	if _, err := manager.CoreV1().
		Nodes().
		Patch(t.Context(), name, types.MergePatchType, []byte(cidr), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := patchLabels(t, admin, name, "", map[string]any{"bosh.io/addresses": "10.0.0.4_10.1.0.22"}); err != nil {
		t.Fatal(err)
	}
	for _, own := range []map[string]any{
		announcement("10.1.0.22", "0a:58:0a:01:00:16"), announcement("10.0.0.4", "fe:ff:0a:00:00:04"),
		routes("10.1.0.22"), routes("10.0.0.4"), announcement("10.0.0.4", "0a:58:0a:00:00:04"),
	} {
		if err := annotate(t, worker, name, own, "status"); err != nil {
			t.Errorf("flannel's own announcement %v: %v", own, err)
		}
	}

	for what, attack := range map[string]struct {
		annotations map[string]any
		words       []string
	}{
		"another VM's address": {
			announcement("10.0.0.5", "0a:58:0a:00:00:05"), []string{"10.0.0.4 or 10.1.0.22", "10.0.0.5"},
		},
		"another VM's MAC address": {
			announcement("10.0.0.4", "0a:58:0a:00:00:05"), []string{"0a:00:00:04", "0a:58:0a:00:00:05"},
		},
		"the MAC address of a manufacturer": {
			announcement("10.0.0.4", "08:58:0a:00:00:04"), []string{"locally administered"},
		},
		"a MAC address of many": {
			announcement("10.0.0.4", "0b:58:0a:00:00:04"), []string{"locally administered"},
		},
		"a MAC address alone": {map[string]any{flannel + "backend-data": `{"VNI":1,"VtepMAC":"0a:58:0a:00:00:05"}`},
			[]string{"0a:00:00:04"}},
		"two MAC addresses": {
			map[string]any{
				flannel + "backend-data": `{"VNI":1,"VtepMAC":"0a:58:0a:00:00:04","VtepMAC":"0a:58:0a:00:00:05"}`,
			},
			[]string{"0a:00:00:04"},
		},
		"another VM's address, as a router": {
			routes("10.0.0.5"), []string{"10.0.0.4 or 10.1.0.22", "not 10.0.0.5"},
		},
		"another VM's address alone": {map[string]any{flannel + "public-ip": "10.0.0.5"}, []string{"not 10.0.0.5"}},
		"two addresses, as a router": {routes("10.0.0.4_10.1.0.22"), []string{"that BOSH knows"}},
		"no address, as a router":    {routes(""), []string{"that BOSH knows"}},
		"as a router, with another VM's MAC address": {
			map[string]any{
				flannel + "backend-type": "host-gw",
				flannel + "backend-data": `{"VNI":1,"VtepMAC":"0a:58:0a:00:00:05"}`,
			},
			[]string{"0a:00:00:04"},
		},
		"an address to prefer": {
			map[string]any{flannel + "public-ip-overwrite": "10.0.0.5"},
			[]string{"not " + flannel + "public-ip-overwrite"},
		},
		"an IPv6 address": {
			map[string]any{flannel + "public-ipv6": "fd00::5"}, []string{"not " + flannel + "public-ipv6"},
		},
		"no address, but a MAC again": {map[string]any{flannel + "public-ip": nil}, []string{"that BOSH knows"}},
	} {
		for _, subresource := range []string{"", "status"} {
			subresources := []string{}
			if subresource != "" {
				subresources = append(subresources, subresource)
			}
			kubetest.MustForbid(
				t, what+" "+subresource,
				annotate(t, worker, name, attack.annotations, subresources...),
				attack.words...)
		}
	}
	kubetest.MustForbid(
		t, "its label", patchLabels(t, worker, name, "", map[string]any{"bosh.io/addresses": "10.0.0.5"}),
	)
	object, err := worker.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Spec.PodCIDR, object.Spec.PodCIDRs = metadata, []string{metadata}
	if _, err := worker.CoreV1().Nodes().Update(t.Context(), object, metav1.UpdateOptions{}); err == nil {
		t.Error("the Node's pod subnet was changed")
	}
	// What kubelet does all the time.
	if err := annotate(t, worker, name, map[string]any{"node.alpha.kubernetes.io/ttl": "0"}, "status"); err != nil {
		t.Errorf("another annotation: %v", err)
	}
	if err := annotate(t, worker, name, announcement("10.0.0.4", "0a:58:0a:00:00:04"), "status"); err != nil {
		t.Errorf("flannel after a restart: %v", err)
	}
}
