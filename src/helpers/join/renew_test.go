package join

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

// authority is a CA of kubelets.
type authority struct {
	template *x509.Certificate
	key      *ecdsa.PrivateKey
	path     string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, template: &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kubelets"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.template, a.template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a.path = writeTestFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return a
}

// issue stores a certificate of the node that this CA has signed, as kubelet would.
func (a *authority) issue(t *testing.T, c *Client, name string) {
	t.Helper()
	keyPEM, request, err := newRequest(c.Node)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      parsed.Subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.template, parsed.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	store, err := c.store(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM); err != nil {
		t.Fatal(err)
	}
}

// approveAll approves all requests, in place of kubelet-csr-approver.
func approveAll(ctx context.Context, cluster *kubetest.Cluster) {
	requests := cluster.Admin().CertificatesV1().CertificateSigningRequests()
	for ctx.Err() == nil {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, pending := range list.Items {
			if len(pending.Status.Conditions) == 0 {
				pending.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
					{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"},
				}
				_, _ = requests.UpdateApproval(ctx, pending.Name, &pending, metav1.UpdateOptions{})
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestRenewal replaces the CA that signs, which is that of the test cluster now.
func TestRenewal(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	go approveAll(t.Context(), cluster)
	previous := newAuthority(t)
	c := client(t, cluster, "", "")
	var log bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	c.SigningCA = writeTestFile(t, "signing.pem", string(cluster.AdminConfig().CAData))
	previous.issue(t, c, pairName)
	previous.issue(t, c, servingPairName)
	connections := 0
	node := func() (kubernetes.Interface, error) {
		connections++
		return cluster.ClientFor(nodeUserPrefix+c.Node, nodesGroup), nil
	}
	serving, err := c.store(servingPairName)
	if err != nil {
		t.Fatal(err)
	}

	// kubelet would request its serving certificate when it starts; this one has that of another CA.
	restarts := 0
	ctx, cancel := context.WithCancel(t.Context())
	err = c.Renew(ctx, node, func(context.Context) error {
		restarts++
		if _, err := os.Stat(serving.CurrentPath()); err == nil {
			return errors.New("the serving certificate is still there")
		}
		previous.issue(t, c, servingPairName)
		time.AfterFunc(time.Second, cancel)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "kubelet-server-current.pem is signed by another CA") ||
		!strings.Contains(err.Error(), "kubelet-csr-approver") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), `"waiting for kubelet to renew its certificates" elapsed=0s timeout=30s`) {
		t.Errorf("the log does not say what was waited for:\n%s", log.String())
	}

	// The client certificate is renewed already.
	c.SigningCA = writeTestFile(t, "both.pem", string(cluster.AdminConfig().CAData)+read(t, previous.path))
	if err := c.Renew(t.Context(), node, func(context.Context) error { restarts++; return nil }); err != nil {
		t.Error(err)
	}
	if restarts != 1 || connections != 1 {
		t.Errorf(
			"kubelet was restarted %d times, the API used %d times, want once: nothing had to be renewed the second "+
				"time",
			restarts, connections,
		)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
