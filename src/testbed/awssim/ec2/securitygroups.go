package ec2

import (
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

type groupPair struct {
	GroupId     string `xml:"groupId"`
	UserId      string `xml:"userId"`
	Description string `xml:"description,omitempty"`
}

type ipRange struct {
	CidrIp      string `xml:"cidrIp"`
	Description string `xml:"description,omitempty"`
}

type ipv6Range struct {
	CidrIpv6    string `xml:"cidrIpv6"`
	Description string `xml:"description,omitempty"`
}

type prefixListID struct {
	PrefixListId string `xml:"prefixListId"`
	Description  string `xml:"description,omitempty"`
}

// permission is a set of sources for one protocol and range of ports, in requests and responses.
type permission struct {
	IpProtocol    string         `xml:"ipProtocol"`
	FromPort      *int           `xml:"fromPort"`
	ToPort        *int           `xml:"toPort"`
	Groups        []groupPair    `xml:"groups>item"`
	IpRanges      []ipRange      `xml:"ipRanges>item"`
	Ipv6Ranges    []ipv6Range    `xml:"ipv6Ranges>item"`
	PrefixListIds []prefixListID `xml:"prefixListIds>item"`
}

type securityGroupView struct {
	Owner       string       `xml:"ownerId"`
	ID          string       `xml:"groupId"`
	ARN         string       `xml:"securityGroupArn"`
	Name        string       `xml:"groupName"`
	Description string       `xml:"groupDescription"`
	VPC         string       `xml:"vpcId"`
	Ingress     []permission `xml:"ipPermissions>item"`
	Egress      []permission `xml:"ipPermissionsEgress>item"`
	Tags        []store.Tag  `xml:"tagSet>item"`
}

type describeSecurityGroupsInput struct {
	ec2api.Page
	GroupId   []string
	GroupName []string
}

type describeSecurityGroupsOutput struct {
	Groups    []securityGroupView `xml:"securityGroupInfo>item"`
	NextToken string              `xml:"nextToken,omitempty"`
}

func describeSecurityGroups(c *api.Call, in describeSecurityGroupsInput) (*describeSecurityGroupsOutput, error) {
	if len(in.GroupName) > 0 {
		in.Filter = append(in.Filter, ec2api.Filter{Name: "group-name", Value: in.GroupName})
	}
	list, err := ec2api.WithIDs(c.SecurityGroups, in.GroupId, "InvalidGroup", "security group")
	if err != nil {
		return nil, err
	}
	views, next, err := ec2api.Described(c, list, in.Page, 1000, securityGroupAttributes, viewSecurityGroup)
	return &describeSecurityGroupsOutput{views, next}, err
}

func viewSecurityGroup(c *api.Call, g *store.SecurityGroup) securityGroupView {
	return securityGroupView{
		Owner:       c.Account,
		ID:          g.ID,
		ARN:         ec2api.ARN(c, "security-group", g.ID),
		Name:        g.Name,
		Description: g.Description,
		VPC:         g.VPC,
		Ingress:     permissions(c.World, g.Ingress),
		Egress:      permissions(c.World, g.Egress),
		Tags:        g.Tags.List(),
	}
}

func securityGroupAttributes(c *api.Call, g *store.SecurityGroup) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"group-id":               ec2api.One(g.ID),
		"group-name":             ec2api.One(g.Name),
		"description":            ec2api.One(g.Description),
		"vpc-id":                 ec2api.One(g.VPC),
		"owner-id":               ec2api.One(c.Account),
		"ip-permission.group-id": ec2api.Each(g.Ingress, func(r store.Rule) string { return r.Group }),
		"ip-permission.cidr":     ec2api.Each(g.Ingress, func(r store.Rule) string { return r.CIDR }),
		"ip-permission.protocol": ec2api.Each(g.Ingress, func(r store.Rule) string { return r.Protocol }),
		"ip-permission.from-port": ec2api.Each(g.Ingress, func(r store.Rule) string {
			return strconv.Itoa(r.FromPort)
		}),
		"ip-permission.to-port": ec2api.Each(g.Ingress, func(r store.Rule) string {
			return strconv.Itoa(r.ToPort)
		}),
	}, g.Tags
}

// permissions groups rules as EC2 describes them: one permission for each protocol and range of ports.
func permissions(w *store.World, rules []store.Rule) []permission {
	var list []permission
	for _, r := range rules {
		i := slices.IndexFunc(list, func(p permission) bool {
			return p.IpProtocol == r.Protocol &&
				(p.FromPort == nil || *p.FromPort == r.FromPort && *p.ToPort == r.ToPort)
		})
		if i < 0 {
			p := permission{IpProtocol: r.Protocol}
			if r.Protocol != "-1" {
				p.FromPort, p.ToPort = &r.FromPort, &r.ToPort
			}
			list = append(list, p)
			i = len(list) - 1
		}
		p := &list[i]
		switch {
		case r.Group != "":
			p.Groups = append(p.Groups, groupPair{r.Group, w.Account, r.Description})
		case r.CIDRv6 != "":
			p.Ipv6Ranges = append(p.Ipv6Ranges, ipv6Range{r.CIDRv6, r.Description})
		case r.PrefixList != "":
			p.PrefixListIds = append(p.PrefixListIds, prefixListID{r.PrefixList, r.Description})
		default:
			p.IpRanges = append(p.IpRanges, ipRange{r.CIDR, r.Description})
		}
	}
	return list
}

// protocolNames are the protocol numbers that EC2 shows as names.
var protocolNames = map[string]string{"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6", "all": "-1"}

// rules splits a permission into rules.
func (p permission) rules() []store.Rule {
	base := store.Rule{Protocol: strings.ToLower(p.IpProtocol)}
	if name, ok := protocolNames[base.Protocol]; ok {
		base.Protocol = name
	}
	if base.Protocol != "-1" && p.FromPort != nil && p.ToPort != nil {
		base.FromPort, base.ToPort = *p.FromPort, *p.ToPort
	}
	var rules []store.Rule
	add := func(set func(*store.Rule), description string) {
		r := base
		r.Description = description
		set(&r)
		rules = append(rules, r)
	}
	for _, g := range p.Groups {
		add(func(r *store.Rule) { r.Group = g.GroupId }, g.Description)
	}
	for _, c := range p.IpRanges {
		add(func(r *store.Rule) { r.CIDR = c.CidrIp }, c.Description)
	}
	for _, c := range p.Ipv6Ranges {
		add(func(r *store.Rule) { r.CIDRv6 = c.CidrIpv6 }, c.Description)
	}
	for _, l := range p.PrefixListIds {
		add(func(r *store.Rule) { r.PrefixList = l.PrefixListId }, l.Description)
	}
	return rules
}

// same compares rules without their descriptions.
func same(r store.Rule, other store.Rule) bool {
	r.Description, other.Description = "", ""
	return r == other
}

// securityGroup finds a group for a changing action and checks the permission.
func securityGroup(c *api.Call, id string) (*store.SecurityGroup, error) {
	g := store.Find(c.SecurityGroups, id)
	subject := api.Target{ARN: ec2api.ARN(c, "security-group", id)}
	if g != nil {
		subject.Tags = g.Tags
		subject.Context = map[string][]string{"ec2:Vpc": {ec2api.ARN(c, "vpc", g.VPC)}}
	}
	if err := c.Allow(subject); err != nil {
		return nil, err
	}
	if g == nil {
		return nil, api.Errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
	}
	return g, nil
}

type createSecurityGroupInput struct {
	GroupName        string
	GroupDescription string
	VpcId            string
	TagSpecification []ec2api.TagSpecification
}

type createSecurityGroupOutput struct {
	ec2api.Done
	ID   string      `xml:"groupId"`
	ARN  string      `xml:"securityGroupArn"`
	Tags []store.Tag `xml:"tagSet>item"`
}

func createSecurityGroup(c *api.Call, in createSecurityGroupInput) (*createSecurityGroupOutput, error) {
	tags, err := ec2api.TagsFor(in.TagSpecification, "security-group")
	if err != nil {
		return nil, err
	}
	created := ec2api.ARN(c, "security-group", "*")
	vpc := store.Find(c.VPCs, in.VpcId)
	inVPC := api.Target{ARN: ec2api.ARN(c, "vpc", in.VpcId)}
	if vpc != nil {
		inVPC.Tags = vpc.Tags
	}
	if err := c.Allow(api.Target{ARN: created, RequestTags: tags}, inVPC); err != nil {
		return nil, err
	}
	if err := ec2api.AllowTagsOnCreate(c, "ec2:CreateTags", "ec2:CreateAction", created, tags); err != nil {
		return nil, err
	}
	switch {
	case vpc == nil:
		return nil, api.Errorf("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", in.VpcId)
	case in.GroupName == "" || in.GroupDescription == "":
		return nil, api.Errorf(
			"MissingParameter", "The request must contain the parameters GroupName and GroupDescription",
		)
	case strings.HasPrefix(in.GroupName, "sg-"):
		return nil, api.Errorf(
			"InvalidParameterValue",
			"Value (%s) for parameter groupName is invalid. Group names may not be in the format sg-*.", in.GroupName,
		)
	case len(in.GroupName) > 255 || len(in.GroupDescription) > 255:
		return nil, api.Errorf("InvalidParameterValue", "GroupName and GroupDescription may have up to 255 characters")
	case slices.ContainsFunc(
		c.SecurityGroups, func(g store.SecurityGroup) bool { return g.VPC == in.VpcId && g.Name == in.GroupName },
	):
		return nil, api.Errorf(
			"InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", in.GroupName, in.VpcId,
		)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	g := store.SecurityGroup{
		ID: c.NewID("sg"), Name: in.GroupName, Description: in.GroupDescription, VPC: in.VpcId, Tags: tags,
		Egress: []store.Rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}},
	}
	c.SecurityGroups = append(c.SecurityGroups, g)
	return &createSecurityGroupOutput{
		ec2api.Done{Return: true},
		g.ID,
		ec2api.ARN(c, "security-group", g.ID),
		tags.List(),
	}, nil
}

type deleteSecurityGroupInput struct{ GroupId string }

func deleteSecurityGroup(c *api.Call, in deleteSecurityGroupInput) (*ec2api.Done, error) {
	g, err := securityGroup(c, in.GroupId)
	if err != nil {
		return nil, err
	}
	if user := securityGroupUser(c.World, g.ID); user != "" {
		return nil, api.Errorf("DependencyViolation", "resource %s has a dependent object: %s", g.ID, user)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	c.SecurityGroups = store.Remove(c.SecurityGroups, g.ID)
	return &ec2api.Done{Return: true}, nil
}

// securityGroupUser returns a resource that uses a group and so prevents its deletion, "" if there is none.
func securityGroupUser(w *store.World, id string) string {
	for _, i := range w.Instances {
		if i.State != store.Terminated && slices.Contains(i.SecurityGroups, id) {
			return i.ID
		}
	}
	for _, l := range w.ClassicLoadBalancers {
		if slices.Contains(l.SecurityGroups, id) {
			return l.Name
		}
	}
	for _, l := range w.LoadBalancers {
		if slices.Contains(l.SecurityGroups, id) {
			return l.ARN
		}
	}
	for _, g := range w.SecurityGroups {
		refers := func(r store.Rule) bool { return r.Group == id }
		if g.ID != id && (slices.ContainsFunc(g.Ingress, refers) || slices.ContainsFunc(g.Egress, refers)) {
			return g.ID
		}
	}
	return ""
}

type permissionsInput struct {
	GroupId       string
	IpPermissions []permission
	// The short form for a single rule.
	IpProtocol       string
	FromPort         *int
	ToPort           *int
	CidrIp           string
	TagSpecification []ec2api.TagSpecification
}

func (in permissionsInput) rules() ([]store.Rule, error) {
	permissions := in.IpPermissions
	if in.IpProtocol != "" {
		permissions = append(
			permissions,
			permission{
				IpProtocol: in.IpProtocol,
				FromPort:   in.FromPort,
				ToPort:     in.ToPort,
				IpRanges:   []ipRange{{CidrIp: in.CidrIp}},
			},
		)
	}
	var rules []store.Rule
	for _, p := range permissions {
		rules = append(rules, p.rules()...)
	}
	if len(rules) == 0 {
		return nil, api.Errorf("MissingParameter", "The request must contain the parameter ipPermissions")
	}
	return rules, nil
}

// changeRules runs an authorizing or revoking action: apply gets the existing rules and the requested rules.
func changeRules(
	c *api.Call, in permissionsInput, side func(*store.SecurityGroup) *[]store.Rule,
	apply func(there, asked []store.Rule) ([]store.Rule, error),
) (*ec2api.Done, error) {
	g, err := securityGroup(c, in.GroupId)
	if err != nil {
		return nil, err
	}
	asked, err := in.rules()
	if err != nil {
		return nil, err
	}
	for _, r := range asked {
		if r.Group != "" && store.Find(c.SecurityGroups, r.Group) == nil {
			return nil, api.Errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", r.Group)
		}
	}
	rules, err := apply(slices.Clone(*side(g)), asked)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	*side(g) = rules
	return &ec2api.Done{Return: true}, nil
}

// maxRules is the default quota of rules per direction of a security group.
const maxRules = 60

func addRules(there, asked []store.Rule) ([]store.Rule, error) {
	for _, r := range asked {
		if slices.ContainsFunc(there, func(other store.Rule) bool { return same(r, other) }) {
			return nil, api.Errorf(
				"InvalidPermission.Duplicate",
				"the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists",
				r.CIDR+r.CIDRv6+r.Group+r.PrefixList, strings.ToUpper(r.Protocol), r.FromPort, r.ToPort,
			)
		}
		there = append(there, r)
	}
	if len(there) > maxRules {
		return nil, api.Errorf(
			"RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.",
		)
	}
	return there, nil
}

func removeRules(there, asked []store.Rule) ([]store.Rule, error) {
	for _, r := range asked {
		i := slices.IndexFunc(there, func(other store.Rule) bool { return same(r, other) })
		if i < 0 {
			return nil, api.Errorf(
				"InvalidPermission.NotFound", "The specified rule does not exist in this security group.",
			)
		}
		there = slices.Delete(there, i, i+1)
	}
	return there, nil
}

func ingress(g *store.SecurityGroup) *[]store.Rule { return &g.Ingress }

func egress(g *store.SecurityGroup) *[]store.Rule { return &g.Egress }

func authorizeIngress(c *api.Call, in permissionsInput) (*ec2api.Done, error) {
	return changeRules(c, in, ingress, addRules)
}

func revokeIngress(c *api.Call, in permissionsInput) (*ec2api.Done, error) {
	return changeRules(c, in, ingress, removeRules)
}

func authorizeEgress(c *api.Call, in permissionsInput) (*ec2api.Done, error) {
	return changeRules(c, in, egress, addRules)
}

func revokeEgress(c *api.Call, in permissionsInput) (*ec2api.Done, error) {
	return changeRules(c, in, egress, removeRules)
}
