package join

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
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/retry"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/node"
	nodejoin "kubernetes-release/node/join"
)

const (
	secret    = "a-secret-of-the-deployment"
	workerID  = "5d4a0eb4-df21-4259-a56a-c14be1a533bc"
	otherID   = "7d2b9c4e-0000-4000-8000-000000000002"
	controlID = "3c5e8f1a-0000-4000-8000-000000000001"
)

var (
	worker  = joinapi.Instance{Group: "worker", ID: workerID, Network: "default"}
	other   = joinapi.Instance{Group: "worker_gpu", ID: otherID, Network: "default"}
	control = joinapi.Instance{Group: "control", ID: controlID, Network: "default"}
)

// records are what bosh-dns knows.
var records = map[string]string{
	workerID + ".worker.default.prod.bosh":    "127.0.7.1",
	otherID + ".worker-gpu.default.prod.bosh": "127.0.7.2",
	controlID + ".control.default.prod.bosh":  "127.0.7.3",
}

func lookup(_ context.Context, name string) ([]netip.Addr, error) {
	address, ok := records[name]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(address)}, nil
}

func writeTestFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func deployment(t *testing.T) *Deployment {
	t.Helper()
	return &Deployment{
		Deployment: boshdns.Deployment{Name: "prod", Domain: "bosh"},
		Networks:   []string{"default"},
		SecretFile: writeTestFile(t, "secret", secret+"\n"),
		Lookup:     lookup,
	}
}

func instance(group, id string) joinapi.Instance {
	return joinapi.Instance{Group: group, ID: id, Network: "default"}
}

func claim(t *testing.T, i joinapi.Instance, with string, request string) json.RawMessage {
	t.Helper()
	proof, err := nodejoin.InstanceProver{
		Instance:   i,
		SecretFile: writeTestFile(t, "secret", with),
	}.Prove(t.Context(), []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

func TestDeploymentAdmits(t *testing.T) {
	d := deployment(t)
	machine, err := d.Admit(
		t.Context(),
		node.Application{
			Request: []byte("request"),
			Proof:   claim(t, worker, secret, "request"),
			Peer:    netip.MustParseAddr("127.0.7.1"),
		},
	)
	if err != nil || machine.Node != "worker-5d4a0eb4" || !machine.Has("127.0.7.1") || machine.Has("127.0.7.2") {
		t.Errorf("got %+v, %v", machine, err)
	}
	forged := func(change func(*joinapi.InstanceProof)) json.RawMessage {
		var p joinapi.InstanceProof
		if err := json.Unmarshal(claim(t, worker, secret, "request"), &p); err != nil {
			t.Fatal(err)
		}
		change(&p)
		changed, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	for name, attack := range map[string]struct {
		proof json.RawMessage
		peer  string
		want  string
	}{
		"as another instance": {
			claim(t, other, secret, "request"), "127.0.7.1",
			"comes from 127.0.7.1, and worker_gpu/" + otherID + " has the address [127.0.7.2]",
		},
		"as a control VM": {
			claim(t, control, secret, "request"), "127.0.7.1", "has the address [127.0.7.3]",
		},
		"from another address": {claim(t, worker, secret, "request"), "127.0.7.2", "comes from 127.0.7.2"},
		"a pod, which has no secret": {
			claim(t, worker, "guess", "request"), "127.0.7.1", "not made with the secret",
		},
		"another request's proof": {
			claim(t, worker, secret, "another request"), "127.0.7.1", "not for this certificate request",
		},
		"claim changed": {
			forged(func(p *joinapi.InstanceProof) { p.Group = "control" }), "127.0.7.1", "not made with the secret",
		},
		"no MAC": {
			forged(func(p *joinapi.InstanceProof) { p.MAC = "" }), "127.0.7.1", "not made with the secret",
		},
		"own ID in another group": {
			claim(t, instance("control", workerID), secret, "request"), "127.0.7.1",
			"BOSH knows no instance control/" + workerID,
		},
		"name that leads to another zone": {
			claim(t, instance("worker.evil", workerID), secret, "request"), "127.0.7.1", "malformed",
		},
		"instance that does not exist": {
			claim(t, instance("worker", "5d4a0eb4-0000-4000-8000-000000000009"), secret, "request"),
			"127.0.7.1", "BOSH knows no instance",
		},
		"no proof": {json.RawMessage(`null`), "127.0.7.1", "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Admit(
				t.Context(),
				node.Application{
					Request: []byte("request"),
					Proof:   attack.proof,
					Peer:    netip.MustParseAddr(attack.peer),
				},
			)
			var refusal *node.Refusal
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, attack.want) {
				t.Errorf("got %v, want a refusal with %q", err, attack.want)
			}
		})
	}
}

// inCloud is a cloud that has the VMs of some instances, and counts questions.
type inCloud struct {
	vms   map[string]string
	asked *int
}

func (c inCloud) Locate(_ context.Context, i node.Instance) (node.Location, error) {
	*c.asked++
	if id := c.vms[i.ID]; id != "" && i.Deployment == "prod" && len(i.Addresses) == 1 {
		return node.Location{ProviderID: id + "@" + i.Addresses[0].String()}, nil
	}
	return node.Location{}, &node.Refusal{Reason: "no VM"}
}

// TestDeploymentAsksTheCloud: a VM that joins is the one that the cloud has for its instance, and takes no Node over
// from a previous VM of that name. The cloud is asked only for those that are admitted.
func TestDeploymentAsksTheCloud(t *testing.T) {
	d, asked := deployment(t), 0
	d.Locator = inCloud{map[string]string{workerID: "openstack:///new"}, &asked}
	admit := func(i joinapi.Instance, peer string) (node.Machine, error) {
		return d.Admit(t.Context(), node.Application{
			Request: []byte("request"), Proof: claim(t, i, secret, "request"), Peer: netip.MustParseAddr(peer),
		})
	}
	machine, err := admit(worker, "127.0.7.1")
	if err != nil || machine.ProviderID != "openstack:///new@127.0.7.1" {
		t.Errorf("%+v, %v", machine, err)
	}
	var refusal *node.Refusal
	if _, err := admit(control, "127.0.7.3"); !errors.As(err, &refusal) || refusal.Reason != "no VM" {
		t.Errorf("an instance without a VM: %v", err)
	}
	asked = 0
	if _, err := admit(worker, "127.0.7.2"); err == nil || asked > 0 {
		t.Errorf("from another address: %v; the cloud was asked %d times", err, asked)
	}
	const previous = "belongs to a previous VM, openstack:///old"
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	for name, test := range map[string]struct {
		id        string
		condition corev1.NodeCondition
		want      string
		deleted   bool
	}{
		"no ID":            {"", corev1.NodeCondition{}, "", false},
		"its own":          {"openstack:///new@127.0.7.1", ready, "", false},
		"with a region":    {"openstack://RegionOne/new@127.0.7.1", ready, "", false}, // OS_CCM_REGIONAL was set
		"another's":        {"openstack:///old", ready, previous, false},
		"no condition yet": {"openstack:///old", corev1.NodeCondition{}, previous, false},
		"another's that was just lost": {
			"openstack:///old", notReady(abandonedAfter / 2), previous, false, // the cloud controller deletes it
		},
		"another's that was lost before": {"openstack:///old", notReady(abandonedAfter), "", true},
		"its own that was lost before":   {"openstack:///new@127.0.7.1", notReady(time.Hour), "", false},
	} {
		client := fake.NewClientset(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: machine.Node, UID: "1"}, Spec: corev1.NodeSpec{ProviderID: test.id},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{test.condition}},
		})
		err := NewServer(client, d, slog.New(slog.DiscardHandler)).checkHolder(t.Context(), machine)
		if test.want == "" && err != nil ||
			test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || (len(nodes.Items) == 0) != test.deleted {
			t.Errorf("%s: Nodes are %+v, %v", name, nodes.Items, err)
		}
	}
}

// naming is a cloud in which VMs have the names of their agents, or of what they say.
type naming struct{ asked *int }

func (c naming) Locate(_ context.Context, i node.Instance) (node.Location, error) {
	*c.asked++
	if i.Agent == "" {
		return node.Location{}, &node.Refusal{Reason: "no VM"}
	}
	return node.Location{Node: "vm-" + i.Agent, ProviderID: "gce://p/z/vm-" + i.Agent}, nil
}

func (naming) Owner(context.Context, string) (node.Instance, error) {
	return node.Instance{}, errors.New("not asked when a VM joins")
}

// TestNamesOfTheCloud: where Nodes have the names of their VMs, the name is that of the VM of the instance, and nothing
// that a VM says itself, nor BOSH's.
func TestNamesOfTheCloud(t *testing.T) {
	d, asked := deployment(t), 0
	d.Locator = naming{&asked}
	d.Records = writeTestFile(t, "records.json", fmt.Sprintf(
		`{"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain", "agent_id"],
		"record_infos": [[%q, "worker", "z1", "default", "prod", "127.0.7.1", "bosh", "one"],
		[%q, "control", "z1", "default", "prod", "127.0.7.3", "bosh", null]]}`, workerID, controlID,
	))
	admit := func(i joinapi.Instance, peer string) (node.Machine, error) {
		return d.Admit(t.Context(), node.Application{
			Request: []byte("request"), Proof: claim(t, i, secret, "request"), Peer: netip.MustParseAddr(peer),
		})
	}
	var refusal *node.Refusal
	machine, err := admit(worker, "127.0.7.1")
	if err != nil || machine.Node != "vm-one" || machine.ProviderID != "gce://p/z/vm-one" || !machine.Has("vm-one") {
		t.Errorf("%+v, %v", machine, err)
	}
	if _, err := admit(control, "127.0.7.3"); !errors.As(err, &refusal) || refusal.Reason != "no VM" {
		t.Errorf("an instance without a VM: %v", err)
	}
	asked = 0
	if _, err := admit(worker, "127.0.7.3"); err == nil || asked > 0 {
		t.Errorf("from another address: %v; the cloud was asked %d times", err, asked)
	}
	labels := map[string]string{groupLabel: "worker", idLabel: workerID, networkLabel: "default"}
	if found, err := d.Find(t.Context(), "vm-one", labels); err != nil || !found.Has("127.0.7.1") {
		t.Errorf("%+v, %v", found, err)
	}
	for _, name := range []string{"vm-two", "worker-5d4a0eb4"} { // with the labels of vm-one
		if _, err := d.Find(t.Context(), name, labels); !errors.As(err, &refusal) ||
			!strings.Contains(refusal.Reason, "which are of node vm-one") {
			t.Errorf("%s: %v", name, err)
		}
	}
	labels[groupLabel], labels[idLabel] = "control", controlID
	if _, err := d.Find(t.Context(), "vm-one", labels); !errors.As(err, &refusal) || refusal.Reason != "no VM" {
		t.Errorf("an instance without a VM: %v", err)
	}
}

// notReady is the condition of a Node whose VM was lost some time ago.
func notReady(ago time.Duration) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-ago)),
	}
}

func TestDeploymentFinds(t *testing.T) {
	d := deployment(t)
	labels := map[string]string{groupLabel: "worker_gpu", idLabel: otherID}
	if machine, err := d.Find(t.Context(), "worker-gpu-7d2b9c4e", labels); err != nil || !machine.Has("127.0.7.2") ||
		!machine.Has("worker-gpu-7d2b9c4e") {
		t.Errorf("got %+v, %v", machine, err)
	}
	for name, labels := range map[string]map[string]string{
		"labels of another node": {groupLabel: "control", idLabel: controlID},
		"no labels":              nil,
		"network without it":     {groupLabel: "worker_gpu", idLabel: otherID, networkLabel: "elsewhere"},
	} {
		var refusal *node.Refusal
		if _, err := d.Find(t.Context(), "worker-gpu-7d2b9c4e", labels); !errors.As(err, &refusal) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	d.Lookup = func(context.Context, string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "timeout", IsTimeout: true}
	}
	var refusal *node.Refusal
	if _, err := d.Find(t.Context(), "worker-gpu-7d2b9c4e", labels); err == nil || errors.As(err, &refusal) {
		t.Errorf("got %v, want an error that is no refusal", err)
	}
}

// TestSeveralNetworks is a VM that reaches control VMs by another network than its default one, which BOSH's records
// have last. The ID of its agent, which is its host name, is a name of the VM too.
func TestSeveralNetworks(t *testing.T) {
	d := deployment(t)
	d.Records = writeTestFile(t, "records.json", fmt.Sprintf(
		`{"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain", "agent_id"],
		"record_infos": [
		[%[1]q, "worker", "z1", "management", "prod", "127.0.8.1", "bosh", "agent-of-worker"],
		[%[1]q, "worker", "z1", "default", "prod", "127.0.7.1", "bosh", "agent-of-worker"],
		[%[2]q, "control", "z1", "management", "prod", "127.0.8.3", "bosh", "agent-of-control"]]}`,
		workerID, controlID,
	))
	for peer, admitted := range map[string]bool{"127.0.7.1": true, "127.0.8.1": true, "127.0.8.3": false} {
		machine, err := d.Admit(t.Context(), node.Application{
			Request: []byte("request"), Proof: claim(t, worker, secret, "request"), Peer: netip.MustParseAddr(peer),
		})
		if (err == nil) != admitted || len(machine.Addresses) != 2 {
			t.Errorf("from %s: %+v, %v", peer, machine, err)
		}
	}
	d.Lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
		if !strings.Contains(name, ".management.") {
			return nil, fmt.Errorf("asked for %s", name)
		}
		return []netip.Addr{netip.MustParseAddr("127.0.8.1")}, nil
	}
	machine, err := d.Find(t.Context(), "worker-5d4a0eb4", map[string]string{
		groupLabel: "worker", idLabel: workerID, networkLabel: "management",
	})
	if err != nil || !machine.Has("127.0.7.1") {
		t.Errorf("the address that kubelet reports is not the VM's: %+v, %v", machine, err)
	}
	if !machine.Has("agent-of-worker") || machine.Has("agent-of-control") {
		t.Errorf("the VM has names %q, want that of its agent", machine.DNSNames)
	}
}

// lines is a log that can be read while it is written.
type lines struct {
	sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

// take returns what was logged since the last call.
func (l *lines) take() string {
	l.Lock()
	defer l.Unlock()
	text := l.String()
	l.Reset()
	return text
}

// serve runs the endpoint with the permissions of its job on 127.0.7.9, and returns its URL and the file with its CA.
func serve(
	t *testing.T, client kubernetes.Interface, authority node.Authority,
) (url, ca string, log *lines, server *Server) {
	t.Helper()
	pair, ca := servingCertificate(t)
	listener, err := net.Listen("tcp", "127.0.7.9:0")
	if err != nil {
		t.Fatal(err)
	}
	log = &lines{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server = NewServer(client, authority, slog.New(slog.NewTextHandler(log, nil)))
	go func() { ended <- server.Serve(ctx, listener, pair, suites) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "https://" + listener.Addr().String(), ca, log, server
}

// suites are the defaults of the job kube-apiserver.
var suites = TLS{
	MinVersion:   "VersionTLS12",
	CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
}

func servingCertificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "join"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.ParseIP("127.0.7.9")},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca := writeTestFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca
}

// from sends requests from an address.
func from(address, ca string) *http.Client {
	roots := x509.NewCertPool()
	content, _ := os.ReadFile(ca)
	roots.AppendCertsFromPEM(content)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       dialer.DialContext,
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			DisableKeepAlives: true,
		},
	}
}

func post(t *testing.T, client *http.Client, url string, body []byte) (int, string) {
	t.Helper()
	answer, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(content)
}

const user = "system:node-controller"

// approver has those permissions of the job that joining needs.
func approver(t *testing.T, cluster *kubetest.Cluster) kubernetes.Interface {
	t.Helper()
	admin := cluster.Admin()
	name := metav1.ObjectMeta{Name: "join"}
	_, err := admin.RbacV1().
		ClusterRoles().
		Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{"certificates.k8s.io"},
				Resources: []string{"certificatesigningrequests"},
				Verbs:     []string{"create", "get"},
			},
			{
				APIGroups: []string{"certificates.k8s.io"},
				Resources: []string{"certificatesigningrequests/approval"},
				Verbs:     []string{"update"},
			},
			{
				APIGroups:     []string{"certificates.k8s.io"},
				Resources:     []string{"signers"},
				ResourceNames: []string{"kubernetes.io/kube-apiserver-client-kubelet"},
				Verbs:         []string{"approve"},
			},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
			{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"list"}},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "join"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.ClientFor(user)
}

// TestAttacks is root on a worker, who has the secret, and a pod on it, against a real API server.
func TestAttacks(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	d := deployment(t)
	url, ca, log, _ := serve(t, approver(t, cluster), d)
	request := func(i joinapi.Instance, with, name string) []byte {
		t.Helper()
		_, certificateRequest, err := joinapi.NewCertificateRequest(name)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(
			map[string]any{
				"certificate_request": string(certificateRequest),
				"proof":               claim(t, i, with, string(certificateRequest)),
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	var replay map[string]any
	if err := json.Unmarshal(request(other, secret, "worker-gpu-7d2b9c4e"), &replay); err != nil {
		t.Fatal(err)
	}
	_, own, err := joinapi.NewCertificateRequest("worker-gpu-7d2b9c4e")
	if err != nil {
		t.Fatal(err)
	}
	replay["certificate_request"] = string(own)
	replayed, err := json.Marshal(replay)
	if err != nil {
		t.Fatal(err)
	}
	for name, attack := range map[string]struct {
		body   []byte
		path   string
		status int
		want   string
		audit  []string
	}{
		"another node's name": {
			request(worker, secret, "worker-gpu-7d2b9c4e"), joinapi.Path, 403,
			"can only join as node worker-5d4a0eb4, and not as worker-gpu-7d2b9c4e",
			[]string{"user=system:node:worker-gpu-7d2b9c4e", "machine=worker/" + workerID},
		},
		"a control node's name": {
			request(worker, secret, "control-3c5e8f1a"), joinapi.Path, 403, "and not as control-3c5e8f1a",
			[]string{"user=system:node:control-3c5e8f1a"},
		},
		"as another VM": {
			request(other, secret, "worker-gpu-7d2b9c4e"), joinapi.Path, 403, "comes from 127.0.7.1",
			[]string{"machine=worker_gpu/" + otherID},
		},
		"another VM's proof": {
			replayed, joinapi.Path, 403, "not for this certificate request",
			[]string{"user=system:node:worker-gpu-7d2b9c4e"},
		},
		"a pod without the secret": {
			request(worker, "guess", "worker-5d4a0eb4"), joinapi.Path, 403, "not made with the secret", nil,
		},
		"an administrator's subject": {
			request(worker, secret, "worker-5d4a0eb4,O=system:masters"), joinapi.Path, 403, "can only join as", nil,
		},
		"extra query parameters": {
			request(worker, secret, "worker-5d4a0eb4"), joinapi.Path + "?Action=GetCallerIdentity", 404,
			"only /v1/join exists", nil,
		},
		"another path": {request(worker, secret, "worker-5d4a0eb4"), "/v1/join/../admin", 404, "", nil},
		"oversized body": {
			append(request(worker, secret, "worker-5d4a0eb4"), bytes.Repeat([]byte(" "), joinapi.MaxRequest)...),
			joinapi.Path, 413,
			"can have 32768 bytes", nil,
		},
		"unknown field": {[]byte(`{"node": "control-3c5e8f1a"}`), joinapi.Path, 400, "unknown field", nil},
		"no JSON":       {[]byte(`x`), joinapi.Path, 400, "cannot be read", nil},
		"no certificate request": {
			[]byte(`{"certificate_request": "", "proof": {}}`), joinapi.Path, 400, "not a PEM block", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			log.take()
			status, body := post(t, from("127.0.7.1", ca), url+attack.path, attack.body)
			audit := log.take()
			if status != attack.status || !strings.Contains(body, attack.want) ||
				strings.Contains(body, "CERTIFICATE-----") {
				t.Errorf("got HTTP %d: %s, want %d with %q", status, body, attack.status, attack.want)
			}
			for _, part := range append(attack.audit, "join refused", "peer=127.0.7.1:", "reason=") {
				if !strings.Contains(audit, part) {
					t.Errorf("the audit log lacks %q: %s", part, audit)
				}
			}
			if strings.Contains(audit, secret) {
				t.Error("the audit log contains the secret")
			}
		})
	}
	list, err := cluster.Admin().CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%d certificate requests were created, %v", len(list.Items), err)
	}
}

// client is a kubelet's first start on 127.0.7.9, where the test's endpoint is too.
func client(t *testing.T, cluster *kubetest.Cluster, url, ca string) *nodejoin.Client {
	t.Helper()
	dir := t.TempDir()
	return &nodejoin.Client{
		URL:            url,
		CA:             ca,
		APIServer:      cluster.AdminConfig().Host,
		Node:           "worker-5d4a0eb4",
		SecretFile:     writeTestFile(t, "secret", secret),
		CertificateDir: filepath.Join(dir, "pki"),
		Kubeconfig:     filepath.Join(dir, "kubeconfig"),
		Timeout:        30 * time.Second,
		Interval:       50 * time.Millisecond,
		Log:            slog.New(slog.DiscardHandler),
		Now:            time.Now,
	}
}

func TestJoinAndWhatTheNodeCanDo(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	admin := cluster.Admin()
	d := deployment(t)
	d.Lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.7.9")}, nil
	}
	url, ca, log, server := serve(t, approver(t, cluster), d)
	c := client(t, cluster, url, ca)
	c.Prover = nodejoin.InstanceProver{Instance: worker, SecretFile: c.SecretFile}

	// Another VM has the name, and is alive.
	register(t, admin, c.Node, "10.0.0.9")
	c.Timeout, c.Interval = 3*time.Second, 500*time.Millisecond // the endpoint has limits for one address
	if err := c.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "409") ||
		!strings.Contains(err.Error(), "10.0.0.9, which is not of this VM") {
		t.Errorf("while another VM has the name: %v", err)
	}
	if err := admin.CoreV1().Nodes().Delete(t.Context(), c.Node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(c.SecretFile); err != nil || len(content) == 0 {
		t.Errorf("the secret was removed before the VM joined: %v", err)
	}

	// The previous VM was lost with a pod that has a volume.
	forget := leave(t, admin, c.Node)
	if err := c.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "409") ||
		!strings.Contains(err.Error(), "default/database-0") {
		t.Errorf("while the previous VM's pod is there: %v", err)
	}
	forget()

	c.Timeout = 30 * time.Second
	if err := c.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if audit := log.take(); !strings.Contains(audit, `msg="join admitted"`) ||
		!strings.Contains(audit, "node=worker-5d4a0eb4") {
		t.Errorf("audit log: %s", audit)
	}
	// A request that is served when the client's time is over counts as failed.
	if got := counted(server); !strings.Contains(got, `{result="admitted"} 1`) ||
		strings.Contains(got, `{result="conflict"} 0`) {
		t.Errorf("metrics after refusals and a join:\n%s", got)
	}
	if content, err := os.ReadFile(c.SecretFile); err != nil || len(content) != 0 {
		t.Errorf("the secret is still there: %q, %v", content, err)
	}
	for _, path := range []string{c.Kubeconfig, filepath.Join(c.CertificateDir, "kubelet-client-current.pem")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}

	// The API's CA is another one than the endpoint's here.
	c.CA = writeTestFile(t, "api-ca.pem", string(cluster.AdminConfig().CAData))
	if err := c.Join(t.Context()); err != nil {
		t.Fatalf("with a certificate, and without the secret: %v", err)
	}
	config, err := kubeconfig.Load(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubelet.CoreV1().
		Nodes().
		Create(
			t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Node}}, metav1.CreateOptions{},
		); err != nil {
		t.Errorf("register: %v", err)
	}
	if _, err := kubelet.CoreV1().
		Nodes().
		Create(
			t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-3c5e8f1a"}},
			metav1.CreateOptions{},
		); !apierrors.IsForbidden(
		err,
	) {
		t.Errorf("register as another node: %v", err)
	}
	if _, err := kubelet.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list all secrets: %v", err)
	}
	// flannel's write with the node's certificate.
	register(t, admin, "worker-gpu-7d2b9c4e", "10.0.0.8")
	patch := []byte(`{"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.7"}}}`)
	if _, err := kubelet.CoreV1().
		Nodes().
		Patch(t.Context(), c.Node, "application/merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("annotate the own Node: %v", err)
	}
	if _, err := kubelet.CoreV1().
		Nodes().
		Patch(
			t.Context(), "worker-gpu-7d2b9c4e", "application/merge-patch+json", patch, metav1.PatchOptions{},
			"status",
		); !apierrors.IsForbidden(
		err,
	) {
		t.Errorf("annotate another Node: %v", err)
	}

	// A certificate of a CA that the API no longer trusts; the deploy that removes the CA renders the secret again.
	c.CA = ca
	c.TrustedCAs = writeTestFile(t, "trusted.pem", string(cluster.AdminConfig().CAData))
	if err := c.Join(t.Context()); err != nil {
		t.Errorf("with a certificate of a trusted CA: %v", err)
	}
	if err := os.WriteFile(c.SecretFile, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	c.TrustedCAs, c.Timeout = ca, 10*time.Second
	log.take()
	if err := c.Join(t.Context()); err != nil || !strings.Contains(log.take(), `msg="join admitted"`) {
		t.Errorf("with a certificate of a CA that is gone: %v", err)
	}
	c.TrustedCAs = ""

	// A certificate that is of no more use, and no secret.
	c.Timeout = time.Second
	c.Now = func() time.Time { return time.Now().Add(10 * 365 * 24 * time.Hour) }
	if err := c.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "bosh recreate") {
		t.Errorf("expired: %v", err)
	}
	c.Now, c.Node = time.Now, "worker-gpu-7d2b9c4e"
	if err := c.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "bosh recreate") {
		t.Errorf("another node's certificate: %v", err)
	}
}

// leave creates a pod on a node, and a VolumeAttachment to it. The function that it returns lets the pod fail, as the
// garbage collector does with a pod that has a finalizer.
func leave(t *testing.T, admin kubernetes.Interface, name string) func() {
	t.Helper()
	volume := "pv"
	_, err := admin.StorageV1().VolumeAttachments().Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-0"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "ebs.csi.aws.com",
			NodeName: name,
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// kube-controller-manager creates no service accounts here.
	if _, err := admin.CoreV1().
		ServiceAccounts("default").
		Create(
			t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			metav1.CreateOptions{},
		); err != nil {
		t.Fatal(err)
	}
	mount := false
	pod, err := admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "database-0"},
		Spec: corev1.PodSpec{
			NodeName:                     name,
			AutomountServiceAccountToken: &mount,
			Containers:                   []corev1.Container{{Name: "main", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			current, err := admin.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			current.Status.Phase = corev1.PodFailed
			_, err = admin.CoreV1().Pods("default").UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func register(t *testing.T, admin kubernetes.Interface, name, address string) {
	t.Helper()
	created, err := admin.CoreV1().
		Nodes().
		Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // kube-controller-manager changes it too
		current, err := admin.CoreV1().Nodes().Get(t.Context(), created.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		current.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = admin.CoreV1().Nodes().UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	if _, err := Load(
		writeTestFile(t, "join.json", `{"listen": "6444"}`),
	); err == nil || !strings.Contains(err.Error(), `listen is "6444"`) ||
		!strings.Contains(err.Error(), "cluster is empty") {
		t.Error(err)
	}
}
