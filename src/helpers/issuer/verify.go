package issuer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"kubernetes-release/internal/poll"
)

const (
	// verifyTimeout is how long a cache before the bucket may show what it had before.
	verifyTimeout = 30 * time.Second
	// accountTimeout limits the questions about the account. A private subnet may not reach IAM.
	accountTimeout = 10 * time.Second
	// audience is that of the tokens of pods, unless an annotation names another one.
	audience = "sts.amazonaws.com"
)

// refusal is an answer that is not the document.
type refusal struct{ status string }

func (r refusal) Error() string { return "HTTP " + r.status }

// verifyDocuments reads what was published at the URL of the issuer, without credentials, as AWS does. If the VM cannot
// connect, that says nothing about AWS.
func (c *Config) verifyDocuments(ctx context.Context, want *Documents, log *slog.Logger) error {
	client := &http.Client{Timeout: accountTimeout}
	defer client.CloseIdleConnections()
	err := poll.Within(ctx, c.patience(), time.Second, func(ctx context.Context) error {
		got, err := Read(ctx, c.Issuer, client)
		switch {
		case err != nil && !answered(err):
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
	case !answered(err) && !errors.Is(err, context.DeadlineExceeded):
		log.Warn("this VM cannot read the keys as AWS does; that is not checked", "issuer", c.Issuer, "error", err)
		return nil
	}
	return fmt.Errorf(
		"AWS cannot verify tokens of %s: %w; the objects must be readable at the issuer's URL without credentials. "+
			"If it is a URL of S3:\n%s\nIf it is a distribution of CloudFront, let it serve the bucket, and "+
			"invalidate what it has cached (docs/pod-roles.md)", c.Issuer, err, c.publicCommands(),
	)
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

// publicCommands make the objects readable.
func (c *Config) publicCommands() string {
	partition := "aws"
	if strings.HasPrefix(c.Bucket.Region, "cn-") {
		partition = "aws-cn"
	}
	object := func(name string) string {
		return "arn:" + partition + ":s3:::" + path.Join(c.Bucket.Name, c.Bucket.Prefix, name)
	}
	to := fmt.Sprintf("--bucket %s --region %s", c.Bucket.Name, c.Bucket.Region)
	return fmt.Sprintf(
		"aws s3api delete-public-access-block %s\naws s3api put-bucket-policy %s --policy '"+
			`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", `+
			`"Action": "s3:GetObject", "Resource": ["%s", "%s"]}]}'`,
		to, to, object(DiscoveryPath), object(KeysPath),
	)
}

// verifyProvider checks that the account has a provider for the issuer with the audience of pods. Without permission
// and where IAM cannot be reached, that is not known.
func (c *Config) verifyProvider(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	loaded, err := config.LoadDefaultConfig(ctx, config.WithRegion(c.Bucket.Region),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}))
	if err != nil {
		return err
	}
	unknown := func(err error) error {
		log.Warn(
			"it is unknown whether the account has a provider for the issuer",
			"issuer", c.Issuer, "permission", "iam:GetOpenIDConnectProvider", "error", err,
		)
		return nil
	}
	self, err := sts.NewFromConfig(loaded).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return unknown(err)
	}
	role, err := arn.Parse(*self.Arn)
	if err != nil {
		return unknown(err)
	}
	provider := fmt.Sprintf(
		"arn:%s:iam::%s:oidc-provider/%s", role.Partition, role.AccountID, strings.TrimPrefix(c.Issuer, "https://"),
	)
	found, err := iam.NewFromConfig(loaded).GetOpenIDConnectProvider(
		ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &provider},
	)
	var answer smithy.APIError
	switch {
	case errors.As(err, &answer) && answer.ErrorCode() == "NoSuchEntity":
		return fmt.Errorf(
			"the account %s has no OpenID Connect provider for %s, so AWS refuses the tokens of pods:\n"+
				"aws iam create-open-id-connect-provider --url %s --client-id-list %s",
			role.AccountID, c.Issuer, c.Issuer, audience,
		)
	case err != nil:
		return unknown(err)
	case !slices.Contains(found.ClientIDList, audience):
		return fmt.Errorf(
			"the OpenID Connect provider %s has the audiences %q, and not that of the tokens of pods, %s:\n"+
				"aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn %s --client-id %s",
			provider, found.ClientIDList, audience, provider, audience,
		)
	}
	return nil
}
