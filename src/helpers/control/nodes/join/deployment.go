package join

import (
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
)

// Labels of the Nodes of instances; see package labeler.
const (
	groupLabel   = "bosh.io/instance-group"
	idLabel      = "bosh.io/instance-id"
	networkLabel = "bosh.io/network"
)

// Deployment implements node.Authority for the instances of a deployment.
type Deployment struct {
	// Deployment has the parts of bosh-dns' names of instances, ID.GROUP.NETWORK.NAME.DOMAIN. Records is empty if
	// addresses of the instances in other networks do not matter.
	boshdns.Deployment
	// Networks are those of this VM, for Nodes without a label.
	Networks []string `json:"networks"`
	// SecretFile is the path of the file with the deployment's secret.
	SecretFile string `json:"secret_file"`
	// Lookup resolves a name; defaults to the VM's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error) `json:"-"`
	// Locator knows the VMs of instances in the cloud; nil without one that can be asked.
	Locator node.Locator `json:"-"`
}

// Admit implements node.Authority.
func (d *Deployment) Admit(ctx context.Context, application node.Application) (node.Machine, error) {
	var proof joinapi.InstanceProof
	if err := strictjson.Unmarshal(application.Proof, &proof); err != nil {
		return node.Machine{}, &node.Refusal{Reason: "the proof cannot be read: " + err.Error()}
	}
	secret, err := joinapi.ReadSecret(d.SecretFile)
	if err != nil {
		return node.Machine{}, err
	}
	mac, err := hex.DecodeString(proof.MAC)
	if err != nil || !hmac.Equal(mac, proof.Sign(secret, application.Request)) {
		return node.Machine{}, &node.Refusal{
			Reason: "the proof is not made with the secret of this deployment, or not for this certificate request",
		}
	}
	machine, agent, err := d.machine(ctx, proof.Instance)
	if err != nil {
		return machine, err
	}
	if !machine.Has(application.Peer.String()) {
		return machine, &node.Refusal{
			Reason: fmt.Sprintf(
				"the request comes from %s, and %s has the address %v in BOSH", application.Peer, machine.ID,
				machine.Addresses,
			),
		}
	}
	if d.Locator != nil {
		err = d.locate(ctx, &machine, proof.ID, agent)
	}
	return machine, err
}

// locate adds to a machine what the cloud calls it.
func (d *Deployment) locate(ctx context.Context, machine *node.Machine, instance, agent string) error {
	location, err := d.Locator.Locate(ctx, node.Instance{
		Deployment: d.Name, ID: instance, Addresses: machine.Addresses, Agent: agent,
	})
	if err != nil {
		return err
	}
	machine.ProviderID, machine.Node = location.ProviderID, cmp.Or(location.Node, machine.Node)
	return nil
}

// Find implements node.Authority. The labels must fit the Node's name: that of a Node that has registered with an
// earlier release may be the node's own. Where Nodes have the names of their VMs, the cloud says whether they do.
func (d *Deployment) Find(ctx context.Context, name string, labels map[string]string) (node.Machine, error) {
	instance := joinapi.Instance{Group: labels[groupLabel], ID: labels[idLabel], Network: labels[networkLabel]}
	_, named := d.Locator.(node.Namer)
	if got := node.BOSHName(instance.Group, instance.ID); !named && got != name {
		return node.Machine{}, labelsOf(name, instance, got)
	}
	networks := d.Networks
	if instance.Network != "" {
		networks = []string{instance.Network}
	}
	err := error(&node.Refusal{Reason: "no network is known for Node " + name})
	for _, network := range networks {
		instance.Network = network
		var machine node.Machine
		var agent string
		if machine, agent, err = d.machine(ctx, instance); err != nil {
			continue
		}
		if named {
			if err := d.locate(ctx, &machine, instance.ID, agent); err != nil {
				return node.Machine{}, err
			}
		}
		if machine.Node != name {
			return node.Machine{}, labelsOf(name, instance, machine.Node)
		}
		return machine, nil
	}
	return node.Machine{}, err
}

func labelsOf(name string, instance joinapi.Instance, other string) error {
	return &node.Refusal{Reason: fmt.Sprintf(
		"Node %s has the labels %s=%s and %s=%s, which are of node %s", name, groupLabel, instance.Group, idLabel,
		instance.ID, other,
	)}
}

var (
	instanceID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	boshName   = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// machine asks bosh-dns for the address of an instance, and the records for those in other networks and its agent.
func (d *Deployment) machine(ctx context.Context, i joinapi.Instance) (machine node.Machine, agent string, err error) {
	if !instanceID.MatchString(i.ID) || !boshName.MatchString(i.Group) || !boshName.MatchString(i.Network) {
		return node.Machine{}, "", &node.Refusal{
			Reason: fmt.Sprintf(
				"instance group %q, instance ID %q or network %q is malformed", i.Group, i.ID, i.Network,
			),
		}
	}
	machine = node.Machine{ID: i.Group + "/" + i.ID, Node: node.BOSHName(i.Group, i.ID)}
	host := strings.Join(
		[]string{i.ID, boshdns.Canonical(i.Group), boshdns.Canonical(i.Network), boshdns.Canonical(d.Name), d.Domain},
		".",
	)
	lookup := d.Lookup
	if lookup == nil {
		lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name+".")
		}
	}
	addresses, err := lookup(ctx, host)
	var unknown *net.DNSError
	if errors.As(err, &unknown) && unknown.IsNotFound {
		return machine, "", &node.Refusal{
			Reason: fmt.Sprintf(
				"BOSH knows no instance %s in network %s of deployment %s: bosh-dns has no %s", machine.ID, i.Network,
				d.Name, host,
			),
		}
	}
	if err != nil {
		return machine, "", fmt.Errorf("ask bosh-dns for the address of %s: %w", machine.ID, err)
	}
	machine.Addresses = addresses
	if d.Records == "" {
		return machine, "", nil
	}
	// A VM with several networks connects from the address in any of them, and kubelet reports that of its default one.
	records, err := d.Load()
	if err != nil {
		return machine, "", err
	}
	for _, record := range records {
		if record.ID != i.ID {
			continue
		}
		if !machine.Has(record.IP.String()) {
			machine.Addresses = append(machine.Addresses, record.IP)
		}
		// The agent makes its ID the host name (SetupHostname in bosh-agent's platform/linux_platform.go), which the
		// cloud controller of vSphere adds to the Node's addresses, so kubelet requests it.
		agent = record.Agent
		if agent != "" && !machine.Has(agent) {
			machine.DNSNames = append(machine.DNSNames, agent)
		}
	}
	return machine, agent, nil
}
