package identity

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// authority verifies proofs with STS and EC2.
type authority struct {
	cluster  string
	roles    []string
	sessions sessions
}

// NewAuthority returns what verifies the proofs of other machines of a cluster. The roles are those that nodes can
// have; without any, a node has the role with the name of its instance profile.
func NewAuthority(machine Machine, cluster string, roles []string) node.Authority {
	return &authority{cluster: cluster, roles: roles, sessions: sessions{machine: machine}}
}

// Admit implements node.Authority.
func (a *authority) Admit(ctx context.Context, application node.Application) (node.Machine, error) {
	var evidence proof
	if err := strictjson.Unmarshal(application.Proof, &evidence); err != nil {
		return node.Machine{}, &node.Refusal{Reason: "the proof cannot be read: " + err.Error()}
	}
	region, refusal := evidence.check(a.sessions.machine.Now())
	if refusal != nil {
		return node.Machine{}, refusal
	}
	s, err := a.sessions.get(ctx)
	if err != nil {
		return node.Machine{}, err
	}
	if region != s.metadata.Region {
		return node.Machine{}, &node.Refusal{
			Reason: fmt.Sprintf("the proof is for the region %s, and this cluster is in %s", region, s.metadata.Region),
		}
	}
	caller, err := s.askSTS(ctx, a.cluster, application.Request, evidence)
	if err != nil {
		return node.Machine{}, err
	}
	role, id, err := s.instanceOf(caller)
	if err != nil {
		return node.Machine{}, err
	}
	if len(a.roles) > 0 && !slices.Contains(a.roles, role) {
		return node.Machine{}, &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is signed with the role %s, and nodes have one of %s: if it is the role of nodes, add it "+
					"to the property join.roles of the job node-controller", role, strings.Join(a.roles, ", "),
			),
		}
	}
	instance, err := s.describe(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return node.Machine{}, err
	}
	machine, err := a.member(s, instance)
	if err != nil {
		return node.Machine{}, err
	}
	if own := profileName(instance); len(a.roles) == 0 && role != own {
		return machine, &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is signed with the role %s, and the instance profile of %s is %q: if this is the "+
					"profile's role, list it and the roles of all other nodes in the property join.roles of the job "+
					"node-controller", role, id, own,
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
func (s *session) askSTS(
	ctx context.Context,
	cluster string,
	certificateRequest []byte,
	evidence proof,
) (arn.ARN, error) {
	request, err := identityRequest(ctx, s.endpoint, cluster, certificateRequest)
	if err != nil {
		return arn.ARN{}, err
	}
	request.Header.Set("Authorization", evidence.Authorization)
	request.Header.Set(dateHeader, evidence.Date)
	request.Header.Set(tokenHeader, evidence.Token)
	// The message of STS can repeat signed headers if a signature does not match.
	var secrets preflight.Secrets
	_, signature, _ := strings.Cut(evidence.Authorization, "Signature=")
	secrets.Add(evidence.Token, signature)
	response, err := s.http.Do(request)
	if err != nil {
		return arn.ARN{}, fmt.Errorf("ask STS at %s who signed the proof: %w", s.endpoint.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxCallerAnswer))
	if err != nil {
		return arn.ARN{}, fmt.Errorf("read the answer of STS: %w", err)
	}
	if response.StatusCode/100 == 4 && response.StatusCode != http.StatusTooManyRequests {
		var answer struct {
			Code    string `xml:"Error>Code"`
			Message string `xml:"Error>Message"`
		}
		_ = xml.Unmarshal(body, &answer) // the status says enough
		if answer.Code == "Throttling" {
			return arn.ARN{}, errors.New("STS throttles requests")
		}
		return arn.ARN{}, &node.Refusal{
			Reason: fmt.Sprintf(
				"STS does not accept the proof for this certificate request and cluster: HTTP %d %s %s",
				response.StatusCode, awserr.Clip(secrets.Clean(answer.Code)),
				awserr.ClipLong(secrets.Clean(answer.Message)),
			),
		}
	}
	if response.StatusCode != http.StatusOK {
		return arn.ARN{}, fmt.Errorf("STS answered HTTP %d", response.StatusCode)
	}
	var answer struct {
		XMLName xml.Name `xml:"GetCallerIdentityResponse"`
		ARN     string   `xml:"GetCallerIdentityResult>Arn"`
	}
	if err := xml.Unmarshal(body, &answer); err != nil {
		text := awserr.ClipLong(secrets.Clean(err.Error()))
		return arn.ARN{}, fmt.Errorf("the answer of STS cannot be read: %s", text)
	}
	return arn.Parse(secrets.Clean(answer.ARN))
}

// instanceOf returns role and instance ID of a caller with the credentials of an instance of this account. The session
// name alone proves nothing: whoever may assume a role chooses it.
func (s *session) instanceOf(caller arn.ARN) (role, id string, err error) {
	if caller.Account != s.profile.Account || caller.Partition != s.profile.Partition {
		return "", "", &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is signed in account %s of partition %s, and this cluster is in account %s of partition %s",
				caller.Account, caller.Partition, s.profile.Account, s.profile.Partition,
			),
		}
	}
	parts := strings.Split(caller.Resource, "/")
	if caller.Service != "sts" || len(parts) != 3 || parts[0] != "assumed-role" ||
		!metadata.InstanceIDForm.MatchString(parts[2]) {
		return "", "", &node.Refusal{
			Reason: fmt.Sprintf(
				"the proof is signed by %s %s, which is not the role of an instance", caller.Service,
				awserr.Clip(caller.Resource),
			),
		}
	}
	return parts[1], parts[2], nil
}

// Find implements node.Authority. Private DNS names are unique in a VPC only.
func (a *authority) Find(ctx context.Context, name string, _ map[string]string) (node.Machine, error) {
	s, err := a.sessions.get(ctx)
	if err != nil {
		return node.Machine{}, err
	}
	if s.metadata.VPC == "" {
		return node.Machine{}, errors.New("instance metadata does not name the VPC")
	}
	instance, err := s.describe(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		awsclient.Filter("private-dns-name", name),
		awsclient.Filter("vpc-id", s.metadata.VPC),
		awsclient.Filter("instance-state-name", string(types.InstanceStateNameRunning)),
	}})
	if errors.Is(err, errNoInstance) { // the VM of a Node that is still there was deleted
		return node.Machine{}, &node.Refusal{Reason: fmt.Sprintf(
			"%v that runs in VPC %s with the private DNS name %s", err, s.metadata.VPC, name,
		)}
	}
	if err != nil {
		return node.Machine{}, err
	}
	return a.member(s, instance)
}

// errNoInstance is that of describe if there is none. EC2 may not know a new one yet.
var errNoInstance = errors.New("EC2 has no instance")

// describe returns the one instance that the input selects.
func (s *session) describe(ctx context.Context, input *ec2.DescribeInstancesInput) (types.Instance, error) {
	out, err := ec2.NewFromConfig(s.config).DescribeInstances(ctx, input)
	if err != nil {
		return types.Instance{}, fmt.Errorf("ec2:DescribeInstances: %s", awserr.Describe(err))
	}
	var found []types.Instance
	for _, reservation := range out.Reservations {
		found = append(found, reservation.Instances...)
	}
	switch len(found) {
	case 0:
		return types.Instance{}, errNoInstance
	case 1:
		return found[0], nil
	default:
		return types.Instance{}, fmt.Errorf("EC2 has %d such instances; there must be one", len(found))
	}
}

// member checks that an instance belongs to the cluster and runs.
func (a *authority) member(s *session, instance types.Instance) (node.Machine, error) {
	id := awssdk.ToString(instance.InstanceId)
	zone := ""
	if instance.Placement != nil {
		zone = awssdk.ToString(instance.Placement.AvailabilityZone)
	}
	machine := node.Machine{
		ID:         id,
		Node:       strings.ToLower(awssdk.ToString(instance.PrivateDnsName)),
		ProviderID: metadata.ProviderID(zone, id),
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
	case !clustertags.FromEC2(instance.Tags).Has(clustertags.Prefix + a.cluster):
		return machine, &node.Refusal{
			Reason: fmt.Sprintf(
				"instance %s does not have the tag %s%s of this cluster; it has %s", id, clustertags.Prefix, a.cluster,
				clustertags.FromEC2(instance.Tags).Found(clustertags.Prefix+a.cluster),
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
	profile, err := arn.Parse(awssdk.ToString(instance.IamInstanceProfile.Arn))
	if err != nil {
		return ""
	}
	return profile.Name()
}
