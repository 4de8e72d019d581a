package aws

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/internal/poll"
	"kubernetes-release/preflight"
)

// api holds the clients of one run and records their calls.
type api struct {
	ec2      *ec2.Client
	elb      *elb.Client
	elbv2    *elbv2.Client
	iam      *iam.Client
	sts      *sts.Client
	http     *http.Client
	recorder *recorder
	log      func(msg string, args ...any)
	pace     *pace
}

// pace spaces the retries of calls that AWS throttles. Only one call of the run is retried at a time: the others follow
// once it has succeeded, when their quotas have filled up again, instead of being throttled in parallel.
type pace struct {
	now     func() time.Time
	turn    chan struct{} // holds one element
	spread  preflight.Spread
	started time.Time // when the first call was throttled; guarded by turn, as is spread
}

// newPace returns a pace with the given first span. EC2 admits bursts of 100 calls of a kind and 20 per second;
// machines that it throttles finish at most one span later than that allows, which is 15 % of the time.
func newPace(now func() time.Time, first time.Duration) *pace {
	p := &pace{now: now, turn: make(chan struct{}, 1), spread: preflight.Spread{First: first, Growth: 1.15}}
	p.turn <- struct{}{}
	return p
}

// throttleSpan is the first span over which throttled machines spread their calls: EC2 serves 400 of them in it.
const throttleSpan = 20 * time.Second

// lastChance is how long before the deadline the last attempt starts.
const lastChance = 2 * time.Second

// next returns the pause before the next attempt, which ends before the deadline of the context.
func (p *pace) next(ctx context.Context) time.Duration {
	now := p.now()
	if p.started.IsZero() {
		p.started = now
	}
	pause := p.spread.Next(now.Sub(p.started))
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > lastChance {
			pause = min(pause, left-lastChance)
		}
	}
	return pause
}

// newAPI returns clients for a region that sign with the given credentials. Endpoints come from the overrides and the
// SDK's environment variables; its files are not read, so that only the instance's role can be used.
func newAPI(
	ctx context.Context,
	region string,
	current awssdk.CredentialsProvider,
	overrides []cloudconfig.Override,
	r *recorder,
) (*api, error) {
	client := awshttp.NewBuildableClient().WithTimeout(awsclient.CallTimeout).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = awsclient.DialTimeout })
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(region),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}),
		config.WithCredentialsProvider(current),
		config.WithRetryer(func() awssdk.Retryer { return awssdk.NopRetryer{} }), // this package retries by itself
		config.WithHTTPClient(client),
		config.WithAPIOptions([]func(*middleware.Stack) error{r.record}),
	)
	if err != nil {
		return nil, fmt.Errorf("configure the AWS clients: %w", err)
	}
	if withAuthorities, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // those of AWS_CA_BUNDLE
		client = withAuthorities
	}
	own := awsclient.New(client)
	cfg.HTTPClient = own
	result := &api{http: own, iam: iam.NewFromConfig(cfg), sts: sts.NewFromConfig(cfg), recorder: r}
	var forEC2 []func(*ec2.Options)
	var forELB []func(*elb.Options)
	var forELBv2 []func(*elbv2.Options)
	for _, o := range overrides { // as GetEC2EndpointOpts and GetCustomEC2Resolver in cloud-provider-aws
		switch {
		case o.Region != region:
		case o.Service == ec2.ServiceID:
			forEC2 = append(
				forEC2, ec2.WithSigV4SigningName(o.SigningName), ec2.WithSigV4SigningRegion(o.SigningRegion),
				func(e *ec2.Options) { e.BaseEndpoint = &o.URL },
			)
		case o.Service == elb.ServiceID:
			forELB = append(
				forELB, elb.WithSigV4SigningName(o.SigningName), elb.WithSigV4SigningRegion(o.SigningRegion),
				func(e *elb.Options) { e.BaseEndpoint = &o.URL },
			)
		case o.Service == elbv2.ServiceID:
			forELBv2 = append(
				forELBv2, elbv2.WithSigV4SigningName(o.SigningName), elbv2.WithSigV4SigningRegion(o.SigningRegion),
				func(e *elbv2.Options) { e.BaseEndpoint = &o.URL },
			)
		}
	}
	result.ec2, result.elb, result.elbv2 = ec2.NewFromConfig(
		cfg,
		forEC2...), elb.NewFromConfig(
		cfg,
		forELB...), elbv2.NewFromConfig(
		cfg,
		forELBv2...)
	return result, nil
}

// connect creates the clients, which authenticate as the role that the cloud controller uses.
func (g *gatherer) connect(ctx context.Context) error {
	f := g.facts
	client := func(credentials awssdk.CredentialsProvider) (*api, error) {
		a, err := newAPI(ctx, f.region(), credentials, f.overrides(), g.recorder)
		if err == nil {
			a.pace, a.log = newPace(g.provider.now, g.provider.throttleSpan()), g.log
		}
		return a, err
	}
	own, err := client(
		awssdk.CredentialsProviderFunc(
			func(context.Context) (awssdk.Credentials, error) { return g.currentCredentials().SDK(), nil },
		),
	)
	if err != nil || !f.assumesRole() {
		g.api = own
		return err
	}
	role := own.role(f.conf.RoleARN, f.conf.SourceARN)
	assumed, err := call(ctx, own, assumeAction, role.Retrieve)
	if f.assumeErr = err; err != nil {
		return awserr.NotAsked("the cloud controller cannot assume its role (see assumed-role)")
	}
	g.secrets.Add(assumed.SecretAccessKey, assumed.SessionToken, assumed.AccessKeyID)
	g.api, err = client(role)
	return err
}

// role returns the credentials of another role, which are requested with the same headers as by the cloud controller,
// because a trust policy may require them (NewStsClient in cloud-provider-aws).
func (a *api) role(roleARN, sourceARN string) *awssdk.CredentialsCache {
	account := ""
	if parts := strings.Split(roleARN, ":"); len(parts) > 4 {
		account = parts[4]
	}
	headers := []func(*middleware.Stack) error{smithyhttp.SetHeaderValue("x-amz-source-account", account)}
	if sourceARN != "" {
		headers = append(headers, smithyhttp.SetHeaderValue("x-amz-source-arn", sourceARN))
	}
	client := sts.New(a.sts.Options(), func(o *sts.Options) { o.APIOptions = append(o.APIOptions, headers...) })
	return awssdk.NewCredentialsCache(
		stscreds.NewAssumeRoleProvider(
			client, roleARN, func(o *stscreds.AssumeRoleOptions) { o.RoleSessionName = "cloud-preflight" },
		),
	)
}

// recorder counts calls, compares the time in the answers with the local clock and verifies that they are the API's.
type recorder struct {
	now     func() time.Time
	secrets *preflight.Secrets // removed from answers that messages quote

	mu    sync.Mutex
	calls map[preflight.Calls]int // keyed with a count of zero
	skew  *time.Duration          // local clock minus AWS's
}

func (r *recorder) record(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(
		"Recorder",
		func(
			ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
		) (middleware.DeserializeOutput, middleware.Metadata, error) {
			key := preflight.Calls{
				Service: awsmiddleware.GetServiceID(ctx),
				Action:  awsmiddleware.GetOperationName(ctx),
			}
			before := r.now()
			out, metadata, err := next.HandleDeserialize(ctx, in)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls[key]++
			if response, ok := out.RawResponse.(*smithyhttp.Response); ok && response != nil {
				if err == nil {
					err = verifyAnswer(key.Action, response.Response, r.secrets)
				}
				if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
					// The header has whole seconds, and the answer was created between before and now.
					skew := before.Add(r.now().Sub(before) / 2).Sub(date.Add(500 * time.Millisecond))
					r.skew = &skew
				}
			}
			return out, metadata, err
		},
	), middleware.After)
}

// clockSkew is the local clock minus AWS's; ok is false before the first answer.
func (r *recorder) clockSkew() (skew time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.skew == nil {
		return 0, false
	}
	return *r.skew, true
}

// list returns the calls made, sorted by service and action.
func (r *recorder) list() []preflight.Calls {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]preflight.Calls, 0, len(r.calls))
	for c, n := range r.calls {
		c.Count = n
		calls = append(calls, c)
	}
	slices.SortFunc(calls, func(a, b preflight.Calls) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Action, b.Action))
	})
	return calls
}

// throttledOut wraps the last error of a call that was throttled until the deadline.
type throttledOut struct {
	err      error
	attempts int
}

func (t *throttledOut) Error() string {
	return fmt.Sprintf("still throttled after %d attempts at the deadline: %s", t.attempts, awserr.Describe(t.err))
}

func (t *throttledOut) Unwrap() error { return t.err }

// call makes one call and retries it as long as AWS throttles it and the context is not done.
func call[T any](ctx context.Context, a *api, action string, f func(context.Context) (T, error)) (T, error) {
	out, err := f(ctx)
	if awserr.Classify(err) != awserr.Throttled {
		return out, err
	}
	throttled, attempts, waited := err, 1, false
	select {
	case <-a.pace.turn:
	default:
		waited = true // the call that was retried before this one has succeeded when the turn comes
		select {
		case <-a.pace.turn:
		case <-ctx.Done():
			return out, &throttledOut{err: err, attempts: attempts}
		}
	}
	defer func() { a.pace.turn <- struct{}{} }()
	for {
		pause := time.Duration(0)
		if !waited || attempts > 1 {
			pause = a.pace.next(ctx)
		}
		a.log(
			"waiting because AWS throttles calls", "action", action, "attempt", attempts, "pause",
			pause.Round(time.Millisecond), "error", awserr.Describe(throttled),
		)
		if poll.Sleep(ctx, pause) != nil {
			return out, &throttledOut{err: throttled, attempts: attempts}
		}
		out, err = f(ctx)
		attempts++
		switch {
		case ctx.Err() != nil && err != nil:
			return out, &throttledOut{err: throttled, attempts: attempts}
		case awserr.Classify(err) != awserr.Throttled:
			return out, err
		}
		throttled = err
	}
}
