package csrapproval

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// allowedUsages are the only ones that a serving certificate of a kubelet may have; a kubelet with an ECDSA key leaves
// out key encipherment.
var allowedUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageKeyEncipherment, certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth,
}

// Verdict is what shall happen to a certificate request.
type Verdict int

const (
	// Leave keeps the request pending: it may become right when its Node changes, or a person may decide it.
	Leave Verdict = iota
	// Approve lets kube-controller-manager sign the request.
	Approve
	// Deny ends the request: no kubelet would ever send it, so whoever did holds a node's credentials and misuses them.
	Deny
)

// String returns the verdict as logs show it.
func (v Verdict) String() string {
	switch v {
	case Approve:
		return "approve"
	case Deny:
		return "deny"
	default:
		return "leave pending"
	}
}

// Decision is a verdict with its reason, in words for an operator.
type Decision struct {
	Verdict Verdict
	// Reason is a CamelCase word for conditions and Events.
	Reason string
	// Message is one sentence with the values that led to the verdict.
	Message string
	// Retry says that a left request may become right by itself.
	Retry bool
}

// Nodes is how a decision learns about Nodes.
type Nodes interface {
	// Get returns the Node of this name, or nil when there is none.
	Get(name string) (*corev1.Node, error)
	// All returns every Node.
	All() ([]*corev1.Node, error)
}

// Decide judges one request for a kubelet's serving certificate.
//
// A request is denied when a node asks for what no kubelet asks for: a subject other than its own, another usage, URIs or
// e-mail addresses, a signature that does not fit its key. Nothing that happens to the Node can make such a request right.
// Names and addresses that the Node does not (yet) have only leave the request pending, for the cloud-controller-manager
// sets them a moment after the kubelet asks. Requests of users who are not nodes are left to people.
//
// A node may write its own status, so an address that is also the address of another Node that is Ready is not
// approved: one of the two lies. A Node that is not Ready does not count, as a recreated VM may get the address of its
// predecessor.
//
// The error is one of reading Nodes; it says nothing about the request.
func Decide(request *certificatesv1.CertificateSigningRequest, nodes Nodes) (Decision, error) {
	name, isNode := strings.CutPrefix(request.Spec.Username, nodeUserPrefix)
	if !isNode || name == "" || !slices.Contains(request.Spec.Groups, nodesGroup) {
		return leave("RequesterNotANode", fmt.Sprintf("requested by user %q with groups %q, which is not a node (%sNAME in group %s); approve it by hand if it is wanted",
			request.Spec.Username, request.Spec.Groups, nodeUserPrefix, nodesGroup)), nil
	}
	parsed, err := parse(request.Spec.Request)
	if err != nil {
		return deny("MalformedRequest", err.Error()), nil
	}
	if problem := forged(request, parsed); problem != "" {
		return deny("ForgedRequest", problem), nil
	}
	if len(parsed.DNSNames)+len(parsed.IPAddresses) == 0 {
		return leave("NoNames", "asks for no DNS name and no address; a serving certificate needs at least one"), nil
	}
	node, err := nodes.Get(name)
	if err != nil {
		return Decision{}, err
	}
	if node == nil {
		return later("NodeNotFound", fmt.Sprintf("there is no Node %q yet", name)), nil
	}
	if foreign := foreignNames(parsed, node); len(foreign) > 0 {
		return later("NamesNotOfNode", fmt.Sprintf("asks for %s, which Node %s does not have; its names and addresses: %s",
			strings.Join(foreign, ", "), name, describe(node))), nil
	}
	all, err := nodes.All()
	if err != nil {
		return Decision{}, err
	}
	if contested := contestedNames(parsed, node, all); len(contested) > 0 {
		return later("AddressOfAnotherNode", "asks for "+strings.Join(contested, ", ")+"; remove the Node that is wrong"), nil
	}
	return Decision{Verdict: Approve, Reason: "NamesOfNode", Message: fmt.Sprintf("every name and address is one of Node %s: %s", name, strings.Join(wanted(parsed), ", "))}, nil
}

func leave(reason, message string) Decision { return Decision{Reason: reason, Message: message} }
func later(reason, message string) Decision {
	return Decision{Reason: reason, Message: message, Retry: true}
}
func deny(reason, message string) Decision {
	return Decision{Verdict: Deny, Reason: reason, Message: message}
}

func parse(request []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("the request is not a PEM block of type CERTIFICATE REQUEST")
	}
	if len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("the request has data after its PEM block")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the request can't be parsed: %w", err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed with the key that it holds: %w", err)
	}
	return parsed, nil
}

// forged returns what in the request no kubelet would ask for, or "".
func forged(request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest) string {
	if parsed.Subject.CommonName != request.Spec.Username {
		return fmt.Sprintf("common name is %q; the requester %q may only ask for its own", parsed.Subject.CommonName, request.Spec.Username)
	}
	if !slices.Equal(parsed.Subject.Organization, []string{nodesGroup}) {
		return fmt.Sprintf("organizations are %q; the only one allowed is %q", parsed.Subject.Organization, nodesGroup)
	}
	for _, usage := range request.Spec.Usages {
		if !slices.Contains(allowedUsages, usage) {
			return fmt.Sprintf("usage %q is not one of %q", usage, allowedUsages)
		}
	}
	if !slices.Contains(request.Spec.Usages, certificatesv1.UsageServerAuth) {
		return fmt.Sprintf("usages %q lack %q", request.Spec.Usages, certificatesv1.UsageServerAuth)
	}
	if len(parsed.URIs) > 0 {
		return fmt.Sprintf("asks for URI %q; none is allowed", parsed.URIs[0])
	}
	if len(parsed.EmailAddresses) > 0 {
		return fmt.Sprintf("asks for e-mail address %q; none is allowed", parsed.EmailAddresses[0])
	}
	return ""
}

// foreignNames returns what the request asks for and the Node does not have.
func foreignNames(parsed *x509.CertificateRequest, node *corev1.Node) []string {
	var foreign []string
	for _, name := range wanted(parsed) {
		if !strings.EqualFold(name, node.Name) && !hasAddress(node, name) {
			foreign = append(foreign, name)
		}
	}
	return foreign
}

// contestedNames returns a phrase for each wanted name or address that another Ready Node has as well.
func contestedNames(parsed *x509.CertificateRequest, node *corev1.Node, all []*corev1.Node) []string {
	var contested []string
	for _, other := range all {
		if other.Name == node.Name || !ready(other) {
			continue
		}
		for _, name := range wanted(parsed) {
			if strings.EqualFold(name, other.Name) || hasAddress(other, name) {
				contested = append(contested, fmt.Sprintf("%s, which Node %s, that is Ready, has too", name, other.Name))
			}
		}
	}
	return contested
}

// wanted returns every DNS name and address of a request as text.
func wanted(parsed *x509.CertificateRequest) []string {
	names := slices.Clone(parsed.DNSNames)
	for _, address := range parsed.IPAddresses {
		names = append(names, address.String())
	}
	return names
}

// hasAddress says whether a DNS name or an IP address, in any spelling, is in the Node's status.
func hasAddress(node *corev1.Node, name string) bool {
	ip := net.ParseIP(name)
	for _, address := range node.Status.Addresses {
		if ip != nil && ip.Equal(net.ParseIP(address.Address)) {
			return true
		}
		if ip == nil && strings.EqualFold(name, address.Address) {
			return true
		}
	}
	return false
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// describe lists a Node's names and addresses for a message.
func describe(node *corev1.Node) string {
	names := []string{node.Name}
	for _, address := range node.Status.Addresses {
		if !slices.Contains(names, address.Address) {
			names = append(names, address.Address)
		}
	}
	return strings.Join(names, ", ")
}
