package templates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// listed are what the operator lets nodes write.
var listed = values{"admission": values{
	"static_pods": []any{"agent", "proxy"}, "device_drivers": []any{"gpu.example.com"},
}}

// TestNodesHaveTheStaticPodsThatAreListed is root on a worker that fills etcd with objects of static pods, or takes the
// name of another's pod, such as that of a StatefulSet, which could not be created again.
func TestNodesHaveTheStaticPodsThatAreListed(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	worker := s.ClientFor("system:node:worker", "system:nodes")
	node, err := s.admin.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{})
	s.must(err)
	yes := true
	create := func(name, note string) error {
		pod := podOf(name, corev1.PodSpec{NodeName: "worker"})
		pod.GenerateName = "web-"
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "example.com/note": note}
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: "worker", UID: node.UID, Controller: &yes},
		}
		_, err := worker.CoreV1().Pods(metav1.NamespaceSystem).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	for i := range 5 {
		s.must(create(fmt.Sprintf("flood-%d-worker", i), "")) // without the policy
	}
	applyPodPolicies(t, s.Cluster, values{})
	kubetest.MustForbid(t, "a static pod by default", create("agent-worker", ""), "that admission.static_pods of")
	applyPodPolicies(t, s.Cluster, listed)
	for _, name := range []string{
		"flood-5-worker", "prometheus-0", "worker", "agent-control", "agent-worker-1", "agent", "",
	} {
		kubetest.MustForbid(t, "a static pod "+name, create(name, ""), "admission.static_pods", "end with -worker")
	}
	kubetest.MustForbid(t, "a large static pod", create("agent-worker", strings.Repeat("x", 100<<10)), "65536")

	// The friends: kubelet, what is older than the policy, and who is no node.
	for _, name := range []string{"agent-worker", "proxy-worker"} {
		if err := create(name, strings.Repeat("x", 32<<10)); err != nil {
			t.Errorf("kubelet's static pod %s: %v", name, err)
		}
	}
	gone := int64(0)
	err = worker.CoreV1().Pods(metav1.NamespaceSystem).Delete(
		t.Context(), "flood-0-worker", metav1.DeleteOptions{GracePeriodSeconds: &gone},
	)
	if err != nil {
		t.Errorf("kubelet deletes a static pod that is not listed: %v", err)
	}
	if _, err := s.tenant.CoreV1().Pods("tenant").Create(
		t.Context(), podOf("web", corev1.PodSpec{}), metav1.CreateOptions{},
	); err != nil {
		t.Errorf("a tenant's pod: %v", err)
	}
}

// TestNodesPublishDevicesOfDriversThatAreListed is root on a worker that fills etcd with ResourceSlices.
func TestNodesPublishDevicesOfDriversThatAreListed(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	worker := s.ClientFor("system:node:worker", "system:nodes")
	name := "worker"
	publish := func(client kubernetes.Interface, driver string) error {
		_, err := client.ResourceV1().ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "0-" + driver + "-worker-"},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: driver, NodeName: &name, Devices: []resourcev1.Device{{Name: "gpu-0"}},
				Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
			},
		}, metav1.CreateOptions{})
		return err
	}
	for range 5 {
		s.must(publish(worker, "flood.example.com")) // without the policy
	}
	applyPodPolicies(t, s.Cluster, values{})
	kubetest.MustForbid(
		t, "a driver by default", publish(worker, "gpu.example.com"), "devices of driver gpu.example.com",
		"admission.device_drivers",
	)
	applyPodPolicies(t, s.Cluster, listed)
	kubetest.MustForbid(t, "another driver", publish(worker, "flood.example.com"), "of driver flood.example.com")

	// The friends: a driver that is listed, with the certificate of its node, and one with an account of its own.
	if err := publish(worker, "gpu.example.com"); err != nil {
		t.Errorf("a driver that is listed: %v", err)
	}
	account := "system:serviceaccount:kube-system:nic-driver"
	_, err := s.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "nic-driver"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceslices"},
			Verbs: []string{"create"},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nic-driver"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nic-driver"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
	}, metav1.CreateOptions{})
	s.must(err)
	driver := s.ClientFor(account, "system:serviceaccounts", "system:serviceaccounts:kube-system")
	eventually.Succeeds(t, 30*time.Second, "a driver with an account of its own publishes devices", func() error {
		return publish(driver, "nic.example.com")
	})
}

// TestKubeletRequestsCertificatesOfItsPods is kubelet with a pod that mounts a certificate: its request is owned by the
// pod (createPodCertificateRequest in podcertificatemanager.go of kubelet), and by no other.
func TestKubeletRequestsCertificatesOfItsPods(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	applyManifests(t, s.Cluster, nil, "10-nodes.yml", "50-pods.yml")
	certificate := &corev1.PodCertificateProjection{
		SignerName: "example.com/mesh", KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem",
	}
	mounts := corev1.Volume{Name: "certificate", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{PodCertificate: certificate}}},
	}}
	pods := s.admin.CoreV1().Pods("tenant")
	spec := corev1.PodSpec{NodeName: "worker", Volumes: []corev1.Volume{mounts}}
	pod, err := pods.Create(t.Context(), podOf("web", spec), metav1.CreateOptions{})
	s.must(err)
	other, err := pods.Create(t.Context(), podOf("other", spec), metav1.CreateOptions{})
	s.must(err)
	node, err := s.admin.CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{})
	s.must(err)
	account, err := s.admin.CoreV1().ServiceAccounts("tenant").Get(
		t.Context(), pod.Spec.ServiceAccountName, metav1.GetOptions{},
	)
	s.must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	s.must(err)
	day := int32(24 * 60 * 60)
	worker := s.ClientFor("system:node:worker", "system:nodes")
	request := func(owner metav1.OwnerReference) error {
		_, err := worker.CertificatesV1().PodCertificateRequests("tenant").Create(
			t.Context(), &certificatesv1.PodCertificateRequest{
				ObjectMeta: metav1.ObjectMeta{
					GenerateName: "req-", OwnerReferences: []metav1.OwnerReference{owner},
				},
				Spec: certificatesv1.PodCertificateRequestSpec{
					SignerName: certificate.SignerName, MaxExpirationSeconds: &day, StubPKCS10Request: stub,
					PodName: pod.Name, PodUID: pod.UID,
					ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
					NodeName: "worker", NodeUID: node.UID,
				},
			}, metav1.CreateOptions{},
		)
		return err
	}
	eventually.Succeeds(t, 30*time.Second, "kubelet asks for a certificate of its pod", func() error {
		return request(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
	})
	yes := true
	for what, owner := range map[string]metav1.OwnerReference{
		"another pod": {APIVersion: "v1", Kind: "Pod", Name: other.Name, UID: other.UID},
		"its Node":    {APIVersion: "v1", Kind: "Node", Name: "worker", UID: node.UID},
		"a pod that cannot end": {
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, BlockOwnerDeletion: &yes,
		},
	} {
		kubetest.MustForbid(t, "a request owned by "+what, request(owner), "only the pod of the request as the owner")
	}
}
