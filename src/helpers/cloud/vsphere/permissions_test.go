package vsphere

import (
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/driver"
	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

var (
	definitions = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	topologies = schema.GroupVersionResource{
		Group: "cns.vmware.com", Version: "v1alpha1", Resource: "csinodetopologies",
	}
)

// startWithDriver starts an API server with the driver's manifests.
func startWithDriver(t *testing.T) *kubetest.Cluster {
	t.Helper()
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--allow-privileged"}})
	about := (&Provider{}).About()
	names, err := driver.Images(about)
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]string{}
	for _, name := range names {
		images[name] = "registry.example/" + name + ":v1"
	}
	m, err := driver.Render(about, driver.Settings{
		Replicas: 2, Images: images, MaxVolumes: 59, Config: cloud.DriverConfig{Files: map[string]string{"f": "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{Objects: addonstest.Objects(m.GetResources())})
	return cluster
}

// as returns the configuration of a client with the token of a service account that a pod on a node has.
func as(cluster *kubetest.Cluster, account, node string) *rest.Config {
	config := rest.CopyConfig(cluster.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kube-system:" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
	return config
}

// definition is one of the driver's own, as far as the test requires it (cns.vmware.com_csinodetopologies.yaml has no
// subresource for status either).
func definition(group string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "csinodetopologies." + group},
		"spec": map[string]any{
			"group": group, "scope": "Cluster",
			"names": map[string]any{
				"kind": "CSINodeTopology", "plural": "csinodetopologies", "singular": "csinodetopology",
			},
			"versions": []any{map[string]any{
				"name": "v1alpha1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}

func topology(node, id, status string) *unstructured.Unstructured {
	object := map[string]any{
		"apiVersion": "cns.vmware.com/v1alpha1", "kind": "CSINodeTopology",
		"metadata": map[string]any{"name": node},
		"spec":     map[string]any{"nodeID": id, "nodeuuid": vmUUID},
		"status":   map[string]any{}, // as the driver's client writes it
	}
	if status != "" {
		object["status"] = map[string]any{"status": status}
	}
	return &unstructured.Unstructured{Object: object}
}

// TestDefinitionsAndPlaces follows a start of the driver: the controllers define their resources, a node asks for its
// place, the syncer answers. Neither can do the same with what is not theirs.
func TestDefinitionsAndPlaces(t *testing.T) {
	cluster := startWithDriver(t)
	client := func(account, node string) dynamic.Interface {
		t.Helper()
		c, err := dynamic.NewForConfig(as(cluster, account, node))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	controller, node := client("vsphere-csi-controller", "control-0"), client("vsphere-csi-node", "worker-1")
	if _, err := controller.Resource(definitions).
		Create(t.Context(), definition("cns.vmware.com"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "the driver updates its definition when it starts again", func() error {
		current, err := controller.Resource(definitions).
			Get(t.Context(), "csinodetopologies.cns.vmware.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = controller.Resource(definitions).Update(t.Context(), current, metav1.UpdateOptions{})
		return err // a conflict while the API server accepts the names
	})
	_, err := controller.Resource(definitions).
		Create(t.Context(), definition("example.com"), metav1.CreateOptions{})
	kubetest.MustForbid(t, "a definition of another group", err, "cns.vmware.com only, not of example.com")
	_, err = controller.Resource(definitions).Get(t.Context(), "csinodetopologies.example.com", metav1.GetOptions{})
	kubetest.MustForbid(t, "read another definition", err, "cannot get resource")

	create := func(object *unstructured.Unstructured) error {
		_, err := node.Resource(topologies).Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	eventually.Succeeds(t, 30*time.Second, "the node asks for its place", func() error {
		return create(topology("worker-1", "worker-1", ""))
	})
	kubetest.MustForbid(
		t, "the place of another node", create(topology("worker-2", "worker-2", "")), "worker-1, not worker-2",
	)
	kubetest.MustForbid(t, "another name", create(topology("worker-3", "worker-1", "")), "only for its own place")
	patch := func(c dynamic.Interface, text string) error {
		_, err := c.Resource(topologies).
			Patch(t.Context(), "worker-1", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	const answer = `{"status": {"status": "Success", "topologyLabels": [{"key": "zone", "value": "z1"}]}}`
	kubetest.MustForbid(t, "answers itself", patch(node, answer), "a node cannot say where it is")
	current, err := controller.Resource(topologies).Get(t.Context(), "worker-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	current.Object["status"] = map[string]any{
		"status": "Success", "topologyLabels": []any{map[string]any{"key": "zone", "value": "z1"}},
	}
	if _, err := controller.Resource(topologies).Update(t.Context(), current, metav1.UpdateOptions{}); err != nil {
		t.Errorf("the syncer answers: %v", err)
	}
	if err := patch(node, `{"status": {"status": ""}}`); err != nil {
		t.Errorf("the node asks again after a restart: %v", err)
	}
	kubetest.MustForbid(t, "another zone", patch(
		node, `{"status": {"topologyLabels": [{"key": "zone", "value": "z2"}]}}`,
	), "a node cannot say where it is")
	elsewhere := client("vsphere-csi-node", "worker-2")
	kubetest.MustForbid(t, "a node changes another's", patch(elsewhere, `{"spec": {"nodeuuid": "x"}}`), "worker-2, not")
}

// TestPermissions asks the API server for what the driver's source calls, and for what must not be.
func TestPermissions(t *testing.T) {
	cluster := startWithDriver(t)
	allowed := func(account string, attributes authorizationv1.ResourceAttributes) bool {
		t.Helper()
		client, err := kubernetes.NewForConfig(as(cluster, account, "worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		return kubetest.May(t, client, attributes)
	}
	const controller, node, own = "vsphere-csi-controller", "vsphere-csi-node", "vmware-system-csi"
	for _, test := range []struct {
		account string
		authorizationv1.ResourceAttributes
		want bool
	}{
		{controller, authorizationv1.ResourceAttributes{Resource: "nodes", Verb: "watch"}, true},
		{controller, authorizationv1.ResourceAttributes{Resource: "pods", Verb: "list"}, true},
		{controller, authorizationv1.ResourceAttributes{Resource: "persistentvolumeclaims", Verb: "update"}, true},
		{controller, authorizationv1.ResourceAttributes{
			Resource: "persistentvolumeclaims", Subresource: "status", Verb: "patch",
		}, true},
		{controller, authorizationv1.ResourceAttributes{Resource: "persistentvolumes", Verb: "patch"}, true},
		{controller, authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "create", Namespace: own}, true},
		{controller, authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "watch", Namespace: own}, true},
		{controller, authorizationv1.ResourceAttributes{
			Group: "storage.k8s.io", Resource: "volumeattachments", Verb: "patch",
		}, true},
		{controller, authorizationv1.ResourceAttributes{
			Group: "storage.k8s.io", Resource: "volumeattachments", Subresource: "status", Verb: "patch",
		}, true},
		{controller, authorizationv1.ResourceAttributes{
			Group: "coordination.k8s.io", Resource: "leases", Verb: "update", Namespace: "kube-system",
			Name: "vsphere-syncer",
		}, true},
		{controller, authorizationv1.ResourceAttributes{
			Group: "cns.vmware.com", Resource: "cnsvolumeoperationrequests", Verb: "delete", Namespace: own,
		}, true},
		{node, authorizationv1.ResourceAttributes{Resource: "nodes", Verb: "get"}, true},
		{node, authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "list", Namespace: own}, true},

		// The Secrets cloud-conf and csi-driver-conf have the password of vCenter.
		{node, authorizationv1.ResourceAttributes{
			Resource: "configmaps", Verb: "get", Namespace: "kube-system",
		}, false},
		{node, authorizationv1.ResourceAttributes{Resource: "secrets", Verb: "get", Namespace: "kube-system"}, false},
		{node, authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: "create", Namespace: own}, false},
		{node, authorizationv1.ResourceAttributes{Resource: "nodes", Verb: "list"}, false},
		{node, authorizationv1.ResourceAttributes{Resource: "persistentvolumes", Verb: "get"}, false},
		{controller, authorizationv1.ResourceAttributes{
			Resource: "configmaps", Verb: "list", Namespace: "kube-system",
		}, false},
		{controller, authorizationv1.ResourceAttributes{Resource: "secrets", Verb: "list"}, false},
		{controller, authorizationv1.ResourceAttributes{Resource: "nodes", Verb: "patch"}, false},
		{controller, authorizationv1.ResourceAttributes{
			Group: "coordination.k8s.io", Resource: "leases", Verb: "update", Namespace: "kube-system",
			Name: "kube-controller-manager",
		}, false},
	} {
		if got := allowed(test.account, test.ResourceAttributes); got != test.want {
			t.Errorf("%s: %+v: %t, want %t", test.account, test.ResourceAttributes, got, test.want)
		}
	}
	// The namespace of the driver's ConfigMaps, which its pods are not in.
	if _, err := cluster.Admin().CoreV1().ConfigMaps(own).Get(
		t.Context(), "internal-feature-states.csi.vsphere.vmware.com", metav1.GetOptions{},
	); err != nil {
		t.Error(err)
	}
}
