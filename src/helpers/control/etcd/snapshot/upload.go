package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/s3client"
)

const (
	// uploadTimeout limits the time in which one snapshot is uploaded.
	uploadTimeout = 30 * time.Minute
	// maxUpload is the maximum size of an object in bytes that is uploaded in one request (Amazon S3 user guide,
	// "Uploading objects").
	maxUpload = 5 << 30
	// uploadedFile has the destination of the snapshot that was uploaded last: another bucket does not have it yet.
	uploadedFile = "uploaded"
)

// Bucket is where snapshots are uploaded to: S3, or a store with the same API.
type Bucket struct {
	Name   string `json:"name"`
	Region string `json:"region"`
	// Prefix is the beginning of the objects' names, without the slash after it; it can be empty.
	Prefix string `json:"prefix,omitempty"`
	// Instance is the end of the objects' names: each VM uploads its own snapshots.
	Instance string `json:"instance"`
	// Endpoint is the URL of a store that is not S3.
	Endpoint string `json:"endpoint,omitempty"`
	// CredentialsFile is a shared credentials file; without it, the role of the instance has access.
	CredentialsFile string `json:"credentials_file,omitempty"`
	// KMSKey encrypts objects, in place of the bucket's default.
	KMSKey string `json:"kms_key,omitempty"`
}

// object is the name of a snapshot's object. Names of all VMs sort by time.
func (b *Bucket) object(snapshot string) string {
	return path.Join(b.Prefix, strings.TrimSuffix(snapshot, suffix)+"-"+b.Instance+suffix)
}

// destination is where a snapshot is uploaded to.
func (b *Bucket) destination(snapshot string) string {
	url := "s3://" + path.Join(b.Name, b.object(snapshot))
	if b.Endpoint == "" {
		return url
	}
	return url + " at " + b.Endpoint
}

// UploadNewest copies the newest snapshot to the bucket, unless it is there already or there is no bucket.
func (c *Config) UploadNewest(ctx context.Context, now time.Time, log *slog.Logger) error {
	names, err := c.list(now)
	if err != nil || c.Bucket == nil || len(names) == 0 {
		return err
	}
	newest, record := names[len(names)-1], filepath.Join(c.Dir, uploadedFile)
	last, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to := c.Bucket.destination(newest)
	if string(last) == to {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	if err := c.Bucket.upload(ctx, filepath.Join(c.Dir, newest)); err != nil {
		return fmt.Errorf("upload %s to %s (property snapshots.s3): %w", newest, to, refusals.Explain(err))
	}
	log.Info("snapshot uploaded", "name", newest, "to", to)
	return atomicfile.Write(record, []byte(to), 0o600)
}

func (b *Bucket) upload(ctx context.Context, snapshot string) error {
	client, err := s3client.New(
		ctx, s3client.Options{Region: b.Region, Endpoint: b.Endpoint, CredentialsFile: b.CredentialsFile},
	)
	if err != nil {
		return err
	}
	content, err := os.Open(snapshot)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	if info, err := content.Stat(); err != nil || info.Size() > maxUpload {
		return cmp.Or(err, fmt.Errorf("it has more than %d bytes", int64(maxUpload)))
	}
	input := &s3.PutObjectInput{Bucket: &b.Name, Key: aws.String(b.object(filepath.Base(snapshot))), Body: content}
	if b.KMSKey != "" {
		input.ServerSideEncryption, input.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, &b.KMSKey
	}
	_, err = client.PutObject(ctx, input)
	return err
}

// refusals is what an operator can do about each.
var refusals = s3client.Advice{
	AccessDenied: "allow s3:PutObject on this name to the role of the instance or the owner of " +
		"snapshots.s3.access_key_id, and kms:GenerateDataKey on the key that encrypts the bucket",
	NoSuchBucket: "create the bucket, or correct snapshots.s3.bucket",
	WrongRegion:  "set snapshots.s3.region to the region of the bucket",
}
