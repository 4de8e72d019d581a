package azure

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/cloud/controller"
	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const (
	own   = "3c5e8f1a-0000-4000-8000-0000000000a1" // the IDs of their agents, as their VMs
	other = "0d9b2c4e-0000-4000-8000-0000000000a2"
)

// nodeManager is who the pod of cloud-node-manager on the own VM is.
var nodeManager = rest.ImpersonationConfig{
	UserName: "system:serviceaccount:kube-system:cloud-node-manager",
	Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {own}},
}

// startWithManifests starts an API server with the controller's manifests and two Nodes.
func startWithManifests(t *testing.T) *kubetest.Cluster {
	t.Helper()
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--allow-privileged"}})
	m, err := controller.Render((&Provider{}).About(), controller.Settings{
		Cluster: "prod", PodNetwork: "10.244.0.0/16", Replicas: 2, CloudConfig: "{}", Images: map[string]string{
			"cloud-controller-manager": "registry.example/a:v1", "cloud-node-manager": "registry.example/b:v1",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{Objects: addonstest.Objects(m.GetResources())})
	for name, address := range map[string]string{own: "10.0.0.5", other: "10.0.0.4"} {
		if _, err := cluster.Admin().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"bosh.io/addresses": address},
				Annotations: map[string]string{"alpha.kubernetes.io/provided-node-ip": address},
			},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{
				{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
				{
					Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true",
					Effect: corev1.TaintEffectNoSchedule,
				},
			}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

func providerID(vm string) string {
	return "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/" + vm
}

// TestNodesChangeTheirOwnNodeOnly is root on a worker with the token of cloud-node-manager, whose role is for all
// Nodes: it takes the taints of control VMs away, or has the API server connect to another machine.
func TestNodesChangeTheirOwnNodeOnly(t *testing.T) {
	cluster := startWithManifests(t)
	config := rest.CopyConfig(cluster.AdminConfig())
	config.Impersonate = nodeManager
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(node, patch, subresource string) error {
		var more []string
		if subresource != "" {
			more = append(more, subresource)
		}
		_, err := client.CoreV1().Nodes().Patch(
			t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, more...,
		)
		return err
	}
	eventually.Succeeds(t, 30*time.Second, "the role is known", func() error { return patch(own, `{}`, "") })
	const metadata, status, kept = "", "status", "only labels, taint"
	for what, attack := range map[string]struct{ node, subresource, word, patch string }{
		"another's taints": {other, metadata, "only the Node of its own VM, " + own, `{"spec": {"taints": null}}`},
		"another's labels": {
			other, metadata, "not " + other, `{"metadata": {"labels": {"topology.kubernetes.io/zone": "2"}}}`,
		},
		"another's addresses": {
			other, status, other, `{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.5"}]}}`,
		},
		"a role": {
			own, metadata, "node-role", `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`,
		},
		"another group": {
			own, status, "bosh.io", `{"metadata": {"labels": {"bosh.io/instance-group": "control"}}}`,
		},
		"addresses in BOSH": {
			own, metadata, "bosh.io/addresses", `{"metadata": {"labels": {"bosh.io/addresses": "10.0.0.4"}}}`,
		},
		"flannel": {
			own, metadata, kept,
			`{"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.4"}}}`,
		},
		"a finalizer": {own, metadata, kept, `{"metadata": {"finalizers": ["example.com/a"]}}`},
		"a pod subnet": {
			own, metadata, kept, `{"spec": {"podCIDR": "169.254.169.0/24", "podCIDRs": ["169.254.169.0/24"]}}`,
		},
		"all taints": {own, metadata, "only the taint", `{"spec": {"taints": null}}`},
		"a taint of its own": {
			own, metadata, "only the taint", `{"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}`,
		},
		"a provider ID": {own, metadata, "the provider ID of its own VM", `{"spec": {"providerID": "aws:///a/i-1"}}`},
		"another's provider ID": {
			own, metadata, "the provider ID of its own VM", `{"spec": {"providerID": "` + providerID(other) + `"}}`,
		},
		"one that ends as its own": {
			own, metadata, "the provider ID of its own VM", `{"spec": {"providerID": "` + providerID("x"+own) + `"}}`,
		},
		"another's address": {
			own, status, "10.0.0.5", `{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]}}`,
		},
		"a public address alone": {
			own, status, "10.0.0.5", `{"status": {"addresses": [{"type": "ExternalIP", "address": "203.0.113.9"}]}}`,
		},
		"a name": {
			own, status, "10.0.0.5", `{"status": {"addresses": [{"type": "Hostname", "address": "a.example"}]}}`,
		},
		"kubelet's port":  {own, status, kept, `{"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 22}}}}`},
		"others' volumes": {own, status, kept, `{"status": {"volumesAttached": [{"name": "a", "devicePath": ""}]}}`},
	} {
		kubetest.MustForbid(t, what, patch(attack.node, attack.patch, attack.subresource), attack.word)
	}

	// The friend: what cloud-node-manager does when a node registers, and later.
	node, err := client.CoreV1().Nodes().Get(t.Context(), own, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == "node.cloudprovider.kubernetes.io/uninitialized"
	})
	node.Spec.ProviderID = providerID(own)
	node.Labels["topology.kubernetes.azure.com/interconnect-group"] = "group-1"
	node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelInstanceTypeStable] = "eastus-1", "Standard_D2s_v5"
	if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	report, err := json.Marshal(map[string]any{"status": map[string]any{
		"addresses": []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: own}, {Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
			{Type: corev1.NodeExternalIP, Address: "203.0.113.9"},
		},
		"conditions": []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := patch(own, string(report), status); err != nil {
		t.Errorf("addresses and the condition of the network: %v", err)
	}
}
