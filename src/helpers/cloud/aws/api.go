package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"kubernetes-release/helpers/preflight"
)

// api holds the clients of one run and records what they do.
type api struct {
	ec2      *ec2.Client
	elb      *elb.Client
	elbv2    *elbv2.Client
	iam      *iam.Client
	http     *http.Client
	recorder *recorder
	log      func(msg string, args ...any)
	pace     *pace
}

// pace spaces the repeated calls of a run that AWS throttles. Only one of the run's calls is repeated at a time: the others
// follow once it got through, when their quotas have filled up again, instead of being refused alongside it.
type pace struct {
	now    func() time.Time
	turn   chan struct{} // holds one element
	spread preflight.Spread
	begun  time.Time // when the first call was throttled; guarded by turn, as is spread
}

// newPace returns the pace for the spans given. EC2 admits 100 calls of a kind at once and 20 a second; a crowd that it
// throttles is through at most a span later than that allows, which is 15 % of the time.
func newPace(now func() time.Time, first time.Duration) *pace {
	p := &pace{now: now, turn: make(chan struct{}, 1), spread: preflight.Spread{First: first, Growth: 1.15}}
	p.turn <- struct{}{}
	return p
}

// throttleSpan is the first span over which throttled machines spread: EC2 serves 400 of them in it.
const throttleSpan = 20 * time.Second

// lastChance is how long before the deadline a last attempt is made.
const lastChance = 2 * time.Second

// next is the pause before the next attempt, not beyond the deadline of the context.
func (p *pace) next(ctx context.Context) time.Duration {
	now := p.now()
	if p.begun.IsZero() {
		p.begun = now
	}
	pause := p.spread.Next(now.Sub(p.begun))
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > lastChance {
			pause = min(pause, left-lastChance)
		}
	}
	return pause
}

// dialTimeout bounds one connection, callTimeout one call with its answer.
const (
	dialTimeout = 5 * time.Second
	callTimeout = 30 * time.Second
)

// newAPI returns clients for a region that sign with the credentials that the function returns. Endpoints come from
// the SDK's environment variables; its files are not read, so that nothing but the instance's role can be used.
func newAPI(ctx context.Context, region string, current func() roleCredentials, r *recorder) (*api, error) {
	client := awshttp.NewBuildableClient().WithTimeout(callTimeout).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(region),
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}),
		config.WithCredentialsProvider(awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
			c := current()
			return awssdk.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.Token, Source: "instance metadata"}, nil
		})),
		config.WithRetryer(func() awssdk.Retryer { return awssdk.NopRetryer{} }), // repeating is this package's business
		config.WithHTTPClient(client),
		config.WithAPIOptions([]func(*middleware.Stack) error{r.record}),
	)
	if err != nil {
		return nil, fmt.Errorf("configure the AWS clients: %w", err)
	}
	if withAuthorities, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // those of AWS_CA_BUNDLE
		client = withAuthorities
	}
	own := ownClient(client)
	cfg.HTTPClient = own
	return &api{http: own, ec2: ec2.NewFromConfig(cfg), elb: elb.NewFromConfig(cfg), elbv2: elbv2.NewFromConfig(cfg), iam: iam.NewFromConfig(cfg), recorder: r}, nil
}

// recorder counts calls and remembers what the answers say of the time.
type recorder struct {
	now func() time.Time

	mu    sync.Mutex
	calls map[preflight.Calls]int // keyed with a count of zero
	skew  *time.Duration          // local clock minus AWS's
}

func (r *recorder) record(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("Recorder",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			key := preflight.Calls{Service: awsmiddleware.GetServiceID(ctx), Action: awsmiddleware.GetOperationName(ctx)}
			before := r.now()
			out, metadata, err := next.HandleDeserialize(ctx, in)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls[key]++
			if response, ok := out.RawResponse.(*smithyhttp.Response); ok && response != nil {
				if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
					// The header has whole seconds, and the answer was made between before and now.
					skew := before.Add(r.now().Sub(before) / 2).Sub(date.Add(500 * time.Millisecond))
					r.skew = &skew
				}
			}
			return out, metadata, err
		}), middleware.After)
}

// clockSkew is the local clock minus AWS's; ok is false while nothing has been heard.
func (r *recorder) clockSkew() (skew time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.skew == nil {
		return 0, false
	}
	return *r.skew, true
}

// list returns the calls made, by service and action.
func (r *recorder) list() []preflight.Calls {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]preflight.Calls, 0, len(r.calls))
	for c, n := range r.calls {
		c.Count = n
		calls = append(calls, c)
	}
	sort.Slice(calls, func(i, j int) bool {
		return calls[i].Service+"\x00"+calls[i].Action < calls[j].Service+"\x00"+calls[j].Action
	})
	return calls
}

// errorClass says what an error of a call is about.
type errorClass int

const (
	classNone         errorClass = iota
	classDenied                  // the role lacks a permission
	classCredentials             // the credentials are not accepted at all
	classClock                   // the signature's time is off
	classThrottled               // come again later
	classUnknownID               // EC2 does not know an id (yet)
	classServer                  // AWS failed
	classMalformed               // an answer that cannot be understood
	classUnreachable             // no answer
	classDryRunPassed            // a DryRun call that would have been allowed
	classOther                   // the request itself is refused
)

var classByCode = map[string]errorClass{
	"DryRunOperation":             classDryRunPassed,
	"UnauthorizedOperation":       classDenied,
	"AccessDenied":                classDenied,
	"AccessDeniedException":       classDenied,
	"AuthFailure":                 classCredentials,
	"InvalidClientTokenId":        classCredentials,
	"UnrecognizedClientException": classCredentials,
	"ExpiredToken":                classCredentials,
	"ExpiredTokenException":       classCredentials,
	"SignatureDoesNotMatch":       classCredentials,
	"InvalidSignatureException":   classCredentials,
	"MissingAuthenticationToken":  classCredentials,
	"RequestExpired":              classClock,
	"RequestTimeTooSkewed":        classClock,
	"RequestLimitExceeded":        classThrottled,
	"Throttling":                  classThrottled,
	"ThrottlingException":         classThrottled,
	"ThrottledException":          classThrottled,
	"EC2ThrottledException":       classThrottled,
	"RequestThrottled":            classThrottled,
	"RequestThrottledException":   classThrottled,
	"TooManyRequestsException":    classThrottled,
	"SlowDown":                    classThrottled,
	"InternalError":               classServer,
	"InternalFailure":             classServer,
	"Unavailable":                 classServer,
	"ServiceUnavailable":          classServer,
}

// wouldBeAllowed tells whether the answer to a DryRun call means that the permission is there: EC2 says so, or it
// objects to something that it only looks at once the permission is established.
func wouldBeAllowed(err error) bool {
	var apiError smithy.APIError
	if !errors.As(err, &apiError) {
		return false
	}
	switch code := apiError.ErrorCode(); code {
	case "DryRunOperation", "DependencyViolation", "InvalidGroup.Duplicate":
		return true
	default:
		return strings.HasPrefix(code, "InvalidPermission.")
	}
}

var notFoundCode = regexp.MustCompile(`^Invalid.*\.(NotFound|Malformed)$|NotFound$`)

// classify finds out what an error is about.
func classify(err error) errorClass {
	if err == nil {
		return classNone
	}
	var response *smithyhttp.ResponseError
	status := 0
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	var apiError smithy.APIError
	if errors.As(err, &apiError) {
		class, known := classByCode[apiError.ErrorCode()]
		switch {
		case known:
			return class
		case notFoundCode.MatchString(apiError.ErrorCode()):
			return classUnknownID
		case status == http.StatusTooManyRequests:
			return classThrottled
		case status >= 500:
			return classServer
		}
		return classOther
	}
	var decoding *smithy.DeserializationError
	switch {
	case status >= 500:
		return classServer
	case errors.As(err, &decoding), status != 0:
		return classMalformed
	}
	return classUnreachable
}

// describe puts an error into one short sentence without the wrapping of the SDK.
func describe(err error) string {
	var apiError smithy.APIError
	if errors.As(err, &apiError) && apiError.ErrorCode() != "UnknownError" {
		return fmt.Sprintf("%s: %s", apiError.ErrorCode(), clipLong(apiError.ErrorMessage()))
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() != 0 { // without a status there was no answer
		var decoding *smithy.DeserializationError
		if errors.As(err, &decoding) && response.HTTPStatusCode() < 300 {
			return fmt.Sprintf("an answer that is not understood (HTTP %d): %s", response.HTTPStatusCode(), clipLong(rootMessage(decoding)))
		}
		return fmt.Sprintf("HTTP %d %s", response.HTTPStatusCode(), http.StatusText(response.HTTPStatusCode()))
	}
	return clipLong(rootMessage(err))
}

func clipLong(s string) string {
	const limit = 400
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}

// rootMessage is the innermost error that still says what was attempted.
func rootMessage(err error) string {
	var urlError *url.Error
	if errors.As(err, &urlError) {
		return urlError.Err.Error()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		if _, ok := inner.(*net.OpError); ok {
			return inner.Error()
		}
		err = inner
	}
}

// throttledOut wraps the last error of a call that was throttled until the deadline.
type throttledOut struct {
	err      error
	attempts int
}

func (t *throttledOut) Error() string {
	return fmt.Sprintf("still throttled after %d attempts when the time was up: %s", t.attempts, describe(t.err))
}

func (t *throttledOut) Unwrap() error { return t.err }

// call makes one call and repeats it for as long as AWS throttles it and the context lasts.
func call[T any](ctx context.Context, a *api, action string, f func(context.Context) (T, error)) (T, error) {
	out, err := f(ctx)
	if classify(err) != classThrottled {
		return out, err
	}
	throttled, attempts, waited := err, 1, false
	select {
	case <-a.pace.turn:
	default:
		waited = true // what was throttled before this call has got through when the turn comes
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
		a.log("throttled by AWS, waiting", "action", action, "attempt", attempts, "pause", pause.Round(time.Millisecond), "error", describe(throttled))
		if preflight.Sleep(ctx, pause) != nil {
			return out, &throttledOut{err: throttled, attempts: attempts}
		}
		out, err = f(ctx)
		attempts++
		switch {
		case ctx.Err() != nil && err != nil:
			return out, &throttledOut{err: throttled, attempts: attempts}
		case classify(err) != classThrottled:
			return out, err
		}
		throttled = err
	}
}
