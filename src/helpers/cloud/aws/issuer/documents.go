// Package issuer publishes the keys that verify the tokens of service accounts, for those who cannot ask the API
// server: the discovery document of the issuer (OpenID Connect Discovery 1.0) and its JSON Web Key Set, as objects of
// S3.
package issuer

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// The paths below the URL of the issuer: the API server's own (pkg/serviceaccount/openidmetadata.go in Kubernetes).
const (
	DiscoveryPath = ".well-known/openid-configuration"
	KeysPath      = "openid/v1/jwks"
)

// Documents are what an issuer publishes.
type Documents struct {
	Discovery Discovery
	Keys      KeySet
}

// Discovery is the discovery document, with the fields of the API server's.
type Discovery struct {
	Issuer        string   `json:"issuer"`
	KeysURL       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// KeySet is a JSON Web Key Set.
type KeySet struct {
	Keys []Key `json:"keys"`
}

// Key is an RSA key of a KeySet.
type Key struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Modulus   string `json:"n"`
	Exponent  string `json:"e"`
}

// NewDocuments are the documents of an issuer with these public keys (PEM, one after the other).
func NewDocuments(issuer string, publicKeys []byte) (*Documents, error) {
	documents := &Documents{Discovery: Discovery{
		Issuer: issuer, KeysURL: issuer + "/" + KeysPath,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}, Algorithms: []string{"RS256"},
	}}
	for rest := publicKeys; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		key, err := newKey(block)
		if err != nil {
			return nil, fmt.Errorf("public key %d: %w", len(documents.Keys.Keys)+1, err)
		}
		if !slices.Contains(documents.Keys.Keys, key) {
			documents.Keys.Keys = append(documents.Keys.Keys, key)
		}
	}
	if len(documents.Keys.Keys) == 0 {
		return nil, errors.New("there is no public key in PEM")
	}
	return documents, nil
}

// newKey has the id that the API server gives a key (keyIDFromPublicKey in pkg/serviceaccount/jwt.go).
func newKey(block *pem.Block) (Key, error) {
	var public any
	var err error
	if block.Type == "RSA PUBLIC KEY" {
		public, err = x509.ParsePKCS1PublicKey(block.Bytes)
	} else {
		public, err = x509.ParsePKIXPublicKey(block.Bytes)
	}
	if err != nil {
		return Key{}, err
	}
	key, ok := public.(*rsa.PublicKey)
	if !ok {
		return Key{}, fmt.Errorf("it is a %T; an RSA key is required", public)
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return Key{}, err
	}
	id := sha256.Sum256(der)
	encode := base64.RawURLEncoding.EncodeToString
	return Key{
		Use: "sig", Type: "RSA", ID: encode(id[:]), Algorithm: "RS256",
		Modulus: encode(key.N.Bytes()), Exponent: encode(big.NewInt(int64(key.E)).Bytes()),
	}, nil
}

// Lacks are the ids of the keys that another set does not have.
func (s KeySet) Lacks(other KeySet) []string {
	var ids []string
	for _, key := range other.Keys {
		if !slices.Contains(s.Keys, key) {
			ids = append(ids, key.ID)
		}
	}
	return ids
}

// objects are the contents of the objects in the order in which they are written: who reads the discovery document
// finds the keys.
func (d *Documents) objects() ([]object, error) {
	keys, err := json.Marshal(d.Keys)
	if err != nil {
		return nil, err
	}
	discovery, err := json.Marshal(d.Discovery)
	return []object{{KeysPath, keys}, {DiscoveryPath, discovery}}, err
}

type object struct {
	path    string
	content []byte
}
