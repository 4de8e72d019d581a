package approver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/node"
)

// ask describes a certificate request. request sets the empty fields to the values of a real kubelet.
type ask struct {
	user      string
	groups    []string
	name      string
	orgs      []string
	dns       []string
	addresses []string
	uris      []string
	emails    []string
	usages    []certificatesv1.KeyUsage
	raw       []byte
	signer    string
}

func kubeletOf(node string, addresses ...string) ask {
	return ask{user: "system:node:" + node, name: "system:node:" + node, dns: []string{node}, addresses: addresses}
}

// renewalOf is a kubelet's request for its next client certificate.
func renewalOf(node string) ask {
	return ask{
		user:   "system:node:" + node,
		name:   "system:node:" + node,
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}
}

func (a ask) request(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	if a.groups == nil {
		a.groups = []string{"system:nodes", "system:authenticated"}
	}
	if a.orgs == nil {
		a.orgs = []string{"system:nodes"}
	}
	if a.signer == "" {
		a.signer = certificatesv1.KubeletServingSignerName
	}
	if a.usages == nil {
		a.usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	}
	if a.raw == nil {
		a.raw = a.pem(t)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: a.raw, SignerName: a.signer, Usages: a.usages, Username: a.user, Groups: a.groups,
		},
	}
}

func (a ask) pem(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{
		Subject:        pkix.Name{CommonName: a.name, Organization: a.orgs},
		DNSNames:       a.dns,
		EmailAddresses: a.emails,
	}
	for _, address := range a.addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	for _, uri := range a.uris {
		parsed, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

type nodeList []*corev1.Node

func (n nodeList) Get(_ context.Context, name string) (*corev1.Node, error) {
	for _, node := range n {
		if node.Name == name {
			return node, nil
		}
	}
	return nil, nil
}

// machineList is what the cloud or BOSH knows, by the name of the node.
type machineList map[string]node.Machine

func (m machineList) Find(_ context.Context, name string, _ map[string]string) (node.Machine, error) {
	machine, ok := m[name]
	if !ok {
		return machine, &node.Refusal{Reason: "no such instance"}
	}
	return machine, nil
}

func vm(name string, addresses ...string) node.Machine {
	machine := node.Machine{ID: "i-" + name, Node: name}
	for _, address := range addresses {
		machine.Addresses = append(machine.Addresses, netip.MustParseAddr(address))
	}
	return machine
}

func registered(name string, isReady bool, addresses ...corev1.NodeAddress) *corev1.Node {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Addresses:  addresses,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		},
	}
}

func internalIP(address string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
}

// kubeletWith is the request of a kubelet for its server with a change.
func kubeletWith(change func(*ask)) ask {
	a := kubeletOf("node-a", "10.0.0.1")
	change(&a)
	return a
}

// renewalWith is the renewal of a node's certificate with a change.
func renewalWith(change func(*ask)) ask {
	a := renewalOf("node-a")
	change(&a)
	return a
}

// decisions are those on requests of the nodes in TestDecide.
var decisions = map[string]struct {
	ask     ask
	action  Action
	reason  string
	message string
	retry   bool
}{
	"own name and address": {ask: kubeletOf("node-a", "10.0.0.1"), action: Approve, reason: "NamesOfMachine"},
	"all own names and addresses": {ask: kubeletWith(func(a *ask) {
		a.dns = []string{"node-a", "IP-10-0-0-1.ec2.internal"}
		a.addresses = []string{"10.0.0.1", "203.0.113.1", "fd00:0::1"}
	}), action: Approve, reason: "NamesOfMachine"},
	"address only": {ask: kubeletWith(func(a *ask) { a.dns = nil }), action: Approve, reason: "NamesOfMachine"},
	"key encipherment too": {ask: kubeletWith(func(a *ask) {
		a.usages = []certificatesv1.KeyUsage{
			certificatesv1.UsageKeyEncipherment,
			certificatesv1.UsageDigitalSignature,
			certificatesv1.UsageServerAuth,
		}
	}), action: Approve, reason: "NamesOfMachine"},

	"another node's address": {
		ask:     kubeletOf("node-a", "10.0.0.2"),
		reason:  "NamesNotOfMachine",
		message: "10.0.0.2",
		retry:   true,
	},
	"another node's name": {
		ask:     kubeletWith(func(a *ask) { a.dns = []string{"node-a", "node-b"} }),
		reason:  "NamesNotOfMachine",
		message: "node-b",
		retry:   true,
	},
	"API server's name": {
		ask:     kubeletWith(func(a *ask) { a.dns = []string{"kubernetes.default.svc"} }),
		reason:  "NamesNotOfMachine",
		message: "kubernetes.default.svc",
		retry:   true,
	},
	"another VM's address, forged in the own status": {
		ask:     kubeletOf("node-liar", "10.0.0.2"),
		reason:  "NamesNotOfMachine",
		message: "10.0.0.2, which the VM of Node node-liar, i-node-liar, does not have",
		retry:   true,
	},
	"the API server's name, forged in the own status": {ask: kubeletWith(func(a *ask) {
		a.user, a.name = "system:node:node-liar", "system:node:node-liar"
		a.dns = []string{"kubernetes.default.svc"}
	}), reason: "NamesNotOfMachine", retry: true},
	"VM gone": {
		ask:     kubeletOf("node-gone", "10.0.0.4"),
		reason:  "MachineNotFound",
		message: "no such instance",
		retry:   true,
	},
	"no such node": {
		ask:     kubeletOf("node-z", "10.0.0.1"),
		reason:  "NodeNotFound",
		message: `Node "node-z" does not exist`,
		retry:   true,
	},
	"no names": {
		ask:    kubeletWith(func(a *ask) { a.dns, a.addresses = nil, nil }),
		reason: "NoNames",
	},
	"an administrator's request": {
		ask:     kubeletWith(func(a *ask) { a.user = "kubernetes-admin" }),
		reason:  "RequesterNotANode",
		message: "kubernetes-admin",
	},
	"a node's user without group": {
		ask:    kubeletWith(func(a *ask) { a.groups = []string{"system:authenticated"} }),
		reason: "RequesterNotANode",
	},
	"a node's user without name": {
		ask:    kubeletWith(func(a *ask) { a.user = "system:node:" }),
		reason: "RequesterNotANode",
	},
	"the bootstrap token's identity": {
		ask:    kubeletWith(func(a *ask) { a.user = "kubelet-bootstrap"; a.groups = []string{"system:bootstrappers"} }),
		reason: "RequesterNotANode",
	},

	"renewal":                      {ask: renewalOf("node-a"), action: Approve, reason: "RenewalOfNode"},
	"renewal, VM gone":             {ask: renewalOf("node-gone"), reason: "MachineNotFound", retry: true},
	"renewal before it registered": {ask: renewalOf("node-new"), reason: "NodeNotFound", retry: true},
	"renewal for another node": {
		ask:     renewalWith(func(a *ask) { a.name = "system:node:node-b" }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: `common name is "system:node:node-b"`,
	},
	"renewal by another user": {
		ask:    renewalWith(func(a *ask) { a.user = "kubernetes-admin" }),
		reason: "RequesterNotANode",
	},
	"renewal for a server": {
		ask:     renewalWith(func(a *ask) { a.usages = append(a.usages, certificatesv1.UsageServerAuth) }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "server auth",
	},
	"renewal with a name": {
		ask:     renewalWith(func(a *ask) { a.dns = []string{"node-a"} }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "a client certificate has none",
	},
	"renewal with more groups": {
		ask:     renewalWith(func(a *ask) { a.orgs = []string{"system:nodes", "system:masters"} }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "system:masters",
	},
	"another node's subject": {
		ask:     kubeletWith(func(a *ask) { a.name = "system:node:node-b" }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: `common name is "system:node:node-b"`,
	},
	"administrators' group": {
		ask:     kubeletWith(func(a *ask) { a.orgs = []string{"system:nodes", "system:masters"} }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "system:masters",
	},
	"no group": {
		ask:     kubeletWith(func(a *ask) { a.orgs = []string{} }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "organizations",
	},
	"client usage": {ask: kubeletWith(func(a *ask) {
		a.usages = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth}
	}), action: Deny, reason: "ForgedRequest", message: `usage "client auth"`},
	"no server usage": {
		ask: kubeletWith(func(a *ask) {
			a.usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
		}),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "server auth",
	},
	"URI": {
		ask:     kubeletWith(func(a *ask) { a.uris = []string{"spiffe://cluster/admin"} }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "spiffe://cluster/admin",
	},
	"e-mail": {
		ask:     kubeletWith(func(a *ask) { a.emails = []string{"root@example.com"} }),
		action:  Deny,
		reason:  "ForgedRequest",
		message: "root@example.com",
	},
	"not PEM": {
		ask:    kubeletWith(func(a *ask) { a.raw = []byte("hello") }),
		action: Deny,
		reason: "MalformedRequest",
	},
	"not a request": {
		ask: kubeletWith(func(a *ask) {
			a.raw = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("x")})
		}),
		action: Deny,
		reason: "MalformedRequest",
	},
}

func TestDecide(t *testing.T) {
	nodes := nodeList{
		registered("node-a", false, internalIP("10.0.0.1")),
		registered("node-b", true, internalIP("10.0.0.2")),
		// A node can write whatever it wants to its own status.
		registered(
			"node-liar", true, internalIP("10.0.0.3"),
			corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "10.0.0.2"},
			corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "kubernetes.default.svc"},
		),
		registered("node-gone", true, internalIP("10.0.0.4")),
	}
	first := vm("node-a", "10.0.0.1", "fd00::1", "203.0.113.1")
	first.DNSNames = []string{"ip-10-0-0-1.ec2.internal"}
	machines := machineList{
		"node-a":    first,
		"node-b":    vm("node-b", "10.0.0.2"),
		"node-liar": vm("node-liar", "10.0.0.3"),
		"node-new":  vm("node-new", "10.0.0.7"),
	}
	for name, test := range decisions {
		t.Run(name, func(t *testing.T) {
			got, err := Decide(t.Context(), test.ask.request(t), nodes, machines)
			if err != nil {
				t.Fatal(err)
			}
			if got.Action != test.action || got.Reason != test.reason || got.Retry != test.retry {
				t.Errorf(
					"got %v (%s, retry %v): %s; want %v (%s, retry %v)", got.Action, got.Reason, got.Retry, got.Message,
					test.action, test.reason, test.retry,
				)
			}
			if !strings.Contains(got.Message, test.message) {
				t.Errorf("message %q does not name %q", got.Message, test.message)
			}
		})
	}
}

func TestDecideDeniesRequestWithInvalidSignature(t *testing.T) {
	request := kubeletOf("node-a", "10.0.0.1").request(t)
	block, _ := pem.Decode(request.Spec.Request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	request.Spec.Request = pem.EncodeToMemory(block)
	got, err := Decide(t.Context(), request, nodeList{}, machineList{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Action != Deny || got.Reason != "MalformedRequest" {
		t.Errorf("got %+v, want it denied as malformed", got)
	}
}

type brokenNodes struct{}

func (brokenNodes) Get(context.Context, string) (*corev1.Node, error) {
	return nil, errors.New("connection refused")
}

type brokenCloud struct{}

func (brokenCloud) Find(context.Context, string, map[string]string) (node.Machine, error) {
	return node.Machine{}, errors.New("throttled")
}

func TestDecideFailsIfNodesOrVMsCannotBeRead(t *testing.T) {
	request := kubeletOf("node-a", "10.0.0.1").request(t)
	if _, err := Decide(t.Context(), request, brokenNodes{}, machineList{}); err == nil {
		t.Error("want an error, so that the request is checked again")
	}
	if _, err := Decide(t.Context(), request, nodeList{registered("node-a", true)}, brokenCloud{}); err == nil ||
		!strings.Contains(err.Error(), "throttled") {
		t.Errorf("got %v, want an error, so that the request is checked again", err)
	}
}
