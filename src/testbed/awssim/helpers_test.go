package awssim_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

const cluster = "demo"

const clusterTag = "kubernetes.io/cluster/" + cluster

// The instances of testWorld.
const (
	controlID = "i-0000000000000c001"
	workerID  = "i-0000000000000e001"
	bareID    = "i-0000000000000b001" // no profile, no tags
)

// nextNetwork returns a different /16 in 127.0.0.0/8 for each test.
var nextNetwork = struct {
	sync.Mutex
	n byte
}{n: 10}

// testWorld is the lab's world on loopback with three instances, at .10, .11 and .12 of the first node subnet.
func testWorld(t testing.TB) *store.World {
	t.Helper()
	nextNetwork.Lock()
	nextNetwork.n++
	network := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, nextNetwork.n, 0, 0}), 16)
	nextNetwork.Unlock()
	w := awssim.NewLabWorld(awssim.LabOptions{Network: network, Cluster: cluster})
	w.Settings.HealthCheckInterval = store.Duration(50 * time.Millisecond)
	for i, instance := range []store.Instance{
		{
			ID: controlID, InstanceProfile: "kubernetes-control",
			Tags: store.Tags{clusterTag: "owned", "Name": "control/0"},
		},
		{ID: workerID, InstanceProfile: "kubernetes-worker", Tags: store.Tags{clusterTag: "owned", "Name": "worker/0"}},
		{ID: bareID},
	} {
		instance.Subnet = awssim.LabNodeSubnet(1)
		a := network.Addr().As4()
		instance.Address = netip.AddrFrom4([4]byte{a[0], a[1], 16, byte(10 + i)})
		instance.SecurityGroups = []string{awssim.LabSecurityGroup}
		w.Instances = append(w.Instances, instance)
	}
	return w
}

// bed is a running simulator with its endpoints on loopback addresses.
type bed struct {
	t        testing.TB
	sim      *awssim.Simulator
	api      string
	metadata string
}

// clock is a clock that tests can change; if stopped is set, it shows only that time.
type clock struct {
	sync.Mutex
	stopped time.Time
	offset  time.Duration
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped.Add(c.offset)
	}
	return time.Now().Add(c.offset)
}

func (c *clock) advance(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.offset += d
}

func start(t testing.TB, world *store.World, options awssim.Options) *bed {
	t.Helper()
	sim, err := awssim.New(world, options)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, sim: sim}
	b.api = "http://" + serve(t, sim.APIServer())
	b.metadata = "http://" + serve(t, sim.MetadataServer())
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func serve(t testing.TB, server *http.Server) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

// operator has the static key, which allows everything: tests check the first response.
func (b *bed) operator() aws.Config {
	return b.withKeys(credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, ""))
}

func (b *bed) withKeys(provider aws.CredentialsProvider) aws.Config {
	return aws.Config{
		Region: awssim.LabRegion, Credentials: provider, BaseEndpoint: aws.String(b.api),
		Retryer: firstResponse,
	}
}

// firstResponse returns a retryer that hands every response and every reset to the test. It repeats only what failed
// because this process closed the connection by itself, which happens now and then between net/http's goroutines under
// load and which the SDK repeats too (RetryableConnectionError in aws-sdk-go-v2's aws/retry/retryable_error.go).
func firstResponse() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.Retryables = []retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			return aws.BoolTernary(strings.Contains(err.Error(), "use of closed network connection"))
		})}
	})
}

// from sends requests from an instance's address.
func (b *bed) from(instance string) *http.Client {
	b.t.Helper()
	for _, i := range b.sim.World().Instances {
		if i.ID == instance {
			return fromAddress(i.Address)
		}
	}
	b.t.Fatalf("no instance %s", instance)
	return nil
}

func fromAddress(a netip.Addr) *http.Client {
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))}
	return &http.Client{
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		Timeout:   5 * time.Second,
	}
}

func (b *bed) imds(instance string) *imds.Client {
	return imds.New(imds.Options{Endpoint: b.metadata, HTTPClient: b.from(instance), Retryer: aws.NopRetryer{}})
}

// instanceRole is the configuration that a program on the instance loads, with credentials from instance metadata.
func (b *bed) instanceRole(instance string) aws.Config {
	b.t.Helper()
	b.t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", b.metadata)
	b.t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	b.t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	b.t.Setenv("AWS_CA_BUNDLE", "")
	b.t.Setenv("AWS_ACCESS_KEY_ID", "")
	b.t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	c, err := config.LoadDefaultConfig(context.Background(),
		config.WithRegion(awssim.LabRegion), config.WithHTTPClient(b.from(instance)), config.WithBaseEndpoint(b.api),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }))
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

type clients struct {
	acm   *acm.Client
	ec2   *ec2.Client
	elb   *elb.Client
	elbv2 *elbv2.Client
	iam   *iam.Client
	sts   *sts.Client
}

func newClients(c aws.Config) clients { return newClientsAt(c, time.Now) }

// newClientsAt returns clients on a machine whose clock is wrong.
func newClientsAt(c aws.Config, now func() time.Time) clients {
	s := newSigner(now)
	return clients{
		acm.NewFromConfig(c, func(o *acm.Options) { o.HTTPSignerV4 = s }),
		ec2.NewFromConfig(c, func(o *ec2.Options) { o.HTTPSignerV4 = s }),
		elb.NewFromConfig(c, func(o *elb.Options) { o.HTTPSignerV4 = s }),
		elbv2.NewFromConfig(c, func(o *elbv2.Options) { o.HTTPSignerV4 = s }),
		iam.NewFromConfig(c, func(o *iam.Options) { o.HTTPSignerV4 = s }),
		sts.NewFromConfig(c, func(o *sts.Options) { o.HTTPSignerV4 = s }),
	}
}

// signer dates requests with its own clock.
type signer struct {
	*v4.Signer
	now func() time.Time
}

func newSigner(now func() time.Time) *signer { return &signer{v4.NewSigner(), now} }

func (s *signer) SignHTTP(
	ctx context.Context, keys aws.Credentials, r *http.Request, payloadHash, service, region string, _ time.Time,
	options ...func(*v4.SignerOptions),
) error {
	return s.Signer.SignHTTP(ctx, keys, r, payloadHash, service, region, s.now(), options...)
}

// code is the error code of an API error, "" for nil, the text of any other.
func code(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

// wantCode fails the test unless the error has the code; "" means success.
func wantCode(t testing.TB, what string, err error, want string) {
	t.Helper()
	if got := code(err); got != want {
		t.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}

// backend responds with its name to each connection on the address, in place of a NodePort.
func backend(t testing.TB, address netip.Addr, port int, name string) (stop func()) {
	t.Helper()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }),
	}
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(address, uint16(port)).String())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return func() { server.Close() }
}
