package aws

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
)

var _ cloud.Attester = (*Provider)(nil)

// session is what one proof, or the verification of one, needs of this instance. It is short, so that it needs to know
// nothing of the rotation of credentials.
type session struct {
	metadata    instanceMetadata
	profile     arn // of the instance profile
	credentials roleCredentials
	config      awssdk.Config
	http        *http.Client
	endpoint    *url.URL // of STS
	close       func()
}

func (s *session) current() roleCredentials { return s.credentials }

// openSession reads instance metadata. Endpoints come from the SDK's environment variables.
func (p *Provider) openSession(ctx context.Context) (_ *session, err error) {
	client, err := newMetadataClient(ctx, p.MetadataEndpoint, p.metadataTimeout)
	if err != nil {
		return nil, err
	}
	defer client.http.CloseIdleConnections()
	s := &session{}
	if s.metadata, err = client.instance(ctx); err != nil {
		return nil, fmt.Errorf("instance metadata: %w", err)
	}
	profile := ""
	err = inParallel(
		func() (err error) { s.metadata, err = client.network(ctx, s.metadata); return },
		func() (err error) { profile, err = client.profile(ctx); return },
		func() (err error) { s.credentials, err = client.credentials(ctx, p.now()); return },
	)
	if err != nil {
		return nil, fmt.Errorf("instance metadata: %w", err)
	}
	if s.profile, err = parseARN(profile); err != nil {
		return nil, fmt.Errorf("instance metadata: the instance profile: %w", err)
	}
	return s, s.configure(ctx)
}

func (s *session) configure(ctx context.Context) error {
	client := awshttp.NewBuildableClient().
		WithTimeout(callTimeout).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })
	cfg, err := config.LoadDefaultConfig(
		ctx,
		config.WithRegion(s.metadata.Region),
		config.WithSharedConfigFiles([]string{}),
		config.WithSharedCredentialsFiles([]string{}),
		config.WithCredentialsProvider(
			awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
				return awssdk.Credentials{
					AccessKeyID:     s.credentials.AccessKeyID,
					SecretAccessKey: s.credentials.SecretAccessKey,
					SessionToken:    s.credentials.Token,
					Source:          "instance metadata",
				}, nil
			}),
		),
		config.WithHTTPClient(client),
	)
	if err != nil {
		return fmt.Errorf("configure the AWS clients: %w", err)
	}
	if withAuthorities, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok { // those of AWS_CA_BUNDLE
		client = withAuthorities
	}
	s.http = ownClient(client) // follows no redirect
	s.close = s.http.CloseIdleConnections
	cfg.HTTPClient = s.http
	s.config = cfg
	s.endpoint, err = stsEndpoint(ctx, sts.NewFromConfig(cfg))
	return err
}

// arn is an Amazon Resource Name.
type arn struct{ partition, service, account, resource string }

func parseARN(text string) (arn, error) {
	parts := strings.SplitN(text, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || slices.Contains([]string{parts[1], parts[2], parts[4], parts[5]}, "") {
		return arn{}, fmt.Errorf("%q is not an ARN with an account", clip(text))
	}
	return arn{partition: parts[1], service: parts[2], account: parts[4], resource: parts[5]}, nil
}

// name is the last part of a path, such as the name of an instance profile.
func (a arn) name() string { return a.resource[strings.LastIndex(a.resource, "/")+1:] }

// authority verifies proofs with STS and EC2.
type authority struct {
	provider *Provider
	cluster  string
	// roles are accepted in addition to the role with the name of the instance's own profile.
	roles []string
}

// NewAuthority implements cloud.Attester.
func (p *Provider) NewAuthority(cluster string, roles []string) node.Authority {
	return &authority{p, cluster, roles}
}

// Admit implements node.Authority.
func (a *authority) Admit(ctx context.Context, application node.Application) (node.Machine, error) {
	var evidence proof
	if err := strictjson.Unmarshal(application.Proof, &evidence); err != nil {
		return node.Machine{}, &node.Refusal{Reason: "the proof cannot be read: " + err.Error()}
	}
	s, err := a.provider.openSession(ctx)
	if err != nil {
		return node.Machine{}, err
	}
	defer s.close()
	if refusal := evidence.check(s.metadata.Region, a.provider.now()); refusal != nil {
		return node.Machine{}, refusal
	}
	caller, err := s.askSTS(ctx, a.cluster, application.Request, evidence)
	if err != nil {
		return node.Machine{}, err
	}
	role, id, err := s.instanceOf(caller)
	if err != nil {
		return node.Machine{}, err
	}
	instance, err := s.describe(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return node.Machine{}, err
	}
	machine, err := a.machine(s, instance)
	if err != nil {
		return node.Machine{}, err
	}
	if own := profileName(instance); role != own && !slices.Contains(a.roles, role) {
		return machine, &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is signed with the role %s, and the instance profile of %s is %q: if this is the "+
					"profile's role, add it to the property join.roles of the job kubelet-csr-approver",
				role, id, own,
			),
		}
	}
	if !machine.Has(application.Peer.String()) {
		return machine, &node.Refusal{
			Reason: fmt.Sprintf(
				"the request comes from %s, and %s has the addresses %v: a proof can only be used on the instance "+
					"that it is of",
				application.Peer, id, machine.Addresses,
			),
		}
	}
	return machine, nil
}

// maxCallerAnswer limits what is read of an answer of STS, in bytes.
const maxCallerAnswer = 64 << 10

// askSTS sends the request of which the proof has the signature, and returns the ARN of who signed it. Only the
// signature, its date and the session token are the applicant's.
func (s *session) askSTS(ctx context.Context, cluster string, certificateRequest []byte, evidence proof) (arn, error) {
	request, err := identityRequest(ctx, s.endpoint, cluster, certificateRequest)
	if err != nil {
		return arn{}, err
	}
	request.Header.Set("Authorization", evidence.Authorization)
	request.Header.Set(dateHeader, evidence.Date)
	request.Header.Set(tokenHeader, evidence.Token)
	response, err := s.http.Do(request)
	if err != nil {
		return arn{}, fmt.Errorf("ask STS at %s who signed the proof: %w", s.endpoint.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxCallerAnswer))
	if err != nil {
		return arn{}, fmt.Errorf("read the answer of STS: %w", err)
	}
	if response.StatusCode/100 == 4 && response.StatusCode != http.StatusTooManyRequests {
		var answer struct {
			Code    string `xml:"Error>Code"`
			Message string `xml:"Error>Message"`
		}
		_ = xml.Unmarshal(body, &answer) // the status says enough
		if answer.Code == "Throttling" {
			return arn{}, errors.New("STS throttles requests")
		}
		return arn{}, &node.Refusal{
			Reason: fmt.Sprintf(
				"STS does not accept the proof for this certificate request and cluster: HTTP %d %s %s",
				response.StatusCode, clip(answer.Code), clipLong(answer.Message),
			),
		}
	}
	if response.StatusCode != http.StatusOK {
		return arn{}, fmt.Errorf("STS answered HTTP %d", response.StatusCode)
	}
	var answer struct {
		XMLName xml.Name `xml:"GetCallerIdentityResponse"`
		ARN     string   `xml:"GetCallerIdentityResult>Arn"`
	}
	if err := xml.Unmarshal(body, &answer); err != nil {
		return arn{}, fmt.Errorf("the answer of STS cannot be read: %w", err)
	}
	return parseARN(answer.ARN)
}

// instanceOf returns role and instance ID of a caller with the credentials of an instance of this account. The session
// name alone proves nothing: whoever may assume a role chooses it.
func (s *session) instanceOf(caller arn) (role, id string, err error) {
	if caller.account != s.profile.account || caller.partition != s.profile.partition {
		return "", "", &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is signed in account %s of partition %s, and this cluster is in account %s of partition %s",
				caller.account, caller.partition, s.profile.account, s.profile.partition,
			),
		}
	}
	parts := strings.Split(caller.resource, "/")
	if caller.service != "sts" || len(parts) != 3 || parts[0] != "assumed-role" ||
		!instanceIDForm.MatchString(parts[2]) {
		return "", "", &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is signed by %s %s, which is not the role of an instance", caller.service,
				clip(caller.resource),
			),
		}
	}
	return parts[1], parts[2], nil
}

// Find implements node.Authority. Private DNS names are unique in a VPC only.
func (a *authority) Find(ctx context.Context, name string, _ map[string]string) (node.Machine, error) {
	s, err := a.provider.openSession(ctx)
	if err != nil {
		return node.Machine{}, err
	}
	defer s.close()
	if s.metadata.VPC == "" {
		return node.Machine{}, errors.New("instance metadata does not name the VPC")
	}
	instance, err := s.describe(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		filter("private-dns-name", name),
		filter("vpc-id", s.metadata.VPC),
		filter("instance-state-name", string(types.InstanceStateNameRunning)),
	}})
	if err != nil {
		return node.Machine{}, err
	}
	return a.machine(s, instance)
}

// describe returns the one instance that the input selects.
func (s *session) describe(ctx context.Context, input *ec2.DescribeInstancesInput) (types.Instance, error) {
	out, err := ec2.NewFromConfig(s.config).DescribeInstances(ctx, input)
	if err != nil {
		return types.Instance{}, fmt.Errorf("ec2:DescribeInstances: %s", describe(err))
	}
	var found []types.Instance
	for _, reservation := range out.Reservations {
		found = append(found, reservation.Instances...)
	}
	if len(found) != 1 {
		return types.Instance{}, fmt.Errorf("EC2 has %d such instances; there must be one", len(found))
	}
	return found[0], nil
}

// machine checks that an instance belongs to the cluster and runs.
func (a *authority) machine(s *session, instance types.Instance) (node.Machine, error) {
	id := awssdk.ToString(instance.InstanceId)
	zone := ""
	if instance.Placement != nil {
		zone = awssdk.ToString(instance.Placement.AvailabilityZone)
	}
	machine := node.Machine{
		ID:         id,
		Node:       strings.ToLower(awssdk.ToString(instance.PrivateDnsName)),
		ProviderID: providerID(zone, id),
	}
	for _, name := range []*string{instance.PrivateDnsName, instance.PublicDnsName} {
		if name := awssdk.ToString(name); name != "" {
			machine.DNSNames = append(machine.DNSNames, name)
		}
	}
	for _, text := range addressesOf(instance) {
		if address, err := netip.ParseAddr(text); err == nil && !slices.Contains(machine.Addresses, address) {
			machine.Addresses = append(machine.Addresses, address)
		}
	}
	state := types.InstanceStateName("unknown")
	if instance.State != nil {
		state = cmp.Or(instance.State.Name, state)
	}
	switch {
	case state != types.InstanceStateNameRunning:
		return machine, &node.Refusal{Reason: fmt.Sprintf("instance %s is %s", id, state)}
	case !newTags(instance.Tags).has(TagPrefix + a.cluster):
		return machine, &node.Refusal{
			Reason: fmt.Sprintf(
				"instance %s does not have the tag %s%s of this cluster; it has %s", id, TagPrefix, a.cluster,
				newTags(instance.Tags).found(),
			),
		}
	case machine.Node == "":
		return machine, &node.Refusal{Reason: fmt.Sprintf("instance %s has no private DNS name", id)}
	case awssdk.ToString(instance.VpcId) != s.metadata.VPC:
		return machine, &node.Refusal{
			Reason: fmt.Sprintf(
				"instance %s is in VPC %s, and this VM in %s", id, awssdk.ToString(instance.VpcId), s.metadata.VPC,
			),
		}
	}
	return machine, nil
}

func addressesOf(instance types.Instance) []string {
	addresses := []string{
		awssdk.ToString(instance.PrivateIpAddress), awssdk.ToString(instance.Ipv6Address),
		awssdk.ToString(instance.PublicIpAddress),
	}
	for _, i := range instance.NetworkInterfaces {
		for _, a := range i.PrivateIpAddresses {
			addresses = append(addresses, awssdk.ToString(a.PrivateIpAddress))
			if a.Association != nil {
				addresses = append(addresses, awssdk.ToString(a.Association.PublicIp))
			}
		}
		for _, a := range i.Ipv6Addresses {
			addresses = append(addresses, awssdk.ToString(a.Ipv6Address))
		}
	}
	return addresses
}

// profileName is the name of the instance's profile. By default a role has the name of its profile, as the console
// creates them.
func profileName(instance types.Instance) string {
	if instance.IamInstanceProfile == nil {
		return ""
	}
	profile, err := parseARN(awssdk.ToString(instance.IamInstanceProfile.Arn))
	if err != nil {
		return ""
	}
	return profile.name()
}
