package join

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"kubernetes-release/internal/joinapi"
	"kubernetes-release/node"
)

// InstanceProver implements node.Prover.
type InstanceProver struct {
	joinapi.Instance
	// SecretFile is the path of the file with the deployment's secret. It is emptied when the VM has joined.
	SecretFile string
}

// Prove implements node.Prover.
func (p InstanceProver) Prove(_ context.Context, certificateRequest []byte) (json.RawMessage, error) {
	secret, err := joinapi.ReadSecret(p.SecretFile)
	if err != nil {
		return nil, err
	}
	return json.Marshal(joinapi.InstanceProof{
		Instance: p.Instance, MAC: hex.EncodeToString(p.Sign(secret, certificateRequest)),
	})
}

// SecretProver adds to a cloud's proof that the sender knows the secret of the deployment.
type SecretProver struct {
	node.Prover
	// SecretFile is the path of the file with the secret. It is emptied when the VM has joined.
	SecretFile string
}

// Prove implements node.Prover.
func (p SecretProver) Prove(ctx context.Context, certificateRequest []byte) (json.RawMessage, error) {
	secret, err := joinapi.ReadSecret(p.SecretFile)
	if err != nil {
		return nil, err
	}
	proof, err := p.Prover.Prove(ctx, certificateRequest)
	if err != nil {
		return nil, err
	}
	mac := joinapi.Seal(secret, proof, certificateRequest)
	return json.Marshal(joinapi.SealedProof{Proof: proof, MAC: hex.EncodeToString(mac)})
}
