package account

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	cloudaws "kubernetes-release/cloud/aws"
)

// Ports of a Director that agents connect to, and the one of bosh ssh on VMs.
const (
	natsPort      = 4222
	blobstorePort = 25250
	sshPort       = 22
)

// tagValue says that several clusters may use a resource. With owned, other tools might delete it.
const tagValue = "shared"

func (a *Account) tagKey() string { return cloudaws.TagPrefix + a.Cluster }

// roleTags are the tags that the cloud controller chooses subnets by.
const (
	publicTag   = "kubernetes.io/role/elb"
	internalTag = "kubernetes.io/role/internal-elb"
)

// noGroup is the security_group of aws-vars.yml, with which Prepare creates one.
const noGroup = "sg-0aaaaaaaaaaaaaaaa"

// findGroup finds the nodes' security group: the one in the file, if it exists, else the one that Prepare creates.
func (a *Account) findGroup(ctx context.Context) error {
	out, err := a.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{
		{Name: aws.String("vpc-id"), Values: []string{a.vpc}},
	}})
	if err != nil {
		return fmt.Errorf("security groups of the VPC %s: %w", a.vpc, err)
	}
	for _, g := range out.SecurityGroups {
		switch {
		case aws.ToString(g.GroupId) == a.SecurityGroup:
			if other := a.otherCluster(g.Tags); other != "" {
				return fmt.Errorf(
					"%s: security_group %s has the tag of the cluster %s, and nodes of two clusters must not share "+
						"one; to have one created, set security_group: %s",
					a.File, a.SecurityGroup, other, noGroup,
				)
			}
			a.group, a.foreign = a.SecurityGroup, aws.ToString(g.GroupName) != a.groupName()
			return nil
		case aws.ToString(g.GroupName) == a.groupName():
			a.group = aws.ToString(g.GroupId)
		}
	}
	return nil
}

// mayCreateGroup is the reason not to create a group, and not to use the one of that name either: the file has the id
// of a group that is not in the VPC, which may be a mistake.
func (a *Account) mayCreateGroup(context.Context) error {
	if a.SecurityGroup == a.group || a.SecurityGroup == noGroup {
		return nil
	}
	existing := ""
	if a.group != "" {
		existing = fmt.Sprintf(", set it to %s, which has the name %s", a.group, a.groupName())
	}
	return fmt.Errorf(
		"security_group %s is not in the VPC %s of the subnets: correct it%s, or set security_group: %s to have one "+
			"created", a.SecurityGroup, a.vpc, existing, noGroup,
	)
}

// otherCluster is the name of another cluster that tags belong to, empty if there is none.
func (a *Account) otherCluster(tags []types.Tag) string {
	for _, tag := range tags {
		if name, ok := strings.CutPrefix(aws.ToString(tag.Key), cloudaws.TagPrefix); ok && name != a.Cluster {
			return name
		}
	}
	return ""
}

// describe returns a security group of the VPC, nil if it does not exist.
func (a *Account) describe(ctx context.Context, id string) (*types.SecurityGroup, error) {
	if id == "" {
		return nil, nil
	}
	out, err := a.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{id}})
	if exists, err := found(err); !exists {
		return nil, err
	}
	return &out.SecurityGroups[0], nil
}

func (a *Account) groupSteps() []step {
	created := step{
		what: fmt.Sprintf("security group of the nodes (%s), with its id in %s", a.groupName(), a.File),
		exists: func(ctx context.Context) (bool, error) {
			group, err := a.describe(ctx, a.group)
			return group != nil && a.SecurityGroup == a.group, err
		},
		present: func(ctx context.Context) (bool, error) { // also if the file no longer has its id
			if a.group == "" {
				return false, nil
			}
			return true, a.mayCreateGroup(ctx)
		},
		mayCreate: a.mayCreateGroup,
		create:    a.createGroup,
		remove: func(ctx context.Context) error {
			_, err := a.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &a.group})
			if err != nil {
				return err
			}
			return a.writeGroup(noGroup)
		},
	}
	if a.group == a.SecurityGroup {
		created.what = "security group of the nodes, " + a.group
	}
	steps := []step{
		created,
		a.membersStep(),
		a.directorStep(
			"agents reach the Director's NATS", func() rule { return rule{a.DirectorGroup, a.group, natsPort} },
		),
		a.directorStep(
			"agents reach the Director's blobstore",
			func() rule { return rule{a.DirectorGroup, a.group, blobstorePort} },
		),
		a.directorStep("bosh ssh reaches the nodes", func() rule { return rule{a.group, a.DirectorGroup, sshPort} }),
	}
	steps[3].optional = "unless the Director has another blobstore, such as S3"
	if a.foreign {
		keep(steps)
	}
	tag := a.tagStep("security group of the nodes", func() string { return a.group }, a.tagKey(), tagValue)
	return slices.Insert(steps, 1, tag)
}

// createGroup creates the group, unless an earlier run did and could not write its id.
func (a *Account) createGroup(ctx context.Context) error {
	if a.group == "" {
		out, err := a.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
			VpcId:       &a.vpc,
			GroupName:   aws.String(a.groupName()),
			Description: aws.String("Nodes of the Kubernetes cluster " + a.Cluster),
			TagSpecifications: []types.TagSpecification{{
				ResourceType: types.ResourceTypeSecurityGroup,
				Tags:         []types.Tag{{Key: aws.String(a.tagKey()), Value: aws.String(tagValue)}},
			}},
		})
		if err != nil {
			return err
		}
		a.group = aws.ToString(out.GroupId)
		shown := ec2.NewSecurityGroupExistsWaiter(a.ec2)
		if err := shown.Wait(
			ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{a.group}}, consistent,
		); err != nil {
			return fmt.Errorf("waiting until EC2 shows %s: %w", a.group, err)
		}
	}
	a.SecurityGroup = a.group
	return a.writeGroup(a.group)
}

// rule admits TCP at a port, or everything if the port is 0, from the members of one security group to those of
// another.
type rule struct {
	to, from string
	port     int32
}

func (r rule) permission() types.IpPermission {
	p := types.IpPermission{IpProtocol: aws.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &r.from}}}
	if r.port != 0 {
		p.IpProtocol, p.FromPort, p.ToPort = aws.String("tcp"), &r.port, &r.port
	}
	return p
}

// in reports whether a permission of a security group contains the rule.
func (r rule) in(p types.IpPermission) bool {
	protocol := aws.ToString(p.IpProtocol)
	ports := protocol == "-1" ||
		r.port != 0 && protocol == "tcp" && aws.ToInt32(p.FromPort) <= r.port && r.port <= aws.ToInt32(p.ToPort)
	return ports &&
		slices.ContainsFunc(
			p.UserIdGroupPairs, func(g types.UserIdGroupPair) bool { return aws.ToString(g.GroupId) == r.from },
		)
}

// ruleStep is a rule of a group that may not exist yet.
func (a *Account) ruleStep(what string, of func() rule) step {
	return step{
		what: "rule: " + what,
		exists: func(ctx context.Context) (bool, error) {
			r := of()
			group, err := a.describe(ctx, r.to)
			if group == nil || err != nil {
				return false, err
			}
			return slices.ContainsFunc(group.IpPermissions, r.in), nil
		},
		create: func(ctx context.Context) error {
			r := of()
			_, err := a.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
				GroupId: &r.to, IpPermissions: []types.IpPermission{r.permission()},
			})
			if errorCode(err) == "InvalidPermission.Duplicate" { // of an earlier run, shown late
				return nil
			}
			return err
		},
		remove: func(ctx context.Context) error {
			r := of()
			_, err := a.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
				GroupId: &r.to, IpPermissions: []types.IpPermission{r.permission()},
			})
			if errorCode(err) == "InvalidPermission.NotFound" { // a wider rule, which somebody else added
				return nil
			}
			return err
		},
	}
}

// directorStep is a rule between the nodes and the Director. Rules for networks or with a prefix list are enough: those
// of all node subnets, and any from which bosh ssh comes.
func (a *Account) directorStep(what string, of func() rule) step {
	s := a.ruleStep(what, of)
	s.present = s.exists
	s.exists = func(ctx context.Context) (bool, error) {
		if exists, err := s.present(ctx); exists || err != nil {
			return exists, err
		}
		r := of()
		group, err := a.describe(ctx, r.to)
		if group == nil || err != nil {
			return false, err
		}
		opening := openingPorts(group.IpPermissions, ports{"tcp", r.port, r.port, what})
		if len(opening.PrefixListIds) > 0 || r.to == a.group && len(opening.IpRanges) > 0 {
			return true, nil
		}
		networks, err := a.networks(ctx)
		return err == nil && a.ownNetworks(opening, networks), err
	}
	return s
}

func (a *Account) tagSteps() []step {
	var steps []step
	for _, id := range a.subnets() {
		steps = append(steps, a.tagStep("subnet", func() string { return id }, a.tagKey(), tagValue))
		role := internalTag
		if slices.Contains(a.PublicSubnets, id) {
			role = publicTag
		}
		s := a.tagStep("subnet", func() string { return id }, role, "1")
		s.remove = nil // other clusters may choose by it
		steps = append(steps, s)
	}
	return steps
}

// tagStep is a tag of a resource that may not exist yet. A cluster's tag exists with any value that AWS' tools accept.
func (a *Account) tagStep(kind string, id func() string, key, value string) step {
	name := id()
	if name == "" {
		name = "to be created"
	}
	return step{
		what: fmt.Sprintf("tag %s of the %s %s", key, kind, name),
		exists: func(ctx context.Context) (bool, error) {
			tags, err := a.tags(ctx, id())
			if current, ok := tags[key]; ok && strings.HasPrefix(key, cloudaws.TagPrefix) {
				return current == "shared" || current == "owned", err
			}
			_, ok := tags[key]
			return ok, err
		},
		create: func(ctx context.Context) error {
			_, err := a.ec2.CreateTags(ctx, &ec2.CreateTagsInput{
				Resources: []string{id()}, Tags: []types.Tag{{Key: &key, Value: &value}},
			})
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := a.ec2.DeleteTags(
				ctx, &ec2.DeleteTagsInput{Resources: []string{id()}, Tags: []types.Tag{{Key: &key}}},
			)
			return err
		},
	}
}

// tags are the tags of a resource; none if it does not exist.
func (a *Account) tags(ctx context.Context, id string) (map[string]string, error) {
	if id == "" {
		return nil, nil
	}
	out, err := a.ec2.DescribeTags(
		ctx, &ec2.DescribeTagsInput{Filters: []types.Filter{{Name: aws.String("resource-id"), Values: []string{id}}}},
	)
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for _, tag := range out.Tags {
		tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return tags, nil
}

// membersStep is the rule by which nodes reach each other at all ports. Rules for each port that they need are enough.
func (a *Account) membersStep() step {
	s := a.ruleStep("nodes reach each other", func() rule { return rule{to: a.group, from: a.group} })
	s.exists = func(ctx context.Context) (bool, error) {
		group, err := a.describe(ctx, a.group)
		if group == nil || err != nil {
			return false, err
		}
		networks, err := a.networks(ctx)
		if err != nil {
			return false, err
		}
		closed, _ := a.closed(group.IpPermissions, networks)
		return len(closed) == 0, nil
	}
	return s
}
