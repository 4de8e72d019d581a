package node

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
)

// Machine is a VM as the cloud or BOSH knows it, whatever the VM says of itself.
type Machine struct {
	// ID is the VM's name for people: the cloud's or BOSH's ID of it.
	ID string
	// Node is the name of its Node.
	Node string
	// ProviderID is what the VM's Node must have as its provider ID; empty without a cloud provider.
	ProviderID string
	// Addresses and DNSNames are all that the VM can be reached at.
	Addresses []netip.Addr
	DNSNames  []string
}

// Has reports whether an IP address, in any notation, or a DNS name is the machine's.
func (m Machine) Has(name string) bool {
	if address, err := netip.ParseAddr(name); err == nil {
		for _, own := range m.Addresses {
			if own.Unmap() == address.Unmap() {
				return true
			}
		}
		return false
	}
	if strings.EqualFold(name, m.Node) {
		return true
	}
	for _, own := range m.DNSNames {
		if strings.EqualFold(name, own) {
			return true
		}
	}
	return false
}

// Application is a machine's request to join the cluster.
type Application struct {
	// Request is the certificate request, PEM; the proof is for this request and no other.
	Request []byte
	// Proof is what Prover.Prove returned on the machine.
	Proof json.RawMessage
	// Peer is the address that the connection comes from.
	Peer netip.Addr
}

// Prover creates on a machine the proof of which machine it is.
type Prover interface {
	Prove(ctx context.Context, request []byte) (json.RawMessage, error)
}

// Authority knows the machines of a cluster. An error that is no *Refusal means that it could not find out.
type Authority interface {
	// Admit returns the machine that an application proves to come from.
	Admit(ctx context.Context, application Application) (Machine, error)
	// Find returns the machine of a Node with this name and these labels.
	Find(ctx context.Context, name string, labels map[string]string) (Machine, error)
}

// Instance is an instance of a deployment as BOSH knows it, whatever its VM says of itself.
type Instance struct {
	Deployment string `json:"deployment"`
	ID         string `json:"id"`
	// Addresses are those in all its networks.
	Addresses []netip.Addr `json:"addresses"`
	// Agent is the ID of its VM's agent; empty if the Director does not say.
	Agent string `json:"agent,omitempty"`
}

// Location is what the cloud calls the VM of an instance.
type Location struct {
	// Node is the name that its Node must have; empty: BOSH's.
	Node string
	// ProviderID is what its Node must have as its provider ID; empty if the cloud's controller sets it by the name.
	ProviderID string
}

// Locator knows which VM of a cloud is that of an instance.
type Locator interface {
	// Locate returns the VM of an instance. If the cloud does not clearly have one, the error is a *Refusal.
	Locate(ctx context.Context, instance Instance) (Location, error)
}

// Namer is a Locator of a cloud whose controller finds the VM of a Node by the Node's name, which is the VM's.
type Namer interface {
	Locator
	// Owner returns the ID of the instance that a VM of that name seems to be of, or the ID of its agent, and nothing
	// else; Locate confirms it. If there is no such VM, the error is a *Refusal.
	Owner(ctx context.Context, name string) (Instance, error)
}

// Refusal is the reason why a machine is not what it claims to be.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }
