package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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

	"kubernetes-release/node"
)

// instanceMetadata describes this machine according to instance metadata.
type instanceMetadata struct {
	InstanceID string
	Region     string
	Zone       string
	Hostname   string // the private DNS name
	Address    string // the primary private IPv4 address
	VPC        string // empty if metadata lacks it
	Subnet     string // empty if metadata lacks it
	Groups     []string
	ProfileARN string // empty without an instance profile
}

// identity returns the identity of the instance as a node.
func (m instanceMetadata) identity() node.Identity {
	return node.Identity{
		Name:       m.Hostname,
		ProviderID: providerID(m.Zone, m.InstanceID),
		Address:    m.Address,
		Region:     m.Region,
		Zone:       m.Zone,
	}
}

// providerID is the cloud controller manager's ID of an instance.
func providerID(zone, instance string) string { return fmt.Sprintf("aws:///%s/%s", zone, instance) }

// roleCredentials are temporary credentials of the instance's role. They are never written anywhere.
type roleCredentials struct {
	Role            string
	AccessKeyID     string
	SecretAccessKey string
	Token           string
	Expires         time.Time
}

// sdk converts the credentials to the SDK's type.
func (c roleCredentials) sdk() awssdk.Credentials {
	return awssdk.Credentials{
		AccessKeyID:     c.AccessKeyID,
		SecretAccessKey: c.SecretAccessKey,
		SessionToken:    c.Token,
		Source:          "instance metadata",
	}
}

// String hides the secrets from anything that formats the value.
func (c roleCredentials) String() string { return "credentials of role " + c.Role }

// GoString hides the secrets from %#v as well.
func (c roleCredentials) GoString() string { return c.String() }

// metadataFault is a wrong or missing answer of instance metadata, described for operators.
type metadataFault struct {
	kind  faultKind
	found string
}

type faultKind int

const (
	faultUnreachable faultKind = iota // nothing answers
	// connections are accepted but replies are lost, for example because the hop limit is too low
	faultNoReply
	faultDisabled    // 403
	faultNoTokens    // the endpoint does not support IMDSv2
	faultSwitchedOff // by the environment of this process
	faultNotFound    // 404
	faultServer      // any other status
	faultMalformed   // an answer that cannot be decoded
)

func (f *metadataFault) Error() string { return f.found }

// metadataClient reads instance metadata with session tokens (IMDSv2) only.
type metadataClient struct {
	client  *imds.Client
	replies *replies
	http    *http.Client
}

// ownClient builds a client whose idle connections can be closed, which is not possible with the clients that the SDK
// builds. AWS does not redirect.
func ownClient(b *awshttp.BuildableClient) *http.Client {
	return &http.Client{
		Transport: b.GetTransport(), Timeout: b.GetTimeout(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Timeouts of instance metadata, which is close to the machine. They are longer than the SDK's own, to tell slow
// answers from missing ones.
const (
	metadataDialTimeout  = time.Second
	metadataReplyTimeout = 3 * time.Second
)

// sdkReplyTimeout is how long the AWS SDK in the cloud controller and in kubelet's credential provider waits for an
// answer.
const sdkReplyTimeout = 500 * time.Millisecond

// newMetadataClient returns a client for the endpoint, which defaults to the one in the SDK's own environment variables
// and then to 169.254.169.254. The timeout is that of one answer; 0: metadataReplyTimeout.
func newMetadataClient(ctx context.Context, endpoint string, timeout time.Duration) (*metadataClient, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}),
		config.WithRegion("metadata"), config.WithCredentialsProvider(awssdk.AnonymousCredentials{}))
	if err != nil {
		return nil, fmt.Errorf("configure the instance metadata client: %w", err)
	}
	if timeout == 0 {
		timeout = metadataReplyTimeout
	}
	httpClient := ownClient(awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = metadataDialTimeout }).
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
	return &metadataClient{client: client, replies: recorded, http: httpClient}, nil
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
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			started := time.Now()
			out, metadata, err := next.HandleDeserialize(ctx, in)
			if err == nil {
				l.add(time.Since(started))
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

// median is the time that half of the answers took at most.
func (l *replies) median() time.Duration {
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
func (c *metadataClient) get(ctx context.Context, path string) (string, error) {
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
		return "", &metadataFault{faultNoReply, fmt.Sprintf("the answer for %s is incomplete: %v", path, err)}
	}
	return string(content), nil
}

// fault interprets an error of the SDK.
func (c *metadataClient) fault(path string, err error) *metadataFault {
	if strings.Contains(err.Error(), "access disabled to EC2 IMDS") {
		return &metadataFault{
			faultSwitchedOff,
			"AWS_EC2_METADATA_DISABLED=true is set in the environment of this process",
		}
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		status := response.HTTPStatusCode()
		kind := faultServer
		switch status {
		case http.StatusNotFound:
			kind = faultNotFound
		case http.StatusForbidden:
			kind = faultDisabled
		}
		return &metadataFault{kind, fmt.Sprintf("%s answered HTTP %d %s", path, status, http.StatusText(status))}
	}
	status, tokenErr := c.replies.token()
	switch {
	case status == http.StatusForbidden:
		return &metadataFault{
			faultDisabled,
			"the request for a session token was answered HTTP 403 Forbidden: instance metadata is disabled for this " +
				"instance",
		}
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return &metadataFault{
			faultNoTokens,
			fmt.Sprintf(
				"the request for a session token was answered HTTP %d: the endpoint does not support IMDSv2", status,
			),
		}
	case status >= 400:
		return &metadataFault{
			faultServer,
			fmt.Sprintf("the request for a session token was answered HTTP %d %s", status, http.StatusText(status)),
		}
	}
	if tokenErr != nil {
		err = tokenErr
	}
	reason := rootMessage(err)
	if strings.Contains(reason, "awaiting response headers") || strings.Contains(reason, "EOF") {
		return &metadataFault{faultNoReply, "the connection is accepted, but there is no reply: " + reason}
	}
	return &metadataFault{faultUnreachable, "no answer: " + reason}
}

var (
	instanceIDForm = regexp.MustCompile(`^i-[0-9a-f]{8,32}$`)
	zoneForm       = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
)

// parseIdentityDocument reads the instance identity document. The fields of a node's identity must be present and well
// formed.
func parseIdentityDocument(content string) (instanceMetadata, error) {
	var document struct{ InstanceID, Region, AvailabilityZone, PrivateIP string }
	if err := json.Unmarshal([]byte(content), &document); err != nil {
		return instanceMetadata{}, fmt.Errorf("the instance identity document is not JSON: %w", err)
	}
	switch {
	case !instanceIDForm.MatchString(document.InstanceID):
		return instanceMetadata{}, fmt.Errorf(
			"the instance identity document has the instance id %q", clip(document.InstanceID),
		)
	case !zoneForm.MatchString(document.Region):
		return instanceMetadata{}, fmt.Errorf("the instance identity document has the region %q", clip(document.Region))
	case !zoneForm.MatchString(document.AvailabilityZone):
		return instanceMetadata{}, fmt.Errorf(
			"the instance identity document has the zone %q", clip(document.AvailabilityZone),
		)
	}
	if a, err := netip.ParseAddr(document.PrivateIP); err != nil || !a.Is4() {
		return instanceMetadata{}, fmt.Errorf(
			"the instance identity document has the private address %q", clip(document.PrivateIP),
		)
	}
	return instanceMetadata{
		InstanceID: document.InstanceID,
		Region:     document.Region,
		Zone:       document.AvailabilityZone,
		Address:    document.PrivateIP,
	}, nil
}

// parseProfile reads iam/info and returns the ARN of the instance profile.
func parseProfile(content string) (string, error) {
	var info struct{ Code, InstanceProfileArn string }
	if err := json.Unmarshal([]byte(content), &info); err != nil {
		return "", fmt.Errorf("iam/info is not JSON: %w", err)
	}
	if !strings.EqualFold(info.Code, "Success") {
		return "", fmt.Errorf("iam/info has the code %q", clip(info.Code))
	}
	if !strings.HasPrefix(info.InstanceProfileArn, "arn:") {
		return "", fmt.Errorf("iam/info has the instance profile ARN %q", clip(info.InstanceProfileArn))
	}
	return info.InstanceProfileArn, nil
}

// parseCredentials reads the credentials of a role, which must be usable at the given time. Errors never quote the
// document.
func parseCredentials(role, content string, now time.Time) (roleCredentials, error) {
	var document struct {
		Code, AccessKeyID, SecretAccessKey, Token string
		Expiration                                string
	}
	if err := json.Unmarshal([]byte(content), &document); err != nil {
		return roleCredentials{}, fmt.Errorf("the credentials of role %s are not JSON", role)
	}
	if !strings.EqualFold(document.Code, "Success") {
		return roleCredentials{}, fmt.Errorf(
			"the credentials of role %s have the code %q instead of Success", role, clip(document.Code),
		)
	}
	if document.AccessKeyID == "" || document.SecretAccessKey == "" || document.Token == "" {
		return roleCredentials{}, fmt.Errorf("the credentials of role %s lack the key, the secret or the token", role)
	}
	expires, err := time.Parse(time.RFC3339, document.Expiration)
	if err != nil {
		return roleCredentials{}, fmt.Errorf(
			"the credentials of role %s expire at %q, which is not a time", role, clip(document.Expiration),
		)
	}
	if !expires.After(now) {
		return roleCredentials{}, fmt.Errorf(
			"the credentials of role %s expired at %s; it is %s here", role, expires.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339),
		)
	}
	return roleCredentials{
		Role:            role,
		AccessKeyID:     document.AccessKeyID,
		SecretAccessKey: document.SecretAccessKey,
		Token:           document.Token,
		Expires:         expires,
	}, nil
}

// parseHostname takes the first of the names in local-hostname (a VPC with several domain names lists one for each).
func parseHostname(content string) (string, error) {
	fields := strings.Fields(strings.ToLower(content))
	if len(fields) == 0 {
		return "", errors.New("local-hostname is empty")
	}
	return fields[0], nil
}

// instance reads the identity document. The error is a *metadataFault.
func (c *metadataClient) instance(ctx context.Context) (instanceMetadata, error) {
	document, err := c.get(ctx, "dynamic/instance-identity/document")
	if err != nil {
		return instanceMetadata{}, err
	}
	m, err := parseIdentityDocument(document)
	if err != nil {
		return instanceMetadata{}, &metadataFault{faultMalformed, err.Error()}
	}
	return m, nil
}

// network adds the instance's name, VPC, subnet and security groups, as far as metadata has them. The error is a
// *metadataFault.
func (c *metadataClient) network(ctx context.Context, m instanceMetadata) (instanceMetadata, error) {
	var hostname, mac string
	err := inParallel(
		func() (err error) { hostname, err = c.get(ctx, "meta-data/local-hostname"); return },
		func() (err error) { mac, err = c.optional(ctx, "meta-data/mac"); return },
	)
	if err != nil {
		return instanceMetadata{}, err
	}
	if m.Hostname, err = parseHostname(hostname); err != nil {
		return instanceMetadata{}, &metadataFault{faultMalformed, err.Error()}
	}
	if err := m.identity().Validate(); err != nil {
		return instanceMetadata{}, &metadataFault{
			faultMalformed,
			"instance metadata contains no usable node identity: " + err.Error(),
		}
	}
	if mac = strings.TrimSpace(mac); mac == "" || strings.ContainsAny(mac, "/ \n") {
		return m, nil
	}
	var groups string
	base := "meta-data/network/interfaces/macs/" + mac + "/"
	err = inParallel(
		func() (err error) { m.VPC, err = c.optional(ctx, base+"vpc-id"); return },
		func() (err error) { m.Subnet, err = c.optional(ctx, base+"subnet-id"); return },
		func() (err error) { groups, err = c.optional(ctx, base+"security-group-ids"); return },
	)
	m.VPC, m.Subnet, m.Groups = strings.TrimSpace(m.VPC), strings.TrimSpace(m.Subnet), strings.Fields(groups)
	return m, err
}

// optional is get, except that it returns "" for a path that does not exist.
func (c *metadataClient) optional(ctx context.Context, path string) (string, error) {
	content, err := c.get(ctx, path)
	var fault *metadataFault
	if errors.As(err, &fault) && fault.kind == faultNotFound {
		return "", nil
	}
	return content, err
}

// profile returns the ARN of the instance profile, or "" if there is none.
func (c *metadataClient) profile(ctx context.Context) (string, error) {
	content, err := c.optional(ctx, "meta-data/iam/info")
	if err != nil || content == "" {
		return "", err
	}
	arn, err := parseProfile(content)
	if err != nil {
		return "", &metadataFault{faultMalformed, err.Error()}
	}
	return arn, nil
}

// credentials returns those of the instance's role, or only its name if they cannot be used. The error is a
// *metadataFault.
func (c *metadataClient) credentials(ctx context.Context, now time.Time) (roleCredentials, error) {
	list, err := c.get(ctx, "meta-data/iam/security-credentials/")
	if err != nil {
		return roleCredentials{}, err
	}
	role, _, _ := strings.Cut(strings.TrimSpace(list), "\n") // as every SDK does: the first line
	role = strings.TrimSpace(role)
	if role == "" || strings.ContainsAny(role, "/<> ") {
		return roleCredentials{}, &metadataFault{
			faultMalformed,
			fmt.Sprintf("the list of roles in iam/security-credentials/ starts with %q", clip(role)),
		}
	}
	content, err := c.get(ctx, "meta-data/iam/security-credentials/"+role)
	if err != nil {
		return roleCredentials{Role: role}, err
	}
	credentials, err := parseCredentials(role, content, now)
	if err != nil {
		return roleCredentials{Role: role}, &metadataFault{faultMalformed, err.Error()}
	}
	return credentials, nil
}
