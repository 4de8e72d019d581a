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
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"kubernetes-release/internal/joinapi"
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
	keyPEM, request, err := joinapi.NewCertificateRequest(c.Node)
	if err != nil {
		t.Fatal(err)
	}
	store, err := c.store(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(a.sign(t, request), keyPEM); err != nil {
		t.Fatal(err)
	}
}

// sign returns the certificate of a request, both PEM.
func (a *authority) sign(t *testing.T, request []byte) []byte {
	t.Helper()
	parsed, err := joinapi.ParseCertificateRequest(request)
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
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// approveAll approves all requests, in place of node-controller.
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
	var log bytes.Buffer
	c := &Client{
		Node:           "worker-5d4a0eb4",
		CertificateDir: filepath.Join(t.TempDir(), "pki"),
		SigningCA:      writeTestFile(t, "signing.pem", string(cluster.AdminConfig().CAData)),
		Timeout:        30 * time.Second,
		Interval:       50 * time.Millisecond,
		Log:            slog.New(slog.NewTextHandler(&log, nil)),
	}
	previous.issue(t, c, pairName)
	previous.issue(t, c, servingPairName)
	connections := 0
	node := func() (kubernetes.Interface, error) {
		connections++
		return cluster.ClientFor(joinapi.UserPrefix+c.Node, joinapi.Group), nil
	}
	serving, err := c.store(servingPairName)
	if err != nil {
		t.Fatal(err)
	}

	// kubelet would request its serving certificate when it starts; this one has that of another CA.
	restarts := 0
	ctx, cancel := context.WithCancel(t.Context())
	err = c.Renew(ctx, node, Kubelet{isRunning, func(context.Context) error {
		restarts++
		if _, err := os.Stat(serving.CurrentPath()); err == nil {
			return errors.New("the serving certificate is still there")
		}
		previous.issue(t, c, servingPairName)
		time.AfterFunc(time.Second, cancel)
		return nil
	}})
	if err == nil || !strings.Contains(err.Error(), "kubelet-server-current.pem is signed by another CA") ||
		!strings.Contains(err.Error(), "node-controller") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), `"waiting for kubelet to renew its certificates" elapsed=0s timeout=30s`) {
		t.Errorf("the log does not say what was waited for:\n%s", log.String())
	}

	// The client certificate is renewed already.
	c.SigningCA = writeTestFile(t, "both.pem", string(cluster.AdminConfig().CAData)+read(t, previous.path))
	kubelet := Kubelet{isRunning, func(context.Context) error { restarts++; return nil }}
	if err := c.Renew(t.Context(), node, kubelet); err != nil {
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

func isRunning() (bool, error) { return true, nil }

// TestStoppedKubeletIsLeftAlone: post-deploy also runs on a VM that an operator has stopped, when another is recreated.
func TestStoppedKubeletIsLeftAlone(t *testing.T) {
	previous, signing := newAuthority(t), newAuthority(t)
	var log bytes.Buffer
	c := &Client{
		Node:           "a",
		CertificateDir: t.TempDir(),
		SigningCA:      signing.path,
		Timeout:        time.Second,
		Interval:       time.Millisecond,
		Log:            slog.New(slog.NewTextHandler(&log, nil)),
	}
	previous.issue(t, c, pairName)
	previous.issue(t, c, servingPairName)
	connect := func() (kubernetes.Interface, error) { return nil, errors.New("the API is used") }
	err := c.Renew(t.Context(), connect, Kubelet{
		Running: func() (bool, error) { return false, nil },
		Restart: func(context.Context) error { return errors.New("kubelet is started") },
	})
	if err != nil || !strings.Contains(log.String(), "not renewing them") {
		t.Errorf("%v, %s", err, log.String())
	}
	for _, name := range []string{pairName, servingPairName} {
		store, err := c.store(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Current(); err != nil {
			t.Error(err)
		}
	}
}

// TestRenewalRequestsAgain: the name of a request is taken, or an API server stops.
func TestRenewalRequestsAgain(t *testing.T) {
	signing := newAuthority(t)
	c := &Client{
		Node:           "a",
		CertificateDir: t.TempDir(),
		SigningCA:      signing.path,
		Timeout:        10 * time.Second,
		Interval:       time.Millisecond,
		Log:            slog.New(slog.DiscardHandler),
	}
	store, err := c.store(pairName)
	if err != nil {
		t.Fatal(err)
	}
	failures := []error{
		apierrors.NewAlreadyExists(certificatesv1.Resource("certificatesigningrequests"), "csr-a-00"),
		io.EOF, syscall.ECONNREFUSED,
	}
	requests := map[string]bool{}
	api := fake.NewClientset()
	api.PrependReactor(
		"create", "certificatesigningrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
			created := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
			requests[string(created.Spec.Request)] = true
			if len(requests) <= len(failures) {
				return true, nil, failures[len(requests)-1]
			}
			created.Name = "csr-a-01"
			created.Status.Certificate = signing.sign(t, created.Spec.Request)
			return false, nil, nil
		},
	)
	err = c.renewClient(t.Context(), store, func() (kubernetes.Interface, error) { return api, nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != len(failures)+1 {
		t.Errorf("%d different requests, want one after each failure", len(requests))
	}
	if _, err := store.Current(); err != nil {
		t.Error(err)
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
