// Package metadata reads who this instance is, and its role's credentials, from instance metadata (IMDSv2 only).
package metadata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/internal/stopwatch"
)

// Client reads instance metadata with session tokens (IMDSv2) only.
type Client struct {
	client  *imds.Client
	Replies *replies
	HTTP    *http.Client
}

// Timeouts of instance metadata, which is close to the machine. They are longer than the SDK's own, to tell slow
// answers from missing ones.
const (
	dialTimeout  = time.Second
	replyTimeout = 3 * time.Second
)

// SDKReplyTimeout is how long the AWS SDK in the cloud controller and in kubelet's credential provider waits for an
// answer.
const SDKReplyTimeout = 500 * time.Millisecond

// New returns a client for the endpoint, which defaults to the one in the SDK's own environment variables
// and then to 169.254.169.254. The timeout is that of one answer; 0: metadataReplyTimeout.
func New(ctx context.Context, endpoint string, timeout time.Duration) (*Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}),
		config.WithRegion("metadata"), config.WithCredentialsProvider(awssdk.AnonymousCredentials{}))
	if err != nil {
		return nil, fmt.Errorf("configure the instance metadata client: %w", err)
	}
	if timeout == 0 {
		timeout = replyTimeout
	}
	httpClient := awsclient.New(awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout }).
		WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = timeout }))
	recorded := &replies{}
	client := imds.NewFromConfig(cfg, func(o *imds.Options) {
		o.EnableFallback = awssdk.FalseTernary
		if endpoint != "" {
			o.Endpoint = endpoint
		}
		o.HTTPClient = httpClient
		o.Retryer = retry.NewStandard(
			func(o *retry.StandardOptions) { // the second attempt is for a token that has expired
				o.MaxAttempts, o.MaxBackoff = 2, 100*time.Millisecond
			},
		)
		o.DisableDefaultMaxBackoff = true // one second, which would replace the above
		o.APIOptions = append(o.APIOptions, recorded.record)
	})
	return &Client{client: client, Replies: recorded, HTTP: httpClient}, nil
}

// replies records how long answers took, and the result of the last request for a session token, which the SDK's error
// does not show.
type replies struct {
	mu     sync.Mutex
	status int
	err    error
	took   []time.Duration
}

func (l *replies) record(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(
		"Replies",
		func(
			ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
		) (middleware.DeserializeOutput, middleware.Metadata, error) {
			took := stopwatch.Start()
			out, metadata, err := next.HandleDeserialize(ctx, in)
			if err == nil {
				l.add(took())
			}
			request, isHTTP := in.Request.(*smithyhttp.Request)
			if isHTTP && request.Method == http.MethodPut {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.status, l.err = 0, err
				if response, ok := out.RawResponse.(*smithyhttp.Response); ok && response != nil {
					l.status = response.StatusCode
				}
			}
			return out, metadata, err
		},
	), middleware.After)
}

func (l *replies) add(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
}

// Median is the time that half of the answers took at most.
func (l *replies) Median() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.took))
	return sorted[(len(sorted)-1)/2]
}

func (l *replies) token() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status, l.err
}

// maxMetadata limits one answer, in bytes; the longest real one, the identity document, has about 500.
const maxMetadata = 64 << 10

// get reads one path below /latest. The error is a *metadataFault.
func (c *Client) get(ctx context.Context, path string) (string, error) {
	var body io.ReadCloser
	var err error
	if rest, ok := strings.CutPrefix(path, "dynamic/"); ok {
		var out *imds.GetDynamicDataOutput
		if out, err = c.client.GetDynamicData(ctx, &imds.GetDynamicDataInput{Path: rest}); err == nil {
			body = out.Content
		}
	} else {
		var out *imds.GetMetadataOutput
		if out, err = c.client.GetMetadata(
			ctx, &imds.GetMetadataInput{Path: strings.TrimPrefix(path, "meta-data/")},
		); err == nil {
			body = out.Content
		}
	}
	if err != nil {
		return "", c.fault(path, err)
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, maxMetadata))
	if err != nil {
		return "", &Fault{NoReply, fmt.Sprintf("the answer for %s is incomplete: %v", path, err)}
	}
	return string(content), nil
}

// Instance reads the identity document. The error is a *metadataFault.
func (c *Client) Instance(ctx context.Context) (Instance, error) {
	document, err := c.get(ctx, "dynamic/instance-identity/document")
	if err != nil {
		return Instance{}, err
	}
	m, err := parseIdentityDocument(document)
	if err != nil {
		return Instance{}, &Fault{Malformed, err.Error()}
	}
	return m, nil
}

// Network adds the instance's name, VPC, subnet and security groups, as far as metadata has them. The error is a
// *metadataFault.
func (c *Client) Network(ctx context.Context, m Instance) (Instance, error) {
	var hostname, mac string
	err := awsclient.InParallel(
		func() (err error) { hostname, err = c.get(ctx, "meta-data/local-hostname"); return },
		func() (err error) { mac, err = c.optional(ctx, "meta-data/mac"); return },
	)
	if err != nil {
		return Instance{}, err
	}
	if m.Hostname, err = parseHostname(hostname); err != nil {
		return Instance{}, &Fault{Malformed, err.Error()}
	}
	if err := m.Identity().Validate(); err != nil {
		return Instance{}, &Fault{
			Malformed,
			"instance metadata contains no usable node identity: " + err.Error(),
		}
	}
	if mac = strings.TrimSpace(mac); mac == "" || strings.ContainsAny(mac, "/ \n") {
		return m, nil
	}
	var groups string
	base := "meta-data/network/interfaces/macs/" + mac + "/"
	err = awsclient.InParallel(
		func() (err error) { m.VPC, err = c.optional(ctx, base+"vpc-id"); return },
		func() (err error) { m.Subnet, err = c.optional(ctx, base+"subnet-id"); return },
		func() (err error) { groups, err = c.optional(ctx, base+"security-group-ids"); return },
	)
	m.VPC, m.Subnet, m.Groups = strings.TrimSpace(m.VPC), strings.TrimSpace(m.Subnet), strings.Fields(groups)
	return m, err
}

// optional is get, except that it returns "" for a path that does not exist.
func (c *Client) optional(ctx context.Context, path string) (string, error) {
	content, err := c.get(ctx, path)
	var fault *Fault
	if errors.As(err, &fault) && fault.Kind == NotFound {
		return "", nil
	}
	return content, err
}

// Profile returns the ARN of the instance profile, or "" if there is none.
func (c *Client) Profile(ctx context.Context) (string, error) {
	content, err := c.optional(ctx, "meta-data/iam/info")
	if err != nil || content == "" {
		return "", err
	}
	arn, err := parseProfile(content)
	if err != nil {
		return "", &Fault{Malformed, err.Error()}
	}
	return arn, nil
}

// roleForm matches the names that IAM allows for roles
// (https://docs.aws.amazon.com/IAM/latest/APIReference/API_Role.html).
var roleForm = regexp.MustCompile(`^[\w+=,.@-]{1,64}$`)

// Credentials returns those of the instance's role, or only its name if they cannot be used. The error is a
// *metadataFault.
func (c *Client) Credentials(ctx context.Context, now time.Time) (Credentials, error) {
	list, err := c.get(ctx, "meta-data/iam/security-credentials/")
	if err != nil {
		return Credentials{}, err
	}
	role, _, _ := strings.Cut(strings.TrimSpace(list), "\n") // as every SDK does: the first line
	role = strings.TrimSpace(role)
	if !roleForm.MatchString(role) { // it may be the credentials themselves: not quoted
		return Credentials{}, &Fault{
			Malformed,
			"the list of roles in iam/security-credentials/ does not start with the name of a role",
		}
	}
	content, err := c.get(ctx, "meta-data/iam/security-credentials/"+role)
	if err != nil {
		return Credentials{Role: role}, err
	}
	credentials, err := parseCredentials(role, content, now)
	if err != nil {
		return Credentials{Role: role}, &Fault{Malformed, err.Error()}
	}
	return credentials, nil
}

// fault interprets an error of the SDK.
func (c *Client) fault(path string, err error) *Fault {
	if strings.Contains(err.Error(), "access disabled to EC2 IMDS") {
		return &Fault{
			SwitchedOff,
			"AWS_EC2_METADATA_DISABLED=true is set in the environment of this process",
		}
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		status := response.HTTPStatusCode()
		kind := Server
		switch status {
		case http.StatusNotFound:
			kind = NotFound
		case http.StatusForbidden:
			kind = Disabled
		}
		return &Fault{kind, fmt.Sprintf("%s answered HTTP %d %s", path, status, http.StatusText(status))}
	}
	status, tokenErr := c.Replies.token()
	switch {
	case status == http.StatusForbidden:
		return &Fault{
			Disabled,
			"the request for a session token was answered HTTP 403 Forbidden: instance metadata is disabled for this " +
				"instance",
		}
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return &Fault{
			NoTokens,
			fmt.Sprintf(
				"the request for a session token was answered HTTP %d: the endpoint does not support IMDSv2", status,
			),
		}
	case status >= 400:
		return &Fault{
			Server,
			fmt.Sprintf("the request for a session token was answered HTTP %d %s", status, http.StatusText(status)),
		}
	}
	if tokenErr != nil {
		err = tokenErr
	}
	reason := awserr.RootMessage(err)
	if strings.Contains(reason, "awaiting response headers") || strings.Contains(reason, "EOF") {
		return &Fault{NoReply, "the connection is accepted, but there is no reply: " + reason}
	}
	return &Fault{Unreachable, "no answer: " + reason}
}
