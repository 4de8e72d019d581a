package templates

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestTenantsCannotNameInterfaces is a tenant whose pod has an annotation with the network interface of another, such
// as of a control VM, whose security groups the AWS Load Balancer Controller would open.
func TestTenantsCannotNameInterfaces(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	const word = "names a network interface"
	const patch = `{"metadata": {"annotations": {"vpc.amazonaws.com/pod-eni": "[{\"eniId\": \"eni-other\"}]"}}}`
	run := func(client kubernetes.Interface, namespace, name string, annotations map[string]string) error {
		pod := podOf(name, corev1.PodSpec{})
		pod.Annotations = annotations
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	annotate := func(client kubernetes.Interface) error {
		_, err := client.CoreV1().Pods("tenant").
			Patch(t.Context(), "plain", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	foreign := map[string]string{"vpc.amazonaws.com/pod-eni": `[{"eniId": "eni-other"}]`}
	s.must(run(s.tenant, "tenant", "old", foreign))
	_, err := s.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "interfaces"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "interfaces"}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.restrict(balancersLink)

	s.must(run(s.tenant, "tenant", "plain", map[string]string{"example.com/note": "a"}))
	mustRefuseTenant(t, "a new pod", run(s.tenant, "tenant", "new", foreign), word)
	controller := s.ClientFor("system:serviceaccount:kube-system:replicaset-controller", "system:masters")
	mustRefuseTenant(t, "a pod of a Deployment", run(controller, "tenant", "replica", foreign), word)
	mustRefuseTenant(t, "a pod that runs", annotate(s.tenant), word)
	for what, err := range map[string]error{
		"whoever changes all pods": annotate(s.ClientFor("interfaces")),
		"an exempt namespace":      run(s.tenant, "agents", "exempt", foreign),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
