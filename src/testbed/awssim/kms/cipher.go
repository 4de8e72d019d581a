package kms

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
)

// maxPlaintext is the maximum size of what Encrypt takes, in bytes.
const maxPlaintext = 4096

// errCiphertext is the answer to what no key has encrypted, or another one, or with another context.
func errCiphertext() error { return api.Errorf("InvalidCiphertextException", "") }

type encryptInput struct {
	KeyID             string `param:"KeyId"`
	Plaintext         string // base64
	EncryptionContext map[string]string
}

type encryptOutput struct {
	CiphertextBlob      string
	KeyID               string `json:"KeyId"`
	EncryptionAlgorithm string
}

func encrypt(c *api.Call, in encryptInput) (out encryptOutput, err error) {
	k, err := usable(c, in.KeyID, in.EncryptionContext)
	if err != nil {
		return out, err
	}
	plaintext, err := base64.StdEncoding.DecodeString(in.Plaintext)
	if err != nil || len(plaintext) == 0 || len(plaintext) > maxPlaintext {
		return out, api.Errorf(
			"ValidationException", "1 validation error detected: plaintext must have 1 to %d bytes", maxPlaintext,
		)
	}
	aead, err := material(c, k)
	if err != nil {
		return out, err
	}
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce)
	// Like that of KMS, a ciphertext tells which key it is of.
	blob := append([]byte(k.ARN+"\n"), nonce...)
	blob = aead.Seal(blob, nonce, plaintext, authenticated(in.EncryptionContext))
	return encryptOutput{base64.StdEncoding.EncodeToString(blob), k.ARN, symmetricAlgorithm}, nil
}

const symmetricAlgorithm = "SYMMETRIC_DEFAULT"

type decryptInput struct {
	KeyID             string `param:"KeyId"`
	CiphertextBlob    string // base64
	EncryptionContext map[string]string
}

type decryptOutput struct {
	Plaintext           string
	KeyID               string `json:"KeyId"`
	EncryptionAlgorithm string
}

func decrypt(c *api.Call, in decryptInput) (out decryptOutput, err error) {
	blob, err := base64.StdEncoding.DecodeString(in.CiphertextBlob)
	arn, sealed, ok := strings.Cut(string(blob), "\n")
	if err != nil || !ok {
		if err := c.Allow(api.Target{ARN: in.KeyID, Context: contextKeys(in.EncryptionContext)}); err != nil {
			return out, err
		}
		return out, errCiphertext()
	}
	name := arn
	if in.KeyID != "" {
		name = in.KeyID
	}
	k, err := usable(c, name, in.EncryptionContext)
	if err != nil {
		return out, err
	}
	if k.ARN != arn {
		return out, api.Errorf("IncorrectKeyException", "The key ID in the request does not identify a CMK that can "+
			"perform this operation.")
	}
	aead, err := material(c, k)
	if err != nil {
		return out, err
	}
	if len(sealed) < aead.NonceSize() {
		return out, errCiphertext()
	}
	plaintext, err := aead.Open(nil, []byte(sealed[:aead.NonceSize()]), []byte(sealed[aead.NonceSize():]),
		authenticated(in.EncryptionContext))
	if err != nil {
		return out, errCiphertext()
	}
	return decryptOutput{base64.StdEncoding.EncodeToString(plaintext), k.ARN, symmetricAlgorithm}, nil
}

// usable returns a key that the caller may use and that can encrypt and decrypt.
func usable(c *api.Call, name string, context map[string]string) (*store.KMSKey, error) {
	k, err := permitted(c, name, contextKeys(context))
	if err != nil {
		return nil, err
	}
	switch state := k.CurrentState(); {
	case k.Usage() != "ENCRYPT_DECRYPT":
		return nil, api.Errorf("InvalidKeyUsageException", "%s key usage is %s which is not valid for %s.", k.ARN,
			k.Usage(), c.Action)
	case state == store.KeyDisabled:
		return nil, api.Errorf("DisabledException", "%s is disabled.", k.ARN)
	case state != store.KeyEnabled:
		return nil, api.Errorf("KMSInvalidStateException", "%s is pending deletion.", k.ARN)
	}
	return k, c.Begin()
}

// contextKeys are the condition keys of an encryption context ("Condition keys for AWS KMS" in its developer guide).
func contextKeys(context map[string]string) map[string][]string {
	keys := map[string][]string{}
	for key, value := range context {
		keys["kms:EncryptionContext:"+key] = []string{value}
		keys["kms:EncryptionContextKeys"] = append(keys["kms:EncryptionContextKeys"], key)
	}
	return keys
}

// material is the cipher of a key. It follows from the world's secret, so that it survives the simulator.
func material(c *api.Call, k *store.KMSKey) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, c.Secret)
	mac.Write([]byte("kms " + k.ARN))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// authenticated is an encryption context as what a ciphertext is bound to.
func authenticated(context map[string]string) []byte {
	var pairs [][2]string
	for _, key := range slices.Sorted(maps.Keys(context)) {
		pairs = append(pairs, [2]string{key, context[key]})
	}
	encoded, _ := json.Marshal(pairs) // strings can always be encoded
	return encoded
}
