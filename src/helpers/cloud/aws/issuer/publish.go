package issuer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/s3client"
	"kubernetes-release/internal/strictjson"
)

const (
	// writeTimeout is how long a VM waits for S3 that has not published the keys before.
	writeTimeout  = 2 * time.Minute
	writeInterval = 2 * time.Second
	// cacheControl lets caches keep the objects for less than verifyTimeout. CloudFront keeps those without it for a
	// day, in which no deploy with a new key would succeed.
	cacheControl = "public, max-age=10"
)

// Config is what is published, and where.
type Config struct {
	Issuer string `json:"issuer"`
	// PublicKeys is the path of the keys, PEM.
	PublicKeys string `json:"public_keys"`
	Bucket     Bucket `json:"bucket"`
	// Verify makes it an error that AWS cannot read the documents or does not know the issuer. Otherwise it is logged.
	Verify bool `json:"verify"`
}

// Bucket is a bucket of S3 that the role of the instance may write to.
type Bucket struct {
	Name   string `json:"name"`
	Region string `json:"region"`
	// Prefix is the beginning of the objects' names, without the slash after it; it can be empty.
	Prefix string `json:"prefix"`
}

// Objects are the objects that are published, as BUCKET/NAME.
func (b Bucket) Objects() []string {
	return []string{path.Join(b.Name, b.Prefix, DiscoveryPath), path.Join(b.Name, b.Prefix, KeysPath)}
}

// Load reads a Config.
func Load(path string) (*Config, error) {
	config := &Config{}
	if err := strictjson.ReadFile(path, config); err != nil {
		return nil, err
	}
	return config, nil
}

// Publish writes the documents to the bucket, and checks that AWS can read them and knows the issuer. The record has
// what was written last: if S3 does not answer, that is enough, so that a VM can start without S3. Others wait.
func (c *Config) Publish(ctx context.Context, record string, log *slog.Logger) error {
	documents, err := c.documents()
	if err != nil {
		return err
	}
	objects, err := documents.objects()
	if err != nil {
		return err
	}
	digest := c.digest(objects)
	last, err := rootfile.Read(record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	published := string(last) == digest
	err = poll.Within(ctx, writeTimeout, writeInterval, func(ctx context.Context) error {
		err := c.write(ctx, objects)
		if err != nil && (published || refused(err)) {
			return poll.Permanent(err)
		}
		return err
	})
	if err != nil {
		if refused(err) || !published {
			return fmt.Errorf("publish the keys of %s: %w", c.Issuer, refusals.Explain(err))
		}
		log.Warn("an earlier deploy has published the keys; S3 does not answer now", "issuer", c.Issuer, "error", err)
		return nil
	}
	log.Info("keys published", "issuer", c.Issuer, "bucket", c.Bucket.Name, "keys", len(documents.Keys.Keys))
	if err := rootfile.Write(record, []byte(digest), 0o600); err != nil {
		return err
	}
	var problem error
	for _, err := range c.problems(ctx, documents) {
		if IsUnknown(err) {
			log.Warn("not checked", "error", err)
			continue
		}
		problem = errors.Join(problem, err)
	}
	switch {
	case problem == nil:
		return nil
	case c.Verify:
		return fmt.Errorf("%w\n(with property verify: false of job pod-roles, this is only logged)", problem)
	}
	log.Warn("pods cannot assume roles", "error", problem)
	return nil
}

// documents are those of the public keys.
func (c *Config) documents() (*Documents, error) {
	keys, err := os.ReadFile(c.PublicKeys)
	if err != nil {
		return nil, err
	}
	documents, err := NewDocuments(c.Issuer, keys)
	if err != nil {
		return nil, fmt.Errorf(
			"property service_account.public_keys of job kube-apiserver, file %s: %w", c.PublicKeys, err,
		)
	}
	return documents, nil
}

// digest identifies what is written where.
func (c *Config) digest(objects []object) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", c.Bucket)
	for _, o := range objects {
		fmt.Fprintf(sum, "%q", o)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func (c *Config) write(ctx context.Context, objects []object) error {
	client, err := s3client.New(ctx, s3client.Options{Region: c.Bucket.Region})
	if err != nil {
		return err
	}
	for _, o := range objects {
		name := path.Join(c.Bucket.Prefix, o.path)
		if _, err := client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &c.Bucket.Name, Key: &name, Body: bytes.NewReader(o.content),
			ContentType: aws.String("application/json"), CacheControl: aws.String(cacheControl),
		}); err != nil {
			return fmt.Errorf("write s3://%s/%s: %w", c.Bucket.Name, name, err)
		}
	}
	return nil
}

// refused reports whether S3 has answered and will not answer otherwise until an operator changes something.
func refused(err error) bool {
	switch awserr.Classify(err) {
	case awserr.Server, awserr.Throttled, awserr.Malformed, awserr.Unreachable:
		return false
	}
	return true
}

// refusals is what an operator can do about each.
var refusals = s3client.Advice{
	AccessDenied: "allow s3:PutObject on this name to the instance role of the control VMs (docs/pod-roles.md), and " +
		"kms:GenerateDataKey on the key that encrypts the bucket",
	NoSuchBucket: "create the bucket (docs/pod-roles.md), or correct property bucket of job pod-roles",
	WrongRegion:  "set property region of job pod-roles, and issuer, to the region of the bucket",
}
