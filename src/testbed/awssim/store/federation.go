package store

import (
	"kubernetes-release/testbed/awssim/iam"
)

// OIDCProvider is an OpenID Connect provider of the account, whose tokens roles can trust.
type OIDCProvider struct {
	URL       string   `json:"url"` // of the issuer, without https://
	ClientIDs []string `json:"client_ids,omitempty"`
}

func (p OIDCProvider) key() string { return p.URL }

// FederatedTrust is a statement of a role's trust policy for the tokens of OpenID Connect providers.
type FederatedTrust struct {
	Providers []string       `json:"providers"` // ARNs
	Condition iam.Conditions `json:"condition,omitempty"`
}

// Bucket is a bucket's protection. Buckets that nobody has changed have none here.
type Bucket struct {
	Name string `json:"name"`
	// PublicAccess is true if Block Public Access is off. It is on in new buckets (Amazon S3 user guide, "Default
	// settings for new S3 buckets").
	PublicAccess bool `json:"public_access,omitempty"`
	// Public are the statements of its policy for everyone.
	Public []iam.Policy `json:"public,omitempty"`
}

func (b Bucket) key() string { return b.Name }
