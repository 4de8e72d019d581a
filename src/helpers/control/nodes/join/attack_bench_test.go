package join_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/control/nodes/approver"
	"kubernetes-release/control/nodes/join"
	"kubernetes-release/control/nodes/signer"
	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/poll"
	"kubernetes-release/node"
)

const (
	benchRounds = 5
	benchJoins  = 64
	atOnce      = 16 // as many as the endpoint answers at a time
	slowPeers   = 18 // starved all joins before there were limits
	floodBefore = 300
)

// vmNetwork is that of VMs, each of which joins once: an address has few connections a second.
var vmNetwork = netip.MustParsePrefix("127.9.0.0/16")

// vms admits whoever connects from vmNetwork, as the node of its request, and knows every node.
type vms struct{}

func (vms) Admit(_ context.Context, a node.Application) (node.Machine, error) {
	if !vmNetwork.Contains(a.Peer) {
		return node.Machine{}, &node.Refusal{Reason: "unknown"}
	}
	parsed, err := joinapi.ParseCertificateRequest(a.Request)
	if err != nil {
		return node.Machine{}, err
	}
	name, err := joinapi.NodeOf(parsed)
	return node.Machine{ID: name, Node: name}, err
}

func (vms) Find(_ context.Context, name string, _ map[string]string) (node.Machine, error) {
	return node.Machine{ID: name, Node: name}, nil
}

// attacked is a cluster with the permissions and policies of the release, a join endpoint, the controller that decides
// later requests, and the signer.
type attacked struct {
	*testing.B

	cluster *kubetest.Cluster
	address string // of the join endpoint
	vms     atomic.Int64
}

func startAttacked(b *testing.B) *attacked {
	b.Helper()
	a := &attacked{B: b, cluster: kubetest.Start(b, kubetest.Options{})}
	manifest, err := os.ReadFile("../../../../../jobs/kubernetes-addons/templates/manifests/10-nodes.yml")
	a.must(err)
	addonstest.Apply(b, a.cluster, addons.Options{
		Dirs: []string{addonstest.Dir(b, map[string][]byte{"10-nodes.yml": manifest})},
	})
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	client := a.cluster.ClientFor("system:node-controller")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	a.must(err)
	a.address = listener.Addr().String()
	accepted := join.TLS{
		MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := join.NewServer(client, vms{}, log).Serve(ctx, listener, a.cluster.ServerCertificate("join"), accepted)
		if err != nil {
			b.Error(err)
		}
	})
	authority := a.newCA()
	running.Go(func() {
		if err := signer.Run(ctx, a.cluster.ClientFor("system:kubelet-signer"), authority, log); err != nil {
			b.Error(err)
		}
	})
	running.Go(func() {
		if err := approver.New(client, vms{}, &approver.Metrics{}, log).Run(ctx); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() { cancel(); running.Wait() })
	return a
}

// newCA is that of kubelets.
func (a *attacked) newCA() *signer.Authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubelets"}, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	a.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	a.must(err)
	dir := a.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		a.must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	authority, err := signer.LoadAuthority(
		write("ca.pem", "CERTIFICATE", certificate), write("ca.key", "PRIVATE KEY", private), 24*time.Hour,
	)
	a.must(err)
	return authority
}

func (a *attacked) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// newVM returns a name and an address that no VM has had.
func (a *attacked) newVM() (name, address string) {
	n := a.vms.Add(1)
	return fmt.Sprintf("worker-%08d", n), fmt.Sprintf("127.9.%d.%d", n/250, n%250+1)
}

// certificateRequest is that of a kubelet.
func (a *attacked) certificateRequest(name string) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
	}, key)
	a.must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func (a *attacked) body(name string) []byte {
	body, err := json.Marshal(map[string]any{
		"certificate_request": string(a.certificateRequest(name)), "proof": struct{}{},
	})
	a.must(err)
	return body
}

// from sends requests from an address, each in a connection of its own.
func (a *attacked) from(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the time is what is measured
	}}
}

// post sends a body to the join endpoint and returns the status.
func (a *attacked) post(client *http.Client, body []byte) (int, error) {
	answer, err := client.Post("https://"+a.address+joinapi.Path, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// joins is the number of joins a second.
func (a *attacked) joins() float64 {
	started := time.Now()
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for range benchJoins / atOnce {
				name, address := a.newVM()
				if status, err := a.post(a.from(address), a.body(name)); err != nil || status != http.StatusOK {
					a.Errorf("a VM joins: HTTP %d, %v", status, err)
				}
			}
		})
	}
	group.Wait()
	return benchJoins / time.Since(started).Seconds()
}

// create requests the next client certificate of a node.
func (a *attacked) create(client kubernetes.Interface, name string) (*certificatesv1.CertificateSigningRequest, error) {
	return client.CertificatesV1().CertificateSigningRequests().Create(
		a.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    a.certificateRequest(name),
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
				Usages: []certificatesv1.KeyUsage{
					certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth,
				},
			},
		}, metav1.CreateOptions{},
	)
}

// nodeClient registers a node and returns its client.
func (a *attacked) nodeClient(name string) kubernetes.Interface {
	_, err := a.cluster.Admin().CoreV1().Nodes().Create(
		a.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
	)
	a.must(err)
	return a.cluster.ClientFor("system:node:"+name, "system:nodes")
}

// renewal is the time until a node has its next certificate, in seconds.
func (a *attacked) renewal() float64 {
	name, _ := a.newVM()
	client := a.nodeClient(name)
	started := time.Now()
	requested, err := a.create(client, name)
	a.must(err)
	a.must(poll.Within(a.Context(), time.Minute, 5*time.Millisecond, func(ctx context.Context) error {
		got, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, requested.Name, metav1.GetOptions{})
		if err == nil && len(got.Status.Certificate) == 0 {
			err = errors.New("no certificate yet")
		}
		return err
	}))
	return time.Since(started).Seconds()
}

// slowly opens connections that begin a request and do not end it, and sends requests that prove nothing, with names of
// any length, until the function that it returns is called.
func (a *attacked) slowly() (stop func()) {
	ctx, cancel := context.WithCancel(a.Context())
	var group sync.WaitGroup
	for n := range slowPeers {
		group.Go(func() {
			dialer := tls.Dialer{
				NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.8.%d", n+1))}},
				Config:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // an attacker does not care
			}
			for ctx.Err() == nil {
				connection, err := dialer.DialContext(ctx, "tcp", a.address)
				if err != nil {
					continue
				}
				_, _ = io.WriteString(
					connection, "POST "+joinapi.Path+" HTTP/1.1\r\nHost: join\r\nContent-Length: 3000\r\n\r\n{",
				)
				stopped := context.AfterFunc(ctx, func() { _ = connection.Close() })
				_, _ = io.Copy(io.Discard, connection) // until the server closes it
				stopped()
				_ = connection.Close()
			}
		})
	}
	for n, body := range [][]byte{a.body("worker"), a.body(strings.Repeat("a", 20_000)), []byte("{"), a.body("other")} {
		group.Go(func() {
			client := a.from(fmt.Sprintf("127.0.7.%d", n+1))
			for ctx.Err() == nil {
				_, _ = a.post(client, body)
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// flood has a node request certificates as fast as it can, until the function that it returns is called. It has
// requested some hundred before.
func (a *attacked) flood(client kubernetes.Interface, name string) (stop func()) {
	ctx, cancel := context.WithCancel(a.Context())
	var sent atomic.Int64
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil {
				_, _ = a.create(client, name) // refused if there is one of this name
				sent.Add(1)
			}
		})
	}
	a.must(poll.Within(a.Context(), time.Minute, 10*time.Millisecond, func(context.Context) error {
		if sent.Load() < floodBefore {
			return errors.New("the flood begins")
		}
		return nil
	}))
	return func() { cancel(); group.Wait() }
}

// BenchmarkJoinsUnderAttack compares, in each of several rounds, joins a second and the time to a certificate without
// an attack and with one: of a network that occupies the join endpoint, and of a node that requests certificates.
func BenchmarkJoinsUnderAttack(b *testing.B) {
	a := startAttacked(b)
	attacker := a.nodeClient("stolen")
	a.joins() // connects
	measured := map[string][]float64{}
	for range benchRounds {
		for name, attack := range map[string]func() func(){
			"quiet":   func() func() { return func() {} },
			"network": a.slowly,
			"flood":   func() func() { return a.flood(attacker, "stolen") },
		} {
			stop := attack()
			measured[name+"-joins/s"] = append(measured[name+"-joins/s"], a.joins())
			measured[name+"-s/cert"] = append(measured[name+"-s/cert"], a.renewal())
			stop()
		}
	}
	median := func(name string) float64 {
		values := slices.Sorted(slices.Values(measured[name]))
		return values[len(values)/2]
	}
	b.ReportMetric(0, "ns/op")
	for name := range measured {
		b.ReportMetric(median(name), name)
	}
	for _, attack := range []string{"network", "flood"} {
		b.ReportMetric(median("quiet-joins/s")/median(attack+"-joins/s"), attack+"-joins-ratio")
		b.ReportMetric(median(attack+"-s/cert")/median("quiet-s/cert"), attack+"-cert-ratio")
	}
}
