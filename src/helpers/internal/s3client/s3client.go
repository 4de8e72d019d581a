// Package s3client makes clients of S3, or of a store with the same API.
package s3client

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

// Options are how a store is reached.
type Options struct {
	Region string
	// Endpoint is the URL of a store that is not S3.
	Endpoint string
	// CredentialsFile is a shared credentials file; without it, the role of the instance has access.
	CredentialsFile string
	// Anonymous requests have no signature, as those of anyone.
	Anonymous bool
}

// New returns a client. The files in the home directory are not read.
func New(ctx context.Context, o Options) (*s3.Client, error) {
	files := []string{} // not nil, which would mean the home directory's
	if o.CredentialsFile != "" {
		files = []string{o.CredentialsFile}
	}
	settings := []func(*config.LoadOptions) error{
		config.WithRegion(o.Region), config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles(files),
	}
	if o.Anonymous {
		settings = append(settings, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	}
	loaded, err := config.LoadDefaultConfig(ctx, settings...)
	if err != nil {
		return nil, err
	}
	return s3.NewFromConfig(loaded, func(s *s3.Options) {
		if o.Endpoint != "" {
			s.BaseEndpoint, s.UsePathStyle = &o.Endpoint, true
			s.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired // others do not know all of S3's
		}
	}), nil
}

// Advice is what an operator can do when S3 refuses a request.
type Advice struct {
	// AccessDenied, NoSuchBucket and WrongRegion begin with a verb.
	AccessDenied, NoSuchBucket, WrongRegion string
}

// Explain adds the advice to a refusal that it is for.
func (a Advice) Explain(err error) error {
	var refused smithy.APIError
	if !errors.As(err, &refused) {
		return err
	}
	advice := map[string]string{
		"AccessDenied":                       a.AccessDenied,
		"NoSuchBucket":                       a.NoSuchBucket,
		"PermanentRedirect":                  a.WrongRegion,
		"AuthorizationHeaderMalformed":       a.WrongRegion,
		"IllegalLocationConstraintException": a.WrongRegion,
	}[refused.ErrorCode()]
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}
