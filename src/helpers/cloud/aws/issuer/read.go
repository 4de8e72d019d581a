package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"kubernetes-release/internal/s3client"
)

// contentError is an answer with another content than expected.
type contentError struct{ error }

// maxDocument limits a document in bytes.
const maxDocument = 1 << 20

// Read reads what an issuer publishes, without credentials, as AWS does. The client is for issuers that are not URLs of
// S3: those are read with the SDK, whose endpoint can be set.
func Read(ctx context.Context, issuer string, client *http.Client) (*Documents, error) {
	documents := &Documents{}
	if err := read(ctx, issuer+"/"+DiscoveryPath, client, &documents.Discovery); err != nil {
		return nil, err
	}
	if documents.Discovery.Issuer != issuer {
		return documents, contentError{fmt.Errorf(
			"%s/%s is the document of %q", issuer, DiscoveryPath, documents.Discovery.Issuer,
		)}
	}
	if !strings.HasPrefix(documents.Discovery.KeysURL, "https://") {
		return documents, contentError{fmt.Errorf("jwks_uri of %s is %q", issuer, documents.Discovery.KeysURL)}
	}
	return documents, read(ctx, documents.Discovery.KeysURL, client, &documents.Keys)
}

func read(ctx context.Context, address string, client *http.Client, into any) error {
	body, err := open(ctx, address, client)
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	defer func() { _ = body.Close() }()
	content, err := io.ReadAll(io.LimitReader(body, maxDocument))
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return contentError{fmt.Errorf("read %s: %w", address, err)}
	}
	return nil
}

func open(ctx context.Context, address string, client *http.Client) (io.ReadCloser, error) {
	if object := parseObject(address); object != nil && endpointIsSet() {
		store, err := s3client.New(ctx, s3client.Options{Region: object.region, Anonymous: true})
		if err != nil {
			return nil, err
		}
		out, err := store.GetObject(ctx, &s3.GetObjectInput{Bucket: &object.bucket, Key: &object.key})
		if err != nil {
			return nil, err
		}
		return out.Body, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(refusal{response.StatusCode, response.Status}, response.Body.Close())
	}
	return response.Body, nil
}

// endpointIsSet reports whether S3 is elsewhere than at the names of its URLs.
func endpointIsSet() bool {
	return os.Getenv("AWS_ENDPOINT_URL") != "" || os.Getenv("AWS_ENDPOINT_URL_S3") != ""
}

type objectName struct{ bucket, region, key string }

// s3Host matches the host of a URL of S3 (Amazon S3 user guide, "Virtual hosting of general purpose buckets").
var s3Host = regexp.MustCompile(`^(?:([a-z0-9-]+)\.)?s3\.([a-z0-9-]+)\.amazonaws\.(?:com|com\.cn|eu)$`)

// parseObject is the object that a URL of S3 names; nil for other URLs.
func parseObject(address string) *objectName {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	match := s3Host.FindStringSubmatch(u.Host)
	if match == nil {
		return nil
	}
	object := &objectName{bucket: match[1], region: match[2], key: strings.TrimPrefix(u.Path, "/")}
	if object.bucket == "" {
		object.bucket, object.key, _ = strings.Cut(object.key, "/")
	}
	return object
}
