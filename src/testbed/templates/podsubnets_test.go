package templates

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestNodesCannotLeaveTheirPodSubnet is root on a worker that has its Node say nothing of flannel, as those of another
// CNI do, and gives a pod the address of a machine that is no node, to which the API server connects for whoever may
// use pods/proxy in that namespace.
func TestNodesCannotLeaveTheirPodSubnet(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	ctx := t.Context()
	const publicIP = "flannel.alpha.coreos.com/public-ip"
	in := inputFor(t, "kubernetes-addons")
	manifests := []string{"10-nodes.yml", "20-components.yml"}
	applyRendered(t, s.Cluster, mustRender(t, "kubernetes-addons", in), manifests...)
	setup := `{"metadata": {"labels": {"bosh.io/addresses": "10.0.0.4"}, "annotations": {"` + publicIP +
		`": "10.0.0.4"}}, "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}`
	_, err := s.admin.CoreV1().Nodes().Patch(
		ctx, "worker", types.MergePatchType, []byte(setup), metav1.PatchOptions{},
	)
	s.must(err)
	for _, name := range []string{"before", "web", "host"} {
		pod := podOf(name, corev1.PodSpec{NodeName: "worker", HostNetwork: name == "host"})
		_, err := s.admin.CoreV1().Pods("agents").Create(ctx, pod, metav1.CreateOptions{})
		s.must(err)
	}
	node := s.ClientFor("system:node:worker", "system:nodes")
	report := func(pod, address string) error {
		_, err := node.CoreV1().Pods("agents").Patch(ctx, pod, types.MergePatchType, []byte(
			`{"status": {"podIP": "`+address+`", "podIPs": [{"ip": "`+address+`"}]}}`,
		), metav1.PatchOptions{}, "status")
		return err
	}
	remove := `{"metadata": {"annotations": {"` + publicIP + `": null}}}`
	_, err = node.CoreV1().Nodes().Patch(ctx, "worker", types.MergePatchType, []byte(remove), metav1.PatchOptions{})
	s.must(err)
	eventually.Succeeds(t, 30*time.Second, "without the policy, a pod has any address", func() error {
		return report("before", "10.0.0.6")
	})
	applyRendered(t, s.Cluster, mustRender(t, "kubernetes-addons", in.linked(cniLink(t))), manifests...)
	addresses := []string{"10.0.0.6", "10.0.0.7"}
	eventually.Succeeds(t, 30*time.Second, "the policy knows the Node", func() error {
		addresses[0], addresses[1] = addresses[1], addresses[0] // a report without a change is not looked at
		if err := report("before", addresses[0]); !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("it was not refused"), err)
		}
		return nil
	})
	for _, address := range []string{"10.0.0.6", "169.254.169.254", "10.244.2.7", "fd00::7"} {
		kubetest.MustForbid(t, address, report("web", address), "its own pod subnet, 10.244.1.0/24, not "+address)
	}

	// The friend: kubelet.
	for pod, address := range map[string]string{"web": "10.244.1.7", "host": "10.0.0.4"} {
		if err := report(pod, address); err != nil {
			t.Errorf("kubelet's own report of pod %s: %v", pod, err)
		}
	}
}
