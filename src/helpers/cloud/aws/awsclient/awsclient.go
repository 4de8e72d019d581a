// Package awsclient has what all clients of AWS share: how they connect, and to which endpoints.
package awsclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/arn"
)

// dialTimeout limits one connection, callTimeout one call with its answer.
const (
	dialTimeout = 5 * time.Second
	callTimeout = 30 * time.Second
)

// Config returns the SDK's configuration for a region, and the HTTP client in it. endpoint is the URL of all APIs; if
// it is empty, the SDK's environment variables decide. The SDK's files are not read, so that only the instance's role
// can be used.
func Config(
	ctx context.Context, region, endpoint string, credentials awssdk.CredentialsProvider,
	options ...func(*config.LoadOptions) error,
) (awssdk.Config, *http.Client, error) {
	client := awshttp.NewBuildableClient().WithTimeout(callTimeout).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })
	options = append(options,
		config.WithRegion(region), config.WithCredentialsProvider(credentials),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}),
		config.WithHTTPClient(client),
	)
	if endpoint != "" {
		options = append(options, config.WithBaseEndpoint(endpoint))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return awssdk.Config{}, nil, fmt.Errorf("configure the AWS clients: %w", err)
	}
	if withAuthorities, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // those of AWS_CA_BUNDLE
		client = withAuthorities
	}
	own := New(client)
	cfg.HTTPClient = own
	return cfg, own, nil
}

// Filter selects resources in a describe call of EC2.
func Filter(name string, values ...string) types.Filter {
	return types.Filter{Name: awssdk.String(name), Values: values}
}

// InParallel runs all tasks and returns the first error in the order of the arguments.
func InParallel(tasks ...func() error) error {
	errs := make([]error, len(tasks))
	var wg sync.WaitGroup
	for i, task := range tasks {
		wg.Go(func() { errs[i] = task() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// New builds a client whose idle connections can be closed, which is not possible with the clients that the SDK
// builds. AWS does not redirect.
func New(b *awshttp.BuildableClient) *http.Client {
	return &http.Client{
		Transport: b.GetTransport(), Timeout: b.GetTimeout(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RegistryEndpoint is the URL of the region's container registry API, or its replacement: the endpoint of all APIs, or
// that in the SDK's environment variables.
func RegistryEndpoint(region, endpoint string) *url.URL {
	for _, text := range []string{endpoint, os.Getenv("AWS_ENDPOINT_URL_ECR"), os.Getenv("AWS_ENDPOINT_URL")} {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			return &url.URL{Scheme: u.Scheme, Host: u.Host}
		}
	}
	return &url.URL{Scheme: "https", Host: fmt.Sprintf("api.ecr.%s.%s", region, arn.PartitionOf(region).Domain)}
}

// HostPort is the address that a URL stands for.
func HostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
