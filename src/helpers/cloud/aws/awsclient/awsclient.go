// Package awsclient has what all clients of AWS share: how they connect, and to which endpoints.
package awsclient

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/arn"
)

// DialTimeout limits one connection, callTimeout one call with its answer.
const (
	DialTimeout = 5 * time.Second
	CallTimeout = 30 * time.Second
)

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

// RegistryEndpoint is the URL of the region's container registry API, or of its replacement in the SDK's environment
// variables.
func RegistryEndpoint(region string) *url.URL {
	for _, name := range []string{"AWS_ENDPOINT_URL_ECR", "AWS_ENDPOINT_URL"} {
		if u, err := url.Parse(os.Getenv(name)); err == nil && u.Host != "" {
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
