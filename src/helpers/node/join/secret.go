package join

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
)

// A cloud answers every user of a VM who asks its instance metadata. So that only root can join, the proof for the
// cloud comes with a MAC that takes the secret of the deployment, as without a cloud.

// sealedProof is a proof for the cloud with a MAC of it and of the certificate request.
type sealedProof struct {
	Proof json.RawMessage `json:"proof"`
	MAC   string          `json:"mac"`
}

func seal(secret, proof, certificateRequest []byte) []byte {
	h := hmac.New(sha256.New, secret)
	for _, part := range [][]byte{[]byte("cloud"), proof, certificateRequest} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// SecretProver adds to a cloud's proof that the sender knows the secret of the deployment.
type SecretProver struct {
	node.Prover
	// SecretFile is the path of the file with the secret. It is emptied when the VM has joined.
	SecretFile string
}

// Prove implements node.Prover.
func (p SecretProver) Prove(ctx context.Context, certificateRequest []byte) (json.RawMessage, error) {
	secret, err := readSecret(p.SecretFile)
	if err != nil {
		return nil, err
	}
	proof, err := p.Prover.Prove(ctx, certificateRequest)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealedProof{Proof: proof, MAC: hex.EncodeToString(seal(secret, proof, certificateRequest))})
}

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
	var proof sealedProof
	if err := strictjson.Unmarshal(application.Proof, &proof); err != nil {
		return node.Machine{}, &node.Refusal{Reason: "the proof cannot be read: " + err.Error()}
	}
	secret, err := readSecret(i.Deployment.SecretFile)
	if err != nil {
		return node.Machine{}, err
	}
	mac, err := hex.DecodeString(proof.MAC)
	if err != nil || !hmac.Equal(mac, seal(secret, proof.Proof, application.Request)) {
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
