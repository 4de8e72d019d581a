package csiregistration

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// startWithPolicy starts an API server with the policy for CSINodes.
func startWithPolicy(t *testing.T) *kubetest.Cluster {
	t.Helper()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	manifest, err := os.ReadFile("../../../shared-templates/csi/nodes.yml")
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{
		Dirs: []string{addonstest.Dir(t, map[string][]byte{"50-nodes.yml": manifest})},
	})
	return cluster
}

// TestNodesCannotAttachVolumesElsewhere is root on a worker that names another instance in its CSINode, such as one of
// another cluster: the volumes of its pods would be attached there, until that one can attach no more.
func TestNodesCannotAttachVolumesElsewhere(t *testing.T) {
	cluster := startWithPolicy(t)
	const name = "ip-10-0-0-5.ec2.internal"
	nodes := cluster.Admin().CoreV1().Nodes()
	csiNodes := cluster.ClientFor("system:node:"+name, "system:nodes").StorageV1().CSINodes()
	object := func(owner types.UID, id string) *storagev1.CSINode {
		owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner}}
		csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
		if id != "" {
			csiNode.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "ebs.csi.aws.com", NodeID: id}}
		}
		return csiNode
	}
	create := func(csiNode *storagev1.CSINode) error {
		_, err := csiNodes.Create(t.Context(), csiNode, metav1.CreateOptions{})
		return err
	}
	update := func(change func(*storagev1.CSINode)) error {
		csiNode, err := csiNodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(csiNode)
		_, err = csiNodes.Update(t.Context(), csiNode, metav1.UpdateOptions{})
		return err
	}
	driver := func(id string) func(*storagev1.CSINode) {
		return func(c *storagev1.CSINode) {
			c.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "ebs.csi.aws.com", NodeID: id}}
		}
	}

	// Another Node, as a policy is evaluated only if there is one.
	other := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-east-1a/i-other"},
	}
	if _, err := nodes.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	own, err := nodes.Create(t.Context(), own, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "a CSINode of another owner is refused", func() error {
		if err := create(object("00000000-0000-0000-0000-000000000000", "")); !apierrors.IsForbidden(err) {
			_ = csiNodes.Delete(t.Context(), name, metav1.DeleteOptions{})
			return fmt.Errorf("the policy does not know the Node yet: %w", err)
		}
		return nil
	})
	kubetest.MustForbid(t, "before the instance is known", create(object(own.UID, "i-own")), "does not have yet")
	if err := create(object(own.UID, "")); err != nil {
		t.Fatalf("as kubelet creates it: %v", err)
	}
	const id = `{"spec": {"providerID": "aws:///us-east-1a/i-own"}}`
	if _, err := nodes.Patch(
		t.Context(), name, types.MergePatchType, []byte(id), metav1.PatchOptions{},
	); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "kubelet registers the driver", func() error {
		return update(driver("i-own"))
	})
	if err := update(func(c *storagev1.CSINode) {
		count := int32(25)
		c.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		c.Annotations = map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
	}); err != nil {
		t.Errorf("kubelet changes the number of volumes: %v", err)
	}
	kubetest.MustForbid(t, "no owner", update(func(c *storagev1.CSINode) { c.OwnerReferences = nil }), "only owner")
	kubetest.MustForbid(t, "an owner that nobody knows", update(func(c *storagev1.CSINode) {
		c.OwnerReferences[0].APIVersion = "example.com/v1"
	}), "only owner")
	kubetest.MustForbid(t, "a finalizer", update(func(c *storagev1.CSINode) {
		c.Finalizers = []string{"example.com/stay"}
	}), "finalizers")
	if err := update(func(c *storagev1.CSINode) { c.Spec.Drivers = nil }); err != nil {
		t.Errorf("kubelet removes the driver: %v", err)
	}
	kubetest.MustForbid(
		t, "another instance", update(driver("i-other")), "only its own instance, i-own, in its CSINode, not i-other",
	)
	cinder := func(id string) func(*storagev1.CSINode) {
		return func(c *storagev1.CSINode) {
			c.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "cinder.csi.openstack.org", NodeID: id}}
		}
	}
	kubetest.MustForbid(t, "another server of OpenStack", update(cinder("i-other")), "only its own instance, i-own")
	if err := update(cinder("i-own")); err != nil {
		t.Errorf("kubelet registers the driver of Cinder: %v", err)
	}
	vsphere := func(id string) func(*storagev1.CSINode) {
		return func(c *storagev1.CSINode) {
			c.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "csi.vsphere.vmware.com", NodeID: id}}
		}
	}
	kubetest.MustForbid(t, "another VM of vSphere", update(vsphere("i-other")), "only its own instance, i-own")
	if err := update(vsphere("i-own")); err != nil {
		t.Errorf("kubelet registers the driver of vSphere: %v", err)
	}
	if err := csiNodes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubetest.MustForbid(
		t, "another instance, again", create(object(own.UID, "i-other")), "only its own instance, i-own",
	)

	// Without its Node the node can write it, with an owner that does not exist.
	if err := nodes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "a CSINode without a Node", func() error {
		return create(object(own.UID, "i-other"))
	})
	eventually.Succeeds(t, time.Minute, "it is deleted", func() error {
		if _, err := csiNodes.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("it is still there")
		}
		return nil
	})
}
