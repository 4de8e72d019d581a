package approver

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/internal/joinapi"
	"kubernetes-release/node"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// purposes are the certificates that a kubelet requests, by signer, with the usage that makes them what they are. A
// kubelet also requests digital signature and, unless the key is ECDSA, key encipherment.
var purposes = map[string]certificatesv1.KeyUsage{
	certificatesv1.KubeletServingSignerName:             certificatesv1.UsageServerAuth,
	certificatesv1.KubeAPIServerClientKubeletSignerName: certificatesv1.UsageClientAuth,
}

// alternativeNames is the only extension of a kubelet's request (RFC 5280, section 4.2.1.6).
var alternativeNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// Action is what happens to a certificate request.
type Action int

const (
	// LeavePending does nothing: the request may become valid when its Node changes, or a person may decide.
	LeavePending Action = iota
	// Approve lets kubelet-signer sign the request.
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
	Get(ctx context.Context, name string) (*corev1.Node, error)
}

// Machines gives access to what others than the nodes themselves know of their VMs; see node.Authority.
type Machines interface {
	Find(ctx context.Context, name string, labels map[string]string) (node.Machine, error)
}

// Decide decides one request of a kubelet for its serving certificate, or for the renewal of its client certificate.
// The first client certificate comes from package join.
//
// A request is denied if a node requests something that no kubelet requests: another subject than its own, other
// usages, URIs or e-mail addresses, or a signature that does not match the key. Nothing can make such a request valid.
// A request for names and addresses that the node's VM does not have stays pending, because what others know of a VM
// can be late. So does one of a node whose VM is gone: a certificate that was taken from it cannot be renewed. A node
// can write its own status, so that no name and no address is believed because it is there. Requests of users other
// than nodes are left to people.
//
// An error means that Nodes or VMs could not be read.
func Decide(
	ctx context.Context, request *certificatesv1.CertificateSigningRequest, nodes Nodes, machines Machines,
) (Decision, error) {
	name, isNode := strings.CutPrefix(request.Spec.Username, nodeUserPrefix)
	if !isNode || name == "" || !slices.Contains(request.Spec.Groups, nodesGroup) {
		return pendingForPerson(
			"RequesterNotANode",
			fmt.Sprintf(
				"requested by user %q with groups %q, which is not a node (%sNAME in group %s): nobody signs it, "+
					"even if it is approved",
				request.Spec.Username, request.Spec.Groups, nodeUserPrefix, nodesGroup,
			),
		), nil
	}
	parsed, err := joinapi.ParseCertificateRequest(request.Spec.Request)
	if err != nil {
		return deny("MalformedRequest", err.Error()), nil
	}
	if problem := Forged(request, parsed, request.Spec.Username); problem != "" {
		return deny("ForgedRequest", problem), nil
	}
	serving := request.Spec.SignerName == certificatesv1.KubeletServingSignerName
	if serving && len(requestedNames(parsed)) == 0 {
		return pendingForPerson(
			"NoNames", "contains no DNS name and no address; a serving certificate requires at least one",
		), nil
	}
	object, err := nodes.Get(ctx, name)
	if err != nil {
		return Decision{}, err
	}
	if object == nil {
		return pendingForNode("NodeNotFound", fmt.Sprintf("Node %q does not exist yet", name)), nil
	}
	machine, err := machines.Find(ctx, name, object.Labels)
	var refusal *node.Refusal
	if errors.As(err, &refusal) {
		return pendingForNode(
			"MachineNotFound", fmt.Sprintf("the VM of Node %s is not known: %s", name, refusal.Reason),
		), nil
	}
	if err != nil {
		return Decision{}, fmt.Errorf("find the VM of Node %s: %w", name, err)
	}
	if foreign := foreignNames(parsed, machine); len(foreign) > 0 {
		return pendingForNode(
			"NamesNotOfMachine",
			fmt.Sprintf(
				"contains %s, which the VM of Node %s, %s, does not have; it has %s, %v", strings.Join(foreign, ", "),
				name, machine.ID, strings.Join(append([]string{machine.Node}, machine.DNSNames...), ", "),
				machine.Addresses,
			),
		), nil
	}
	if !serving {
		return Decision{
			Action:  Approve,
			Reason:  "RenewalOfNode",
			Message: fmt.Sprintf("Node %s renews its client certificate, and its VM, %s, exists", name, machine.ID),
		}, nil
	}
	return Decision{
		Action: Approve,
		Reason: "NamesOfMachine",
		Message: fmt.Sprintf(
			"all names and addresses belong to the VM of Node %s, %s: %s", name, machine.ID,
			strings.Join(requestedNames(parsed), ", "),
		),
	}, nil
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

// Forged describes the part of a request that no kubelet would send for this user, system:node:NAME, or returns "". The
// approver decides by it, and the signer (package signer) refuses by it what was approved in spite of it.
func Forged(request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest, user string) string {
	if parsed.Subject.CommonName != user {
		return fmt.Sprintf(
			"common name is %q; the requester %q can only request %q", parsed.Subject.CommonName, request.Spec.Username,
			user,
		)
	}
	if !slices.Equal(parsed.Subject.Organization, []string{nodesGroup}) {
		return fmt.Sprintf("organizations are %q; only %q is allowed", parsed.Subject.Organization, nodesGroup)
	}
	if subject := parsed.Subject.Names; len(subject) != 2 {
		return fmt.Sprintf("subject is %q; only a common name and an organization are allowed", parsed.Subject)
	}
	purpose := purposes[request.Spec.SignerName]
	allowed := []certificatesv1.KeyUsage{
		certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageDigitalSignature,
		purpose,
	}
	for _, usage := range request.Spec.Usages {
		if !slices.Contains(allowed, usage) {
			return fmt.Sprintf("usage %q is not one of %q", usage, allowed)
		}
	}
	if !slices.Contains(request.Spec.Usages, purpose) {
		return fmt.Sprintf("usages %q lack %q", request.Spec.Usages, purpose)
	}
	if names := requestedNames(parsed); purpose == certificatesv1.UsageClientAuth && len(names) > 0 {
		return fmt.Sprintf("contains the name %q; a client certificate has none", names[0])
	}
	if len(parsed.URIs) > 0 {
		return fmt.Sprintf("contains the URI %q; none is allowed", parsed.URIs[0])
	}
	if len(parsed.EmailAddresses) > 0 {
		return fmt.Sprintf("contains the e-mail address %q; none is allowed", parsed.EmailAddresses[0])
	}
	for _, extension := range parsed.Extensions {
		if !extension.Id.Equal(alternativeNames) {
			return fmt.Sprintf("contains the extension %s; only alternative names are allowed", extension.Id)
		}
	}
	return ""
}

// foreignNames returns the names and addresses of a request that the VM does not have.
func foreignNames(parsed *x509.CertificateRequest, machine node.Machine) []string {
	return slices.DeleteFunc(requestedNames(parsed), machine.Has)
}

// requestedNames returns all DNS names and addresses of a request.
func requestedNames(parsed *x509.CertificateRequest) []string {
	names := slices.Clone(parsed.DNSNames)
	for _, address := range parsed.IPAddresses {
		names = append(names, address.String())
	}
	return names
}

// describe lists what of a Node can change a decision.
func describe(node *corev1.Node) string {
	names := []string{node.Name, node.Labels["bosh.io/instance-id"]}
	for _, address := range node.Status.Addresses {
		if !slices.Contains(names, address.Address) {
			names = append(names, address.Address)
		}
	}
	return strings.Join(names, ", ")
}
