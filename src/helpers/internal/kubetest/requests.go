package kubetest

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"testing"
)

// publicExponent is the largest that crypto/rsa takes; with it a signature costs the most.
const publicExponent = 1<<31 - 1

// RequestOfLargeKey returns a certificate request, in PEM, with an RSA key of this size and a signature that is wrong,
// which only a computation with the whole key shows.
func RequestOfLargeKey(tb testing.TB, subject pkix.Name, bits int) []byte {
	tb.Helper()
	marshal := func(value any) []byte {
		der, err := asn1.Marshal(value)
		if err != nil {
			tb.Fatal(err)
		}
		return der
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	modulus.Sub(modulus, big.NewInt(1)) // odd, and of the full length
	signature := make([]byte, bits/8)
	signature[len(signature)-1] = 2
	rsa := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	sha256WithRSA := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}
	type publicKey struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	type info struct {
		Version    int
		Subject    asn1.RawValue
		Key        publicKey
		Attributes []asn1.RawValue `asn1:"tag:0,set"`
	}
	key := marshal(struct {
		N *big.Int
		E int
	}{modulus, publicExponent})
	return encode("CERTIFICATE REQUEST", marshal(struct {
		Info      info
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		info{
			Subject: asn1.RawValue{FullBytes: marshal(subject.ToRDNSequence())},
			Key: publicKey{
				pkix.AlgorithmIdentifier{Algorithm: rsa, Parameters: asn1.NullRawValue},
				asn1.BitString{Bytes: key, BitLength: 8 * len(key)},
			},
		},
		pkix.AlgorithmIdentifier{Algorithm: sha256WithRSA, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)},
	}))
}
