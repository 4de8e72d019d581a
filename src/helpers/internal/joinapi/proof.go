package joinapi

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
)

// Without a cloud in which a machine can prove its identity, BOSH is asked: bosh-dns knows the address of each
// instance, and a request must come from it. The secret of the deployment keeps out the pods of that instance, whose
// connections come from the same address.

// Instance identifies an instance of the deployment.
type Instance struct {
	Group   string `json:"instance_group"`
	ID      string `json:"instance_id"`
	Network string `json:"network"`
}

// InstanceProof is an instance's claim, with a MAC of the certificate request.
type InstanceProof struct {
	Instance
	MAC string `json:"mac"`
}

// Sign returns the MAC of the claim and of the certificate request.
func (i Instance) Sign(secret, certificateRequest []byte) []byte {
	h := hmac.New(sha256.New, secret)
	for _, part := range [][]byte{[]byte(i.Group), []byte(i.ID), []byte(i.Network), certificateRequest} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// A cloud answers every user of a VM who asks its instance metadata. So that only root can join, the proof for the
// cloud comes with a MAC that takes the secret of the deployment, as without a cloud.

// SealedProof is a proof for the cloud with a MAC of it and of the certificate request.
type SealedProof struct {
	Proof json.RawMessage `json:"proof"`
	MAC   string          `json:"mac"`
}

// Seal returns the MAC of a proof for the cloud and of the certificate request.
func Seal(secret, proof, certificateRequest []byte) []byte {
	h := hmac.New(sha256.New, secret)
	for _, part := range [][]byte{[]byte("cloud"), proof, certificateRequest} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

// ReadSecret reads the secret of the deployment.
func ReadSecret(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("secret of the deployment: %w", err)
	}
	secret := bytes.TrimSpace(content)
	if len(secret) == 0 {
		return nil, fmt.Errorf(
			"%s is empty: the secret is removed when a VM has joined; recreate the VM to join again (bosh recreate)",
			path,
		)
	}
	return secret, nil
}
