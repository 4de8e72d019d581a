package boshrelease

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/cloudfoundry/bosh-cli/v7/releasedir"
	gcsclient "github.com/cloudfoundry/bosh-gcscli/client"
	gcsconfig "github.com/cloudfoundry/bosh-gcscli/config"
	s3config "github.com/cloudfoundry/bosh-s3cli/config"
	boshblob "github.com/cloudfoundry/bosh-utils/blobstore"
	boshcrypto "github.com/cloudfoundry/bosh-utils/crypto"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
	boshsys "github.com/cloudfoundry/bosh-utils/system"
	boshuuid "github.com/cloudfoundry/bosh-utils/uuid"
	"golang.org/x/oauth2/google"
)

// BlobstoreError is a blobstore that a final release cannot be written to.
type BlobstoreError struct {
	// Provider is the value of blobstore.provider; empty if there is none.
	Provider string
	// Reason is a sentence: what is wrong and what to do.
	Reason string
}

func (e *BlobstoreError) Error() string {
	return fmt.Sprintf(
		"blobstore %q of config/final.yml and config/private.yml: %s; docs/releasing.md has examples", e.Provider,
		e.Reason,
	)
}

// openBlobstore opens the blobstore of config/final.yml for writing, with the credentials of config/private.yml. The
// providers are those of bosh-cli (releasedir/provider.go), which finds out that it cannot write only when it uploads.
func openBlobstore(ctx context.Context, root string, files boshsys.FileSystem) (boshblob.DigestBlobstore, error) {
	config := releasedir.NewFSConfig(
		filepath.Join(root, "config", "final.yml"), filepath.Join(root, "config", "private.yml"), files,
	)
	provider, options, err := config.Blobstore()
	if err != nil {
		return nil, &BlobstoreError{provider, fmt.Sprintf("%v; set it to local, s3 or gcs", err)}
	}
	uuids := boshuuid.NewGenerator()
	var store boshblob.Blobstore
	var unusable string
	switch provider {
	case "local":
		unusable = checkLocal(root, options)
		store = boshblob.NewLocalBlobstore(files, uuids, options)
	case "s3":
		unusable = checkS3(ctx, options)
		store = releasedir.NewS3Blobstore(files, uuids, options)
	case "gcs":
		unusable = checkGCS(ctx, options)
		store = releasedir.NewGCSBlobstore(files, uuids, options)
	default:
		unusable = "blobstore.provider must be local, s3 or gcs"
	}
	if unusable != "" {
		return nil, &BlobstoreError{provider, unusable}
	}
	verified := boshblob.NewDigestVerifiableBlobstore(
		store, files, []boshcrypto.Algorithm{boshcrypto.DigestAlgorithmSHA256},
	)
	retried := boshblob.NewRetryableBlobstore(verified, 3, boshlog.NewLogger(boshlog.LevelNone))
	if err := retried.Validate(); err != nil {
		return nil, &BlobstoreError{provider, err.Error()}
	}
	return retried, nil
}

// checkLocal makes the path absolute. It returns why the blobstore cannot be written to; empty if it can.
func checkLocal(root string, options map[string]any) string {
	dir, _ := options["blobstore_path"].(string)
	if dir == "" {
		return "blobstore.options.blobstore_path must be a folder, absolute or relative to the repository"
	}
	if !filepath.IsAbs(dir) {
		options["blobstore_path"] = filepath.Join(root, dir)
	}
	return ""
}

func checkS3(ctx context.Context, options map[string]any) string {
	text, err := json.Marshal(options)
	if err != nil {
		return err.Error()
	}
	config, err := s3config.NewFromReader(bytes.NewReader(text))
	switch {
	case err != nil:
		return "blobstore.options: " + err.Error()
	case config.CredentialsSource == s3config.NoneCredentialsSource:
		return "there are no credentials to write with; set blobstore.options.access_key_id and secret_access_key in " +
			"config/private.yml, or credentials_source to env_or_profile"
	case config.CredentialsSource == s3config.StaticCredentialsSource:
		return ""
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(config.Region))
	if err == nil {
		_, err = loaded.Credentials.Retrieve(ctx)
	}
	if err != nil {
		return fmt.Sprintf(
			"credentials_source is %s, but neither the environment nor a profile has AWS credentials: %v",
			config.CredentialsSource, err,
		)
	}
	return ""
}

func checkGCS(ctx context.Context, options map[string]any) string {
	text, err := json.Marshal(options)
	if err != nil {
		return err.Error()
	}
	config, err := gcsconfig.NewFromReader(bytes.NewReader(text))
	if err == nil {
		_, err = gcsclient.New(ctx, &config)
	}
	if err != nil {
		return "blobstore.options: " + err.Error()
	}
	const advice = "set blobstore.options.credentials_source to static and json_key in config/private.yml"
	const scope = "https://www.googleapis.com/auth/devstorage.full_control"
	switch config.CredentialsSource {
	case gcsconfig.NoneCredentialsSource:
		return "credentials_source is none, which can only read; " + advice
	case gcsconfig.DefaultCredentialsSource:
		if _, err := google.DefaultTokenSource(ctx, scope); err != nil {
			return fmt.Sprintf("there are no credentials to write with (%v); %s", err, advice)
		}
	case gcsconfig.ServiceAccountFileCredentialsSource:
		if _, err := google.JWTConfigFromJSON([]byte(config.ServiceAccountFile), scope); err != nil {
			return fmt.Sprintf("json_key is not the key of a service account: %v", err)
		}
	}
	return ""
}
