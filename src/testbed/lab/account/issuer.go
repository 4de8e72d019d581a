package account

import (
	"strings"

	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// Issuer is that of the tokens with which pods assume roles (docs/pod-roles.md).
type Issuer struct {
	URL    string `json:"url"`
	Bucket string `json:"bucket"`
}

// objects are those of the bucket that job pod-roles writes, as BUCKET/NAME.
func (i Issuer) objects() []string {
	if i.URL == "" {
		return nil
	}
	_, prefix, _ := strings.Cut(strings.TrimPrefix(i.URL, "https://"), "/")
	return issuer.Bucket{Name: i.Bucket, Prefix: prefix}.Objects()
}

// prepare gives an account what the commands of docs/pod-roles.md create: a bucket whose objects for the issuer
// everyone can read, and a provider.
func (i Issuer) prepare(world *store.World) {
	if i.URL == "" {
		return
	}
	read := iam.Statement{Effect: "Allow", Action: iam.Strings{"s3:GetObject"}}
	for _, object := range i.objects() {
		read.Resource = append(read.Resource, "arn:aws:s3:::"+object)
	}
	world.Buckets = append(world.Buckets, i.Bucket)
	world.ChangedBuckets = append(world.ChangedBuckets, store.Bucket{
		Name: i.Bucket, PublicAccess: true, Public: []iam.Policy{{Statement: iam.Statements{read}}},
	})
	world.OIDCProviders = append(world.OIDCProviders, store.OIDCProvider{
		URL: strings.TrimPrefix(i.URL, "https://"), ClientIDs: []string{"sts.amazonaws.com"},
	})
}
