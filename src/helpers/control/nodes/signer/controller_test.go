package signer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const (
	timeout = 30 * time.Second
	user    = "system:kubelet-signer"
)

var signers = []string{"kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"}

// permit binds a user to rules for certificates.
func permit(t *testing.T, admin kubernetes.Interface, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	for i := range rules {
		rules[i].APIGroups = []string{"certificates.k8s.io"}
	}
	name := metav1.ObjectMeta{Name: user}
	_, first := admin.RbacV1().ClusterRoles().Create(
		t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: rules}, metav1.CreateOptions{},
	)
	_, second := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	if err := errors.Join(first, second); err != nil {
		t.Fatal(err)
	}
}

// TestAgainstRealAPIServer runs three instances, as on three control VMs, with the documented permissions.
func TestAgainstRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	permit(
		t, admin, user,
		rbacv1.PolicyRule{Resources: []string{"certificatesigningrequests"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{Resources: []string{"certificatesigningrequests/status"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{Resources: []string{"signers"}, ResourceNames: signers, Verbs: []string{"sign"}},
	)
	// Who may write approvals, but not for these signers.
	permit(t, admin, "intruder", rbacv1.PolicyRule{
		Resources: []string{"certificatesigningrequests", "certificatesigningrequests/approval"},
		Verbs:     []string{"get", "update"},
	})
	node := cluster.ClientFor("system:node:a", "system:nodes").CertificatesV1().CertificateSigningRequests()
	send := func(signer string) *certificatesv1.CertificateSigningRequest {
		t.Helper()
		created, err := node.Create(t.Context(), request(t, signer, nil), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	approve := func(client kubernetes.Interface, csr *certificatesv1.CertificateSigningRequest) error {
		csr = csr.DeepCopy()
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"},
		}
		_, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(
			t.Context(), csr.Name, csr, metav1.UpdateOptions{},
		)
		return err
	}
	signed := func(name string) []byte {
		t.Helper()
		var certificate []byte
		eventually.Succeeds(t, timeout, "certificate of "+name, func() error {
			csr, err := admin.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if certificate = csr.Status.Certificate; len(certificate) == 0 {
				return fmt.Errorf("not signed: %v", csr.Status.Conditions)
			}
			return nil
		})
		return certificate
	}
	// One request waits for its signers, as during their restart.
	waiting := send(signers[0])
	if err := approve(admin, waiting); err != nil {
		t.Fatal(err)
	}
	authority := newCA(t, time.Now().Add(10*year), year)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	var log bytes.Buffer
	for i := range cap(ended) {
		output := io.Discard
		if i == 0 {
			output = &log
		}
		go func() {
			ended <- Run(ctx, cluster.ClientFor(user), authority, slog.New(slog.NewTextHandler(output, nil)))
		}()
	}
	first := signed(waiting.Name)

	var names []string
	started := time.Now()
	for i := range 20 {
		csr := send(signers[i%2])
		if err := approve(admin, csr); err != nil {
			t.Fatal(err)
		}
		names = append(names, csr.Name)
	}
	for _, name := range names {
		if leaf := parse(t, signed(name)); leaf.CheckSignatureFrom(authority.certificate) != nil {
			t.Errorf("%s is not signed by the CA", name)
		}
	}
	t.Logf("20 certificates in %s, with three instances", time.Since(started).Round(time.Millisecond))

	pending := send(signers[1])
	if err := approve(cluster.ClientFor("intruder"), pending); !apierrors.IsForbidden(err) {
		t.Errorf("approval without the right to approve for the signer: %v", err)
	}
	// The signer's own identity approves nothing.
	if err := approve(cluster.ClientFor(user), pending); !apierrors.IsForbidden(err) {
		t.Errorf("approval by the signer: %v", err)
	}
	forged, err := admin.CertificatesV1().CertificateSigningRequests().Create(
		t.Context(), request(t, signers[1], nil), metav1.CreateOptions{}, // by an administrator, which is no node
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := approve(admin, forged); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, timeout, "refusal", func() error {
		csr, err := admin.CertificatesV1().CertificateSigningRequests().Get(
			t.Context(), forged.Name, metav1.GetOptions{},
		)
		if err != nil {
			return err
		}
		for _, condition := range csr.Status.Conditions {
			if condition.Type == certificatesv1.CertificateFailed && len(csr.Status.Certificate) == 0 {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", csr.Status.Conditions)
	})
	if csr, err := admin.CertificatesV1().CertificateSigningRequests().Get(
		t.Context(), pending.Name, metav1.GetOptions{},
	); err != nil || len(csr.Status.Certificate) > 0 {
		t.Errorf("a request that is not approved: %v, certificate %s", err, csr.Status.Certificate)
	}
	if !bytes.Equal(first, signed(waiting.Name)) {
		t.Error("a certificate has changed after it was signed")
	}
	stop()
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if bytes.Contains(log.Bytes(), []byte("level=ERROR")) {
		t.Errorf("instances that race log errors:\n%s", log.Bytes())
	}
}
