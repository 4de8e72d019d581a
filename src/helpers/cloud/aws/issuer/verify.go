package issuer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/internal/poll"
)

const (
	// verifyTimeout is how long a cache before the bucket may show what it had before.
	verifyTimeout = 30 * time.Second
	// zeros is a thumbprint of a certificate in form only.
	zeros = "0000000000000000000000000000000000000000"
	// accountTimeout limits the questions about the account. A private subnet may not reach IAM.
	accountTimeout = 10 * time.Second
	// audience is that of the tokens of pods, unless an annotation names another one.
	audience = "sts.amazonaws.com"
)

// Problem is what keeps AWS from accepting the tokens of pods.
type Problem struct {
	Err      error
	Commands []string // that fix it; can be pasted
	Hint     string   // what else to look at
}

func (p *Problem) Error() string {
	text := p.Err.Error() + ":\n" + strings.Join(p.Commands, "\n")
	if p.Hint != "" {
		text += "\n" + p.Hint
	}
	return text
}

func (p *Problem) Unwrap() error { return p.Err }

// unknown is what this VM cannot find out.
type unknown struct{ error }

// IsUnknown reports whether an error of Problems says nothing about AWS: this VM cannot connect, or may not ask.
func IsUnknown(err error) bool {
	var u unknown
	return errors.As(err, &u)
}

// Problems checks that AWS accepts tokens of the keys: the published documents have them, and the account has a
// provider for the issuer. The errors are Problems, or unknown.
func (c *Config) Problems(ctx context.Context) []error {
	documents, err := c.documents()
	if err != nil {
		return []error{err}
	}
	return c.problems(ctx, documents)
}

func (c *Config) problems(ctx context.Context, documents *Documents) []error {
	var problems []error
	for _, err := range []error{c.verifyDocuments(ctx, documents), c.verifyProvider(ctx)} {
		if err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// refusal is an answer that is not the document.
type refusal struct {
	code   int
	status string
}

func (r refusal) Error() string { return "HTTP " + r.status }

// verifyDocuments reads what was published at the URL of the issuer, without credentials, as AWS does. If the VM cannot
// connect, that says nothing about AWS.
func (c *Config) verifyDocuments(ctx context.Context, want *Documents) error {
	client := &http.Client{Timeout: accountTimeout}
	defer client.CloseIdleConnections()
	err := poll.Within(ctx, c.patience(), time.Second, func(ctx context.Context) error {
		got, err := Read(ctx, c.Issuer, client)
		switch {
		case err != nil && !answered(err) && ctx.Err() == nil: // not of a request that is under way at the deadline
			return poll.Permanent(err)
		case err != nil:
			return err
		}
		if lacks := got.Keys.Lacks(want.Keys); len(lacks) > 0 {
			return contentError{fmt.Errorf(
				"%s lacks keys that the API servers use: %s", got.Discovery.KeysURL, strings.Join(lacks, ", "),
			)}
		}
		return nil
	})
	switch {
	case err == nil:
		return nil
	case !answered(err) || isOutage(err):
		return unknown{fmt.Errorf("this VM cannot read the keys of %s as AWS does: %w", c.Issuer, err)}
	}
	return &Problem{
		Err: fmt.Errorf(
			"AWS cannot verify tokens of %s: %w; the objects must be readable at the issuer's URL without "+
				"credentials. If it is a URL of S3", c.Issuer, err,
		),
		Commands: c.publicCommands(),
		Hint: "If it is a distribution of CloudFront, let it serve the bucket, and invalidate what it has cached " +
			"(docs/pod-roles.md)",
	}
}

// patience is how long a wrong answer is asked for again: S3 itself shows at once what was written.
func (c *Config) patience() time.Duration {
	if parseObject(c.Issuer) != nil {
		return 2 * time.Second
	}
	return verifyTimeout
}

// answered reports whether a server has answered.
func answered(err error) bool {
	var status refusal
	var api smithy.APIError
	var content contentError
	return errors.As(err, &status) || errors.As(err, &api) || errors.As(err, &content)
}

// isOutage reports whether a server has answered that it cannot answer now, which does not say what it publishes.
func isOutage(err error) bool {
	var status refusal
	return errors.As(err, &status) && status.code >= http.StatusInternalServerError
}

// publicCommands make the objects readable.
func (c *Config) publicCommands() []string {
	partition := arn.PartitionOf(c.Bucket.Region).Name
	objects := c.Bucket.Objects()
	for i := range objects {
		objects[i] = "arn:" + partition + ":s3:::" + objects[i]
	}
	to := fmt.Sprintf("--bucket %s --region %s", c.Bucket.Name, c.Bucket.Region)
	policy := fmt.Sprintf(
		`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", `+
			`"Resource": ["%s"]}]}`, strings.Join(objects, `", "`),
	)
	return []string{
		"aws s3api delete-public-access-block " + to,
		"aws s3api put-bucket-policy " + to + " --policy '" + policy + "'",
	}
}

// verifyProvider checks that the account has a provider for the issuer with the audience of pods. Without permission
// and where IAM cannot be reached, that is not known.
func (c *Config) verifyProvider(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	loaded, err := config.LoadDefaultConfig(ctx, config.WithRegion(c.Bucket.Region),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}))
	if err != nil {
		return err
	}
	notKnown := func(err error) error {
		return unknown{fmt.Errorf(
			"it is unknown whether the account has a provider for %s (iam:GetOpenIDConnectProvider): %w", c.Issuer, err,
		)}
	}
	self, err := sts.NewFromConfig(loaded).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return notKnown(err)
	}
	role, err := arn.Parse(*self.Arn)
	if err != nil {
		return notKnown(err)
	}
	provider := fmt.Sprintf(
		"arn:%s:iam::%s:oidc-provider/%s", role.Partition, role.Account, strings.TrimPrefix(c.Issuer, "https://"),
	)
	found, err := iam.NewFromConfig(loaded).GetOpenIDConnectProvider(
		ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &provider},
	)
	var answer smithy.APIError
	switch {
	case errors.As(err, &answer) && answer.ErrorCode() == "NoSuchEntity":
		return &Problem{
			Err: fmt.Errorf(
				"the account %s has no OpenID Connect provider for %s, so AWS refuses the tokens of pods",
				role.Account, c.Issuer,
			),
			Commands: []string{
				"aws iam create-open-id-connect-provider --url " + c.Issuer + " --client-id-list " + audience,
			},
			Hint: "An older AWS CLI, such as Debian 12's, requires --thumbprint-list too: add " + zeros + ", since " +
				"AWS does not look at it if the certificate is of a public CA",
		}
	case err != nil:
		return notKnown(err)
	case !slices.Contains(found.ClientIDList, audience):
		return &Problem{
			Err: fmt.Errorf(
				"the OpenID Connect provider %s has the audiences %q, and not that of the tokens of pods, %s",
				provider, found.ClientIDList, audience,
			),
			Commands: []string{fmt.Sprintf(
				"aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn %s --client-id %s",
				provider, audience,
			)},
		}
	}
	return nil
}
