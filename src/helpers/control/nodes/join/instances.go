package join

import (
	"context"
	"crypto/hmac"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"kubernetes-release/internal/joinapi"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
)

// Instances implements node.Authority for the VMs of a cloud: those that the cloud knows, that have the secret of the
// deployment, and that BOSH knows as instances of the deployment. A tag, which others can set, does not make a VM a
// node.
type Instances struct {
	Cloud      node.Authority
	Deployment *Deployment
}

// Admit implements node.Authority. The cloud is called only for who knows the secret and connects from an address that
// BOSH knows: everything else is refused by what this VM has at hand.
func (i *Instances) Admit(ctx context.Context, application node.Application) (node.Machine, error) {
	var proof joinapi.SealedProof
	if err := strictjson.Unmarshal(application.Proof, &proof); err != nil {
		return node.Machine{}, &node.Refusal{Reason: "the proof cannot be read: " + err.Error()}
	}
	secret, err := joinapi.ReadSecret(i.Deployment.SecretFile)
	if err != nil {
		return node.Machine{}, err
	}
	mac, err := hex.DecodeString(proof.MAC)
	if err != nil || !hmac.Equal(mac, joinapi.Seal(secret, proof.Proof, application.Request)) {
		return node.Machine{}, &node.Refusal{
			Reason: "the proof is not made with the secret of this deployment, or not for this certificate request",
		}
	}
	// The cloud confirms later that the address is the machine's.
	if err := i.known("the client", application.Peer); err != nil {
		return node.Machine{}, err
	}
	application.Proof = proof.Proof
	return i.Cloud.Admit(ctx, application)
}

// Find implements node.Authority.
func (i *Instances) Find(ctx context.Context, name string, labels map[string]string) (node.Machine, error) {
	machine, err := i.Cloud.Find(ctx, name, labels)
	if err != nil {
		return machine, err
	}
	return machine, i.known(machine.ID, machine.Addresses...)
}

// known refuses addresses of which none is that of an instance of the deployment.
func (i *Instances) known(who string, addresses ...netip.Addr) error {
	records, err := i.Deployment.Load()
	if err != nil {
		return err
	}
	for _, record := range records {
		if slices.ContainsFunc(addresses, func(own netip.Addr) bool { return own.Unmap() == record.IP }) {
			return nil
		}
	}
	return &node.Refusal{
		Reason: fmt.Sprintf(
			"BOSH knows no instance of deployment %s with an address of %s, %v; it knows %d instances",
			i.Deployment.Name, who, addresses, len(records),
		),
	}
}
