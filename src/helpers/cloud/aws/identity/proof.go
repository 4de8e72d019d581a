// Package identity proves which instance of the account a machine is, and verifies the proofs of others.
package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/node"
)

// An instance proves which one it is by a request to STS that it signs with its role's credentials and does not send.
// Whoever has the signature can send that request, once the rest of it is known, and learns from STS who signed it: the
// session name of credentials from instance metadata is the instance ID. The signature covers the certificate request
// and the cluster, so that it is good for nothing else. kops' nodes prove their identity in the same way.

// proof is what a verifier does not know of the signed request.
type proof struct {
	Authorization string `json:"authorization"`
	Date          string `json:"date"`
	Token         string `json:"token"`
}

const (
	identityBody    = "Action=GetCallerIdentity&Version=2011-06-15"
	clusterHeader   = "X-Kubernetes-Cluster"
	requestHeader   = "X-Kubernetes-Certificate-Request-Sha256"
	dateHeader      = "X-Amz-Date"
	tokenHeader     = "X-Amz-Security-Token"
	signatureDate   = "20060102T150405Z"
	proofSignedWith = "content-length;content-type;host;x-amz-date;x-amz-security-token;x-kubernetes-certificate" +
		"-request-sha256;x-kubernetes-cluster"
)

// identityRequest returns the request that is signed, without what the signature adds. Instance and verifier build the
// same.
func identityRequest(
	ctx context.Context, endpoint *url.URL, cluster string, certificateRequest []byte,
) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint.String(), strings.NewReader(identityBody))
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(certificateRequest)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	request.Header.Set(clusterHeader, cluster)
	request.Header.Set(requestHeader, hex.EncodeToString(digest[:]))
	return request, nil
}

// prover proves the identity of this instance.
type prover struct {
	machine Machine
	cluster string
}

// NewProver returns what creates proofs on this machine of a cluster.
func NewProver(machine Machine, cluster string) node.Prover { return &prover{machine, cluster} }

// Prove implements node.Prover. The proof is valid for a few minutes.
func (p *prover) Prove(ctx context.Context, certificateRequest []byte) (json.RawMessage, error) {
	s, err := p.machine.openSession(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	evidence, err := s.prove(ctx, p.cluster, certificateRequest, p.machine.Now())
	if err != nil {
		return nil, err
	}
	return json.Marshal(evidence)
}

// prove signs the request with the session's credentials.
func (s *session) prove(ctx context.Context, cluster string, certificateRequest []byte, now time.Time) (proof, error) {
	request, err := identityRequest(ctx, s.endpoint, cluster, certificateRequest)
	if err != nil {
		return proof{}, err
	}
	digest := sha256.Sum256([]byte(identityBody))
	err = v4.NewSigner().SignHTTP(
		ctx, s.credentials.SDK(), request, hex.EncodeToString(digest[:]), "sts", s.metadata.Region, now,
	)
	if err != nil {
		return proof{}, fmt.Errorf("sign the request to STS: %w", err)
	}
	return proof{
		Authorization: request.Header.Get("Authorization"),
		Date:          request.Header.Get(dateHeader),
		Token:         request.Header.Get(tokenHeader),
	}, nil
}

// maxProofAge is how long a proof is valid; STS itself would accept it for 15 minutes. It also limits how far the
// clocks of two VMs can be apart.
const maxProofAge = 5 * time.Minute

var authorizationForm = regexp.MustCompile(
	`^AWS4-HMAC-SHA256 Credential=[A-Z0-9]{16,128}/([0-9]{8})/([a-z0-9-]+)/sts/aws4_request, ` +
		`SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$`,
)

// check refuses a proof that STS could accept although it does not prove what it must, and returns the region that it
// is for. It needs nothing of this machine but the time.
func (p proof) check(now time.Time) (region string, refusal *node.Refusal) {
	parts := authorizationForm.FindStringSubmatch(p.Authorization)
	date, err := time.Parse(signatureDate, p.Date)
	switch {
	case parts == nil:
		return "", &node.Refusal{Reason: "the proof is not a signature of a request to STS"}
	case parts[3] != proofSignedWith:
		return "", &node.Refusal{
			Reason: fmt.Sprintf("the proof signs the headers %s; it must sign %s", parts[3], proofSignedWith),
		}
	case err != nil || date.Format("20060102") != parts[1]:
		return "", &node.Refusal{Reason: fmt.Sprintf("the proof has the date %q", awserr.Clip(p.Date))}
	case now.Sub(date) > maxProofAge || date.Sub(now) > maxProofAge:
		return "", &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is of %s, and it is %s here: a proof is valid for %s, and clocks must agree",
				date.Format(time.RFC3339), now.UTC().Format(time.RFC3339), maxProofAge,
			),
		}
	case p.Token == "" || strings.ContainsFunc(p.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", &node.Refusal{Reason: "the proof has no valid session token, which credentials of an instance have"}
	}
	return parts[2], nil
}
