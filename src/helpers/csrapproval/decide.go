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

	"kubernetes-release/helpers/nodeobject"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// allowedUsages are the usages that a kubelet requests for its serving certificate. With an ECDSA key it omits key
// encipherment.
var allowedUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageKeyEncipherment, certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth,
}

// Action is what happens to a certificate request.
type Action int

const (
	// LeavePending does nothing: the request may become valid when its Node changes, or a person may decide.
	LeavePending Action = iota
	// Approve lets kube-controller-manager sign the request.
	Approve
	// Deny rejects the request for good. No kubelet sends such a request, so the sender misuses a node's credentials.
	Deny
)

// String returns the action for logs.
func (a Action) String() string {
	switch a {
	case Approve:
		return "approve"
	case Deny:
		return "deny"
	default:
		return "leave pending"
	}
}

// Decision is an action with its reason for an operator.
type Decision struct {
	Action Action
	// Reason is a CamelCase word for conditions and Events.
	Reason string
	// Message is one sentence with the values that led to the decision.
	Message string
	// Retry marks a pending request that may become valid without a person.
	Retry bool
}

// Nodes gives access to the Nodes of the cluster.
type Nodes interface {
	// Get returns the Node with this name, or nil if it does not exist.
	Get(name string) (*corev1.Node, error)
	// All returns every Node.
	All() ([]*corev1.Node, error)
}

// Decide decides one request for the serving certificate of a kubelet.
//
// A request is denied if a node requests something that no kubelet requests: another subject than its own, other usages, URIs
// or e-mail addresses, or a signature that does not match the key. No change of the Node can make such a request valid.
// A request for names and addresses that the Node does not have stays pending, because the cloud-controller-manager sets
// them shortly after the kubelet has sent the request. Requests of users other than nodes are left to people.
//
// A node can write its own status. Therefore an address that another Ready Node has too is not approved: one of the two
// reports a wrong address. Nodes that are not Ready are ignored, since a recreated VM may get the address of the previous one.
//
// An error means that Nodes could not be read.
func Decide(request *certificatesv1.CertificateSigningRequest, nodes Nodes) (Decision, error) {
	name, isNode := strings.CutPrefix(request.Spec.Username, nodeUserPrefix)
	if !isNode || name == "" || !slices.Contains(request.Spec.Groups, nodesGroup) {
		return pendingForPerson("RequesterNotANode", fmt.Sprintf("requested by user %q with groups %q, which is not a node (%sNAME in group %s); approve it by hand if it is legitimate",
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
		return pendingForPerson("NoNames", "contains no DNS name and no address; a serving certificate requires at least one"), nil
	}
	node, err := nodes.Get(name)
	if err != nil {
		return Decision{}, err
	}
	if node == nil {
		return pendingForNode("NodeNotFound", fmt.Sprintf("Node %q does not exist yet", name)), nil
	}
	if foreign := foreignNames(parsed, node); len(foreign) > 0 {
		return pendingForNode("NamesNotOfNode", fmt.Sprintf("contains %s, which Node %s does not have; its names and addresses: %s",
			strings.Join(foreign, ", "), name, describe(node))), nil
	}
	all, err := nodes.All()
	if err != nil {
		return Decision{}, err
	}
	if contested := contestedNames(parsed, node, all); len(contested) > 0 {
		return pendingForNode("AddressOfAnotherNode", "contains "+strings.Join(contested, ", ")+"; delete the Node that reports a wrong address"), nil
	}
	return Decision{Action: Approve, Reason: "NamesOfNode", Message: fmt.Sprintf("all names and addresses belong to Node %s: %s", name, strings.Join(requestedNames(parsed), ", "))}, nil
}

// pendingForPerson leaves a request to a person, pendingForNode until its Node has changed.
func pendingForPerson(reason, message string) Decision {
	return Decision{Reason: reason, Message: message}
}
func pendingForNode(reason, message string) Decision {
	return Decision{Reason: reason, Message: message, Retry: true}
}
func deny(reason, message string) Decision {
	return Decision{Action: Deny, Reason: reason, Message: message}
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
		return nil, fmt.Errorf("the request cannot be parsed: %w", err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed with its own key: %w", err)
	}
	return parsed, nil
}

// forged describes the part of a request that no kubelet would send, or returns "".
func forged(request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest) string {
	if parsed.Subject.CommonName != request.Spec.Username {
		return fmt.Sprintf("common name is %q; the requester %q can only request its own", parsed.Subject.CommonName, request.Spec.Username)
	}
	if !slices.Equal(parsed.Subject.Organization, []string{nodesGroup}) {
		return fmt.Sprintf("organizations are %q; only %q is allowed", parsed.Subject.Organization, nodesGroup)
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
		return fmt.Sprintf("contains the URI %q; none is allowed", parsed.URIs[0])
	}
	if len(parsed.EmailAddresses) > 0 {
		return fmt.Sprintf("contains the e-mail address %q; none is allowed", parsed.EmailAddresses[0])
	}
	return ""
}

// foreignNames returns the names and addresses of a request that the Node does not have.
func foreignNames(parsed *x509.CertificateRequest, node *corev1.Node) []string {
	var foreign []string
	for _, name := range requestedNames(parsed) {
		if !strings.EqualFold(name, node.Name) && !hasAddress(node, name) {
			foreign = append(foreign, name)
		}
	}
	return foreign
}

// contestedNames describes each requested name or address that another Ready Node has too.
func contestedNames(parsed *x509.CertificateRequest, node *corev1.Node, all []*corev1.Node) []string {
	var contested []string
	for _, other := range all {
		if other.Name == node.Name || !ready(other) {
			continue
		}
		for _, name := range requestedNames(parsed) {
			if strings.EqualFold(name, other.Name) || hasAddress(other, name) {
				contested = append(contested, fmt.Sprintf("%s, which the Ready Node %s has too", name, other.Name))
			}
		}
	}
	return contested
}

// requestedNames returns all DNS names and addresses of a request.
func requestedNames(parsed *x509.CertificateRequest) []string {
	names := slices.Clone(parsed.DNSNames)
	for _, address := range parsed.IPAddresses {
		names = append(names, address.String())
	}
	return names
}

// hasAddress reports whether a DNS name, or an IP address in any notation, is in the Node's status.
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

func ready(node *corev1.Node) bool { return nodeobject.CheckReady(node, false) == nil }

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
