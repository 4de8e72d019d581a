package templates

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestSmokeTestsStayInTheirNamespaces: whoever has the certificate of the errand must not get to kube-system, where
// pods can be privileged, nor to what belongs to others.
func TestSmokeTestsStayInTheirNamespaces(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	manifests := map[string][]byte{}
	for _, job := range []string{
		"kubernetes-addons", "ebs-csi-controller", "aws-load-balancer-controller", "pod-roles",
	} {
		manifests[job+".yml"] = mustRender(t, job, withAllLinks(t, job))["config/manifests/40-smoke-tests.yml"]
	}
	addonstest.Apply(t, cluster, addons.Options{Dirs: []string{addonstest.Dir(t, manifests)}})
	errand := cluster.ClientFor("system:smoke-tests", "kubernetes.bosh.io:components")
	s := &smokeAttack{t: t, errand: errand}
	eventually.Succeeds(t, 30*time.Second, "the policy refuses another namespace", func() error {
		if err := s.namespace("tenant", "restricted"); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for name, err := range map[string]error{
		"a Deployment in kube-system":           s.deployment(metav1.NamespaceSystem),
		"a Deployment in default":               s.deployment(metav1.NamespaceDefault),
		"its role in kube-system":               s.bind(metav1.NamespaceSystem, "kubernetes.bosh.io:smoke-tests-run"),
		"its role for pods in default":          s.bind("default", "kubernetes.bosh.io:smoke-tests-pod-roles-run"),
		"its role for Ingresses in default":     s.bind("default", "kubernetes.bosh.io:smoke-tests-ingress-run"),
		"its role for Gateways in default":      s.bind("default", "kubernetes.bosh.io:smoke-tests-gateway-run"),
		"a privileged namespace":                s.namespace("smoke-tests-privileged", "privileged"),
		"a namespace without a standard":        s.namespace("smoke-tests-free", ""),
		"the deletion of the namespace default": s.delete(metav1.NamespaceDefault),
	} {
		kubetest.MustForbid(t, name, err)
	}
	s.may(metav1.NamespaceSystem, false)
	s.volumes(admin)

	// The errand itself.
	own := "smoke-tests-1"
	if err := s.namespace(own, "restricted"); err != nil {
		t.Fatalf("a namespace of its own: %v", err)
	}
	kubetest.MustForbid(t, "the role cluster-admin in its own namespace", s.bind(own, "cluster-admin"))
	for _, role := range []string{
		"kubernetes.bosh.io:smoke-tests-run", "kubernetes.bosh.io:smoke-tests-storage-run",
		"kubernetes.bosh.io:smoke-tests-ingress-run", "kubernetes.bosh.io:smoke-tests-gateway-run",
		"kubernetes.bosh.io:smoke-tests-pod-roles-run",
	} {
		if err := s.bind(own, role); err != nil {
			t.Fatalf("its role in its own namespace: %v", err)
		}
	}
	eventually.Succeeds(t, 30*time.Second, "its own namespace", func() error { return s.deployment(own) })
	s.may(own, true)
	s.may(metav1.NamespaceSystem, false)
	generated := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "smoke-tests-", Labels: map[string]string{enforce: "restricted"},
	}}
	if _, err := errand.CoreV1().Namespaces().Create(t.Context(), generated, metav1.CreateOptions{}); err != nil {
		t.Errorf("a namespace with a generated name: %v", err)
	}
	if err := s.delete(own); err != nil {
		t.Errorf("the deletion of its own namespace: %v", err)
	}
}

const enforce = "pod-security.kubernetes.io/enforce"

// smokeAttack does what the errand may do in its own namespaces, in others.
type smokeAttack struct {
	t      *testing.T
	errand kubernetes.Interface
}

func (s *smokeAttack) namespace(name, standard string) error {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if standard != "" {
		object.Labels = map[string]string{enforce: standard}
	}
	_, err := s.errand.CoreV1().Namespaces().Create(s.t.Context(), object, metav1.CreateOptions{})
	return err
}

func (s *smokeAttack) delete(namespace string) error {
	return s.errand.CoreV1().Namespaces().Delete(s.t.Context(), namespace, metav1.DeleteOptions{})
}

func (s *smokeAttack) deployment(namespace string) error {
	labels := map[string]string{"app": "attack"}
	spec := podOf("attack", corev1.PodSpec{HostPID: true}).Spec
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "attack"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
	_, err := s.errand.AppsV1().Deployments(namespace).Create(s.t.Context(), object, metav1.CreateOptions{})
	return err
}

func (s *smokeAttack) bind(namespace, role string) error {
	object := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "smoke-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:smoke-tests"}},
	}
	_, err := s.errand.RbacV1().RoleBindings(namespace).Create(s.t.Context(), object, metav1.CreateOptions{})
	return err
}

// may asks for what reaches into pods.
func (s *smokeAttack) may(namespace string, want bool) {
	s.t.Helper()
	for _, attributes := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Resource: "pods", Subresource: "exec"},
		{Verb: "get", Resource: "pods", Subresource: "log"},
		{Verb: "get", Resource: "services", Subresource: "proxy"},
		{Verb: "create", Resource: "pods"},
		{Verb: "patch", Resource: "persistentvolumeclaims"},
		{Verb: "list", Resource: "pods"},
	} {
		attributes.Namespace = namespace
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}
		reviews := s.errand.AuthorizationV1().SelfSubjectAccessReviews()
		answer, err := reviews.Create(s.t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		if answer.Status.Allowed != want {
			s.t.Errorf("%s %s/%s in %s is permitted: %v, want %v", attributes.Verb, attributes.Resource,
				attributes.Subresource, namespace, answer.Status.Allowed, want)
		}
	}
}

// volumes patches volumes of a tenant's claim, of none, and of a run's claim.
func (s *smokeAttack) volumes(admin kubernetes.Interface) {
	s.t.Helper()
	for name, claim := range map[string]*corev1.ObjectReference{
		"others":    {Namespace: "tenant", Name: "data"},
		"unclaimed": nil,
		"run":       {Namespace: "smoke-tests-1", Name: "data"},
	} {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		volume.Spec = corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:                      claim,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-" + name},
			},
		}
		_, err := admin.CoreV1().PersistentVolumes().Create(s.t.Context(), volume, metav1.CreateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		patch := func(spec string) error {
			_, err := s.errand.CoreV1().PersistentVolumes().Patch(
				s.t.Context(), name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{},
			)
			return err
		}
		steal := patch(`{"claimRef":{"namespace":"smoke-tests-2","name":"mine"}}`)
		kubetest.MustForbid(s.t, "volume "+name+" for another claim", steal)
		if err := patch(`{"persistentVolumeReclaimPolicy":"Delete"}`); apierrors.IsForbidden(err) != (name != "run") {
			s.t.Errorf("the deletion of the volume %s with its claim: %v", name, err)
		}
	}
}
