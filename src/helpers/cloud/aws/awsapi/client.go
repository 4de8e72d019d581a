// Package awsapi makes the calls of AWS that the checks need. None of them changes anything. It converts the SDK's
// answers to the types of package resource, and retries what AWS throttles.
package awsapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/internal/poll"
)

// Client holds the clients of one run and records their calls.
type Client struct {
	ec2      *ec2.Client
	elb      *elb.Client
	elbv2    *elbv2.Client
	iam      *iam.Client
	kms      *kms.Client
	sts      *sts.Client
	HTTP     *http.Client
	recorder *Recorder
	Log      func(msg string, args ...any)
	Pace     *Pace // nil: calls are not retried
}

// New returns clients for a region that sign with the given credentials. Endpoints come from the overrides, endpoint if
// it is not empty, and the SDK's environment variables.
func New(
	ctx context.Context,
	region, endpoint string,
	current awssdk.CredentialsProvider,
	overrides []cloudconfig.Override,
	r *Recorder,
) (*Client, error) {
	cfg, client, err := awsclient.Config(
		ctx, region, endpoint, current,
		config.WithRetryer(func() awssdk.Retryer { return awssdk.NopRetryer{} }), // this package retries by itself
		config.WithAPIOptions([]func(*middleware.Stack) error{r.record}),
	)
	if err != nil {
		return nil, err
	}
	result := &Client{
		HTTP: client, iam: iam.NewFromConfig(cfg), kms: kms.NewFromConfig(cfg), sts: sts.NewFromConfig(cfg),
		recorder: r,
	}
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

// OfOperator returns a client for calls of EC2 with an operator's own SDK client, which retries them.
func OfOperator(client *ec2.Client) *Client { return &Client{ec2: client} }

// Role returns the credentials of another role, which are requested with the same headers as by the cloud controller,
// because a trust policy may require them (NewStsClient in cloud-provider-aws).
func (a *Client) Role(roleARN, sourceARN string) *awssdk.CredentialsCache {
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

// Call makes one call and retries it as long as AWS throttles it and the context is not done.
func Call[T any](ctx context.Context, a *Client, action string, f func(context.Context) (T, error)) (T, error) {
	out, err := f(ctx)
	if awserr.Classify(err) != awserr.Throttled || a.Pace == nil {
		return out, err
	}
	throttled, attempts, waited := err, 1, false
	select {
	case <-a.Pace.turn:
	default:
		waited = true // the call that was retried before this one has succeeded when the turn comes
		select {
		case <-a.Pace.turn:
		case <-ctx.Done():
			return out, &ThrottledOut{err: err, attempts: attempts}
		}
	}
	defer func() { a.Pace.turn <- struct{}{} }()
	for {
		pause := time.Duration(0)
		if !waited || attempts > 1 {
			pause = a.Pace.next(ctx)
		}
		a.Log(
			"waiting because AWS throttles calls", "action", action, "attempt", attempts, "pause",
			pause.Round(time.Millisecond), "error", awserr.Describe(throttled),
		)
		if poll.Sleep(ctx, pause) != nil {
			return out, &ThrottledOut{err: throttled, attempts: attempts}
		}
		out, err = f(ctx)
		attempts++
		switch {
		case ctx.Err() != nil && err != nil:
			return out, &ThrottledOut{err: throttled, attempts: attempts}
		case awserr.Classify(err) != awserr.Throttled:
			return out, err
		}
		throttled = err
	}
}

// page is one answer of an action that lists, with the token of the next.
type page[T any] struct {
	items []T
	next  *string
}

// list asks for all pages.
func list[T any](
	ctx context.Context, a *Client, action string, ask func(ctx context.Context, token *string) (page[T], error),
) ([]T, error) {
	var all []T
	for token := (*string)(nil); ; {
		p, err := Call(ctx, a, action, func(ctx context.Context) (page[T], error) { return ask(ctx, token) })
		if err != nil {
			return nil, err
		}
		all = append(all, p.items...)
		if token = p.next; awssdk.ToString(token) == "" {
			return all, nil
		}
	}
}
