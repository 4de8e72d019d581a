package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/resource"
)

// Ports of a Director that agents connect to, and the one of bosh ssh on VMs.
const (
	natsPort      = 4222
	blobstorePort = 25250
	sshPort       = 22
)

func (a *Account) tagKey() string { return cloudaws.TagPrefix + a.Cluster }

// noGroup is the security_group of aws-vars.yml, with which Prepare creates one.
const noGroup = "sg-0aaaaaaaaaaaaaaaa"

// findGroup finds the nodes' security group: the one in the file, if it exists, else the one that Prepare has created.
// One of that name that somebody else has created is a conflict.
func (a *Account) findGroup(ctx context.Context) error {
	out, err := a.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: inVPC(a.vpc)})
	if err != nil {
		return fmt.Errorf("security groups of the VPC %s: %w", a.vpc, err)
	}
	a.group, a.keepGroup, a.groupConflict = "", "", nil
	find := func(is func(types.SecurityGroup) bool) *types.SecurityGroup {
		if i := slices.IndexFunc(out.SecurityGroups, is); i >= 0 {
			return &out.SecurityGroups[i]
		}
		return nil
	}
	listed := find(func(g types.SecurityGroup) bool { return aws.ToString(g.GroupId) == a.SecurityGroup })
	if listed != nil {
		a.useListedGroup(clustertags.FromEC2(listed.Tags))
		return nil
	}
	namesake := find(func(g types.SecurityGroup) bool { return aws.ToString(g.GroupName) == a.groupName() })
	if namesake != nil {
		a.useNamesake(aws.ToString(namesake.GroupId), clustertags.FromEC2(namesake.Tags))
	}
	return nil
}

// useListedGroup uses the group in the file: whoever wrote its id there wants it.
func (a *Account) useListedGroup(tags map[string]string) {
	a.group = a.SecurityGroup
	if !a.createdBy(tags) {
		a.keepGroup = notCreated
	}
	if other := a.otherCluster(tags); other != "" {
		a.keepGroup = "it has the tag of the cluster " + other
		a.groupConflict = fmt.Errorf(
			"%s: security_group %s has the tag of the cluster %s, and nodes of two clusters must not share one; to "+
				"have one created, set security_group: %s", a.File, a.group, other, noGroup,
		)
	}
}

// useNamesake uses a group with the name of the one that Prepare creates, if Prepare has created it.
func (a *Account) useNamesake(id string, tags map[string]string) {
	other := a.otherCluster(tags)
	switch {
	case other != "":
		a.keepGroup = id + " has the tag of the cluster " + other
		a.groupConflict = fmt.Errorf(
			"%s, which has the name %s, has the tag of the cluster %s, and nodes of two clusters must not share one: "+
				"set security_group in %s to a group of this cluster (docs/aws.md, Security group)", id, a.groupName(),
			other, a.File,
		)
	case !a.createdBy(tags):
		a.keepGroup = notCreated + ": " + id
		a.groupConflict = fmt.Errorf(
			"%s has the name %s, and prepare did not create it for the cluster %s: to have it used, set "+
				"security_group: %s in %s; --delete then leaves it", id, a.groupName(), a.Cluster, id, a.File,
		)
	default:
		a.group = id
	}
}

// mayCreateGroup is the reason not to create a group, and not to use the one of that name either: it is somebody
// else's, the file has the id of a group that is not in the VPC, which may be a mistake, or its id cannot be written.
func (a *Account) mayCreateGroup(context.Context) error {
	switch {
	case a.groupConflict != nil:
		return a.groupConflict
	case a.SecurityGroup == a.group || a.SecurityGroup == noGroup:
		return a.mayWriteGroup()
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

// describe returns a security group of the VPC, nil if it does not exist.
func (a *Account) describe(ctx context.Context, id string) (*resource.SecurityGroup, error) {
	if id == "" {
		return nil, nil
	}
	groups, err := a.api.DescribeGroups(ctx, []string{id})
	if exists, err := found(err); !exists {
		return nil, err
	}
	return &groups[0], nil
}

func (a *Account) groupSteps() []step {
	created := step{
		what: fmt.Sprintf("security group of the nodes (%s), with its id in %s", a.groupName(), a.File),
		exists: func(ctx context.Context) (bool, error) {
			group, err := a.describe(ctx, a.group)
			return group != nil && a.SecurityGroup == a.group && a.groupConflict == nil, err
		},
		present: func(context.Context) (bool, error) { // also if the file no longer has its id
			return a.group != "" || a.groupConflict != nil, nil
		},
		mayCreate: a.mayCreateGroup,
		create:    a.createGroup,
		keeps:     func(context.Context) (string, error) { return a.keepGroup, nil },
		remove:    a.deleteGroup,
	}
	if a.group == a.SecurityGroup {
		created.what = "security group of the nodes, " + a.group
	}
	tag := a.clusterTagStep("security group of the nodes", func() string { return a.group })
	if a.keepGroup == "" || a.groupConflict != nil { // it goes or stays with the group
		tag.remove = nil
	}
	return append([]step{created, tag}, a.ruleSteps()...)
}

// mustFindDirectorGroup is the reason not to add rules: the file names no group.
func (a *Account) mustFindDirectorGroup(ctx context.Context) error {
	group, err := a.describe(ctx, a.DirectorGroup)
	if group == nil && err == nil {
		err = fmt.Errorf(
			"there is no security group %s: correct director_security_group in %s", a.DirectorGroup, a.File,
		)
	}
	return err
}

// deleteGroup writes the example back first: a run that ends in between finds the group by its name.
func (a *Account) deleteGroup(ctx context.Context) error {
	listed := a.SecurityGroup == a.group
	if listed {
		if err := a.writeGroup(noGroup); err != nil {
			return err
		}
	}
	_, err := a.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &a.group})
	if err == nil {
		return nil
	}
	if group, failed := a.describe(ctx, a.group); group == nil && failed == nil { // an answer was lost
		return nil
	}
	if errorCode(err) == "DependencyViolation" {
		err = errors.Join(err, a.usersOfGroup(ctx))
	}
	if listed && errorCode(err) != "" { // without an answer it may be gone
		err = errors.Join(err, a.writeGroup(a.group))
	}
	return err
}

// usersOfGroup says who keeps EC2 from deleting the group.
func (a *Account) usersOfGroup(ctx context.Context) error {
	filter := func(name string) []types.Filter {
		return []types.Filter{{Name: aws.String(name), Values: []string{a.group}}}
	}
	groups, err := a.ec2.DescribeSecurityGroups(
		ctx, &ec2.DescribeSecurityGroupsInput{Filters: filter("ip-permission.group-id")},
	)
	if err != nil {
		return fmt.Errorf("security groups with rules for %s: %w", a.group, err)
	}
	var users []error
	for _, g := range groups.SecurityGroups {
		for _, p := range g.IpPermissions {
			if aws.ToString(g.GroupId) != a.group && refersTo(p, a.group) {
				users = append(users, fmt.Errorf("a rule of %s (%s) refers to it: %s", aws.ToString(g.GroupId),
					aws.ToString(g.GroupName), a.revoke(aws.ToString(g.GroupId), p)))
			}
		}
	}
	interfaces, err := a.ec2.DescribeNetworkInterfaces(
		ctx, &ec2.DescribeNetworkInterfacesInput{Filters: filter("group-id")},
	)
	if err != nil {
		return errors.Join(append(users, fmt.Errorf("network interfaces in %s: %w", a.group, err))...)
	}
	for _, i := range interfaces.NetworkInterfaces {
		users = append(users, fmt.Errorf("the network interface %s (%s) is in it", aws.ToString(i.NetworkInterfaceId),
			aws.ToString(i.Description)))
	}
	return errors.Join(users...)
}

func refersTo(p types.IpPermission, group string) bool {
	return slices.ContainsFunc(
		p.UserIdGroupPairs, func(g types.UserIdGroupPair) bool { return aws.ToString(g.GroupId) == group },
	)
}

// revoke is the command that removes a rule for the nodes' group from another group.
func (a *Account) revoke(group string, p types.IpPermission) string {
	ports := ""
	if p.FromPort != nil {
		ports = fmt.Sprintf("FromPort=%d,ToPort=%d,", aws.ToInt32(p.FromPort), aws.ToInt32(p.ToPort))
	}
	return a.awsEC2("revoke-security-group-ingress") + " --group-id " + group + " --ip-permissions " +
		fmt.Sprintf("'IpProtocol=%s,%sUserIdGroupPairs=[{GroupId=%s}]'", aws.ToString(p.IpProtocol), ports, a.group)
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
				Tags:         listOf(a.newTags(), ec2Tag),
			}},
		})
		switch {
		case err == nil:
			a.group = aws.ToString(out.GroupId)
		case errorCode(err) == "" || errorCode(err) == "InvalidGroup.Duplicate": // an answer may have been lost
			if failed := a.findGroup(ctx); failed != nil {
				return failed
			}
			if a.group == "" {
				return cmp.Or(a.groupConflict, err)
			}
		default:
			return err
		}
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
	name     string // in Terraform's text
	what     string
	to, from string
	port     int32
	optional string // as that of a step
}

// rules are those that a cluster needs between the security groups of its nodes and of the Director.
func rules(nodes, director string) []rule {
	return []rule{
		{"nodes", "nodes reach each other", nodes, nodes, 0, ""},
		{"director_4222", "agents reach the Director's NATS", director, nodes, natsPort, ""},
		{
			"director_25250", "agents reach the Director's blobstore", director, nodes, blobstorePort,
			"unless the Director has another blobstore, such as S3",
		},
		{"ssh", "bosh ssh reaches the nodes", nodes, director, sshPort, ""},
	}
}

func (r rule) permission() types.IpPermission {
	p := types.IpPermission{IpProtocol: aws.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &r.from}}}
	if r.port != 0 {
		p.IpProtocol, p.FromPort, p.ToPort = aws.String("tcp"), &r.port, &r.port
	}
	return p
}

// marked reports whether a rule of a security group is this one, with a description that only Prepare writes.
func (r rule) marked(other resource.Rule, mark string) bool {
	same := slices.Equal(other.Protocols, []string{"tcp"}) && other.From == int(r.port) && other.To == int(r.port)
	if r.port == 0 {
		same = len(other.Protocols) == 2 // all
	}
	for i, group := range other.Groups {
		if same && group == r.from && other.Descriptions[i] == mark {
			return true
		}
	}
	return false
}

// isOpen reports whether rules have the effect of one. Between nodes, rules for each port that they need are enough;
// between nodes and the Director, those for the networks of all node subnets or with a prefix list, and any networks
// from which bosh ssh comes.
func (a *Account) isOpen(r rule, all resource.Rules) bool {
	if r.port == 0 {
		closed, _ := a.closed(all)
		return len(closed) == 0
	}
	opening := all.At("tcp", int(r.port))
	return opening.Admit(r.from) || len(opening.Lists()) > 0 || a.admitNodes(opening) ||
		r.to == a.group && len(opening.Networks()) > 0
}

// ruleSteps are the rules. The nodes' group may not exist yet.
func (a *Account) ruleSteps() []step {
	var steps []step
	for i := range rules("", "") {
		of := func() rule { return rules(a.group, a.DirectorGroup)[i] }
		s := a.ruleStep(of)
		if of().port == natsPort { // the first rule of the Director's group
			s.mayCreate = a.mustFindDirectorGroup
		}
		steps = append(steps, s)
	}
	return steps
}

func (a *Account) ruleStep(of func() rule) step {
	ask := func(is func(rule, resource.Rules) bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			r := of()
			group, err := a.describe(ctx, r.to)
			return group != nil && is(r, group.Ingress), err
		}
	}
	return step{
		what:     "rule: " + of().what,
		optional: of().optional,
		exists:   ask(a.isOpen),
		present: ask(func(r rule, all resource.Rules) bool {
			if r.port == 0 {
				return a.isOpen(r, all)
			}
			return all.At("tcp", int(r.port)).Admit(r.from)
		}),
		create: func(ctx context.Context) error {
			r := of()
			permission := r.permission()
			permission.UserIdGroupPairs[0].Description = aws.String(a.ruleMark())
			_, err := a.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
				GroupId: &r.to, IpPermissions: []types.IpPermission{permission},
			})
			if errorCode(err) == "InvalidPermission.Duplicate" { // of an earlier run, shown late
				return nil
			}
			return err
		},
		keeps: func(ctx context.Context) (string, error) {
			if a.groupConflict != nil {
				return a.keepGroup, nil //nolint:nilerr // the other cluster needs it
			}
			r := of()
			group, err := a.describe(ctx, r.to)
			if group == nil || err != nil {
				return "", err
			}
			marked := func(other resource.Rule) bool { return r.marked(other, a.ruleMark()) }
			if slices.ContainsFunc(group.Ingress, marked) {
				return "", nil
			}
			return notCreated, nil
		},
		remove: func(ctx context.Context) error {
			r := of()
			_, err := a.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
				GroupId: &r.to, IpPermissions: []types.IpPermission{r.permission()},
			})
			return err
		},
	}
}

func (a *Account) tagSteps() []step {
	var steps []step
	for _, id := range a.subnets() {
		steps = append(steps, a.clusterTagStep("subnet", func() string { return id }))
	}
	for _, t := range a.roleTags() {
		steps = append(steps, a.roleTagStep(t))
	}
	return steps
}

// roleTag is the tag by which load balancers choose one of the subnets in a zone. The preflight warns if several have
// it.
type roleTag struct {
	key     string
	subnets []string // sorted
}

func (a *Account) roleTags() []roleTag {
	var tags []roleTag
	for _, id := range a.subnets() {
		key := clustertags.InternalRole
		if slices.Contains(a.PublicSubnets, id) {
			key = clustertags.PublicRole
		}
		i := slices.IndexFunc(tags, func(t roleTag) bool {
			return t.key == key && a.subnet(t.subnets[0]).Zone == a.subnet(id).Zone
		})
		if i < 0 {
			tags = append(tags, roleTag{key: key, subnets: []string{id}})
			continue
		}
		tags[i].subnets = append(tags[i].subnets, id)
	}
	return tags
}

// clusterTagStep is the cluster's tag of a resource that may not exist yet, with any value that AWS' tools accept. With
// it Prepare sets the mark, unless that says that it has created the resource.
func (a *Account) clusterTagStep(kind string, id func() string) step {
	name := cmp.Or(id(), "to be created")
	return step{
		what: fmt.Sprintf("tag %s of the %s %s", a.tagKey(), kind, name),
		exists: func(ctx context.Context) (bool, error) {
			tags, err := a.tags(ctx, id())
			return tags.IsOwnedOrShared(a.tagKey()), err
		},
		present: func(ctx context.Context) (bool, error) {
			tags, err := a.tags(ctx, id())
			_, ok := tags[a.tagKey()]
			return ok || tags[a.markKey()] == markTagged, err
		},
		mayCreate: func(ctx context.Context) error {
			tags, err := a.tags(ctx, id())
			value, ok := tags[a.tagKey()]
			if err != nil || !ok || tags.IsOwnedOrShared(a.tagKey()) || tags[a.markKey()] != "" {
				return err
			}
			return fmt.Errorf(
				"it has the value %q, and %s: correct it with %s --resources %s --tags Key=%s,Value=%s", value,
				notSet, a.awsEC2("create-tags"), id(), a.tagKey(), clustertags.Shared,
			)
		},
		create: func(ctx context.Context) error {
			tags, err := a.tags(ctx, id())
			if err != nil {
				return err
			}
			added := map[string]string{a.tagKey(): clustertags.Shared}
			if !a.createdBy(tags) {
				added[a.markKey()] = markTagged
			}
			return a.createTags(ctx, id(), added)
		},
		keeps: func(ctx context.Context) (string, error) {
			tags, err := a.tags(ctx, id())
			if tags[a.markKey()] == "" {
				return notSet, err
			}
			return "", err
		},
		remove: func(ctx context.Context) error {
			_, err := a.ec2.DeleteTags(ctx, &ec2.DeleteTagsInput{
				Resources: []string{id()},
				Tags:      []types.Tag{{Key: aws.String(a.tagKey())}, {Key: aws.String(a.markKey())}},
			})
			return err
		},
	}
}

// roleTagStep sets the tag on one of the subnets, unless another one of them has it. Delete leaves it.
func (a *Account) roleTagStep(t roleTag) step {
	return step{
		what: fmt.Sprintf("tag %s of the subnet %s", t.key, strings.Join(t.subnets, " or ")),
		exists: func(ctx context.Context) (bool, error) {
			for _, id := range t.subnets {
				tags, err := a.tags(ctx, id)
				if _, ok := tags[t.key]; ok || err != nil {
					return ok, err
				}
			}
			return false, nil
		},
		create: func(ctx context.Context) error {
			return a.createTags(ctx, t.subnets[0], map[string]string{t.key: "1"})
		},
		keeps: func(context.Context) (string, error) {
			return "other clusters may choose the subnet by it", nil
		},
		remove: func(context.Context) error { return nil }, // never
	}
}

func (a *Account) createTags(ctx context.Context, id string, tags map[string]string) error {
	_, err := a.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: listOf(tags, ec2Tag)})
	return err
}

// tags are the tags of a resource; none if it does not exist.
func (a *Account) tags(ctx context.Context, id string) (clustertags.Tags, error) {
	if id == "" {
		return nil, nil
	}
	tags, err := a.api.DescribeTags(ctx, []string{id})
	return tags[id], err
}
