package awssim

import (
	"slices"
	"strconv"
	"strings"
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
	Tags        []tag        `xml:"tagSet>item"`
}

type describeSecurityGroupsInput struct {
	page
	GroupId   []string
	GroupName []string
}

type describeSecurityGroupsOutput struct {
	Groups    []securityGroupView `xml:"securityGroupInfo>item"`
	NextToken string              `xml:"nextToken,omitempty"`
}

func (c *call) describeSecurityGroups(in describeSecurityGroupsInput) (*describeSecurityGroupsOutput, error) {
	if len(in.GroupName) > 0 {
		in.Filter = append(in.Filter, filter{Name: "group-name", Value: in.GroupName})
	}
	list, err := withIDs(c.SecurityGroups, in.GroupId, "InvalidGroup", "security group")
	if err != nil {
		return nil, err
	}
	views, next, err := described(list, in.page, 1000, c.securityGroupAttributes, c.securityGroupView)
	return &describeSecurityGroupsOutput{views, next}, err
}

func (c *call) securityGroupView(g *SecurityGroup) securityGroupView {
	return securityGroupView{
		Owner: c.Account, ID: g.ID, ARN: c.ec2ARN("security-group", g.ID), Name: g.Name, Description: g.Description, VPC: g.VPC,
		Ingress: c.permissions(g.Ingress), Egress: c.permissions(g.Egress), Tags: g.Tags.list(),
	}
}

func (c *call) securityGroupAttributes(g *SecurityGroup) (attributes, Tags) {
	ingress := func(get func(Rule) string) func() []string {
		return func() (values []string) {
			for _, r := range g.Ingress {
				values = append(values, get(r))
			}
			return values
		}
	}
	return attributes{
		"group-id": one(g.ID), "group-name": one(g.Name), "description": one(g.Description), "vpc-id": one(g.VPC), "owner-id": one(c.Account),
		"ip-permission.group-id":  ingress(func(r Rule) string { return r.Group }),
		"ip-permission.cidr":      ingress(func(r Rule) string { return r.CIDR }),
		"ip-permission.protocol":  ingress(func(r Rule) string { return r.Protocol }),
		"ip-permission.from-port": ingress(func(r Rule) string { return strconv.Itoa(r.FromPort) }),
		"ip-permission.to-port":   ingress(func(r Rule) string { return strconv.Itoa(r.ToPort) }),
	}, g.Tags
}

// permissions groups rules as EC2 describes them: one permission for each protocol and range of ports.
func (w *World) permissions(rules []Rule) []permission {
	var list []permission
	for _, r := range rules {
		i := slices.IndexFunc(list, func(p permission) bool {
			return p.IpProtocol == r.Protocol && (p.FromPort == nil || *p.FromPort == r.FromPort && *p.ToPort == r.ToPort)
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
func (p permission) rules() []Rule {
	base := Rule{Protocol: strings.ToLower(p.IpProtocol)}
	if name, ok := protocolNames[base.Protocol]; ok {
		base.Protocol = name
	}
	if base.Protocol != "-1" && p.FromPort != nil && p.ToPort != nil {
		base.FromPort, base.ToPort = *p.FromPort, *p.ToPort
	}
	var rules []Rule
	add := func(set func(*Rule), description string) {
		r := base
		r.Description = description
		set(&r)
		rules = append(rules, r)
	}
	for _, g := range p.Groups {
		add(func(r *Rule) { r.Group = g.GroupId }, g.Description)
	}
	for _, c := range p.IpRanges {
		add(func(r *Rule) { r.CIDR = c.CidrIp }, c.Description)
	}
	for _, c := range p.Ipv6Ranges {
		add(func(r *Rule) { r.CIDRv6 = c.CidrIpv6 }, c.Description)
	}
	for _, l := range p.PrefixListIds {
		add(func(r *Rule) { r.PrefixList = l.PrefixListId }, l.Description)
	}
	return rules
}

// same compares rules without their descriptions.
func (r Rule) same(other Rule) bool {
	r.Description, other.Description = "", ""
	return r == other
}

// securityGroup finds a group for a changing action and checks the permission.
func (c *call) securityGroup(id string) (*SecurityGroup, error) {
	g := find(c.SecurityGroups, id)
	subject := target{arn: c.ec2ARN("security-group", id)}
	if g != nil {
		subject.tags = g.Tags
		subject.context = map[string][]string{"ec2:Vpc": {c.ec2ARN("vpc", g.VPC)}}
	}
	if err := c.allow(subject); err != nil {
		return nil, err
	}
	if g == nil {
		return nil, errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
	}
	return g, nil
}

type createSecurityGroupInput struct {
	GroupName        string
	GroupDescription string
	VpcId            string
	TagSpecification []tagSpecification
}

type createSecurityGroupOutput struct {
	done
	ID   string `xml:"groupId"`
	ARN  string `xml:"securityGroupArn"`
	Tags []tag  `xml:"tagSet>item"`
}

func (c *call) createSecurityGroup(in createSecurityGroupInput) (*createSecurityGroupOutput, error) {
	tags, err := tagsFor(in.TagSpecification, "security-group")
	if err != nil {
		return nil, err
	}
	created := c.ec2ARN("security-group", "*")
	vpc := find(c.VPCs, in.VpcId)
	inVPC := target{arn: c.ec2ARN("vpc", in.VpcId)}
	if vpc != nil {
		inVPC.tags = vpc.Tags
	}
	if err := c.allow(target{arn: created, requestTags: tags}, inVPC); err != nil {
		return nil, err
	}
	if err := c.allowTagsOnCreate("ec2:CreateTags", "ec2:CreateAction", created, tags); err != nil {
		return nil, err
	}
	switch {
	case vpc == nil:
		return nil, errorf("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", in.VpcId)
	case in.GroupName == "" || in.GroupDescription == "":
		return nil, errorf("MissingParameter", "The request must contain the parameters GroupName and GroupDescription")
	case strings.HasPrefix(in.GroupName, "sg-"):
		return nil, errorf("InvalidParameterValue", "Value (%s) for parameter groupName is invalid. Group names may not be in the format sg-*.", in.GroupName)
	case len(in.GroupName) > 255 || len(in.GroupDescription) > 255:
		return nil, errorf("InvalidParameterValue", "GroupName and GroupDescription may have up to 255 characters")
	case slices.ContainsFunc(c.SecurityGroups, func(g SecurityGroup) bool { return g.VPC == in.VpcId && g.Name == in.GroupName }):
		return nil, errorf("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", in.GroupName, in.VpcId)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	g := SecurityGroup{
		ID: c.newID("sg"), Name: in.GroupName, Description: in.GroupDescription, VPC: in.VpcId, Tags: tags,
		Egress: []Rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}},
	}
	c.SecurityGroups = append(c.SecurityGroups, g)
	return &createSecurityGroupOutput{done{true}, g.ID, c.ec2ARN("security-group", g.ID), tags.list()}, nil
}

type deleteSecurityGroupInput struct{ GroupId string }

func (c *call) deleteSecurityGroup(in deleteSecurityGroupInput) (*done, error) {
	g, err := c.securityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}
	if user := c.securityGroupUser(g.ID); user != "" {
		return nil, errorf("DependencyViolation", "resource %s has a dependent object: %s", g.ID, user)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	c.SecurityGroups = remove(c.SecurityGroups, g.ID)
	return &done{true}, nil
}

// securityGroupUser returns a resource that uses a group and so prevents its deletion, "" if there is none.
func (w *World) securityGroupUser(id string) string {
	for _, i := range w.Instances {
		if i.State != Terminated && slices.Contains(i.SecurityGroups, id) {
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
		refers := func(r Rule) bool { return r.Group == id }
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
	TagSpecification []tagSpecification
}

func (in permissionsInput) rules() ([]Rule, error) {
	permissions := in.IpPermissions
	if in.IpProtocol != "" {
		permissions = append(permissions, permission{IpProtocol: in.IpProtocol, FromPort: in.FromPort, ToPort: in.ToPort, IpRanges: []ipRange{{CidrIp: in.CidrIp}}})
	}
	var rules []Rule
	for _, p := range permissions {
		rules = append(rules, p.rules()...)
	}
	if len(rules) == 0 {
		return nil, errorf("MissingParameter", "The request must contain the parameter ipPermissions")
	}
	return rules, nil
}

// changeRules runs an authorizing or revoking action: apply gets the existing rules and the requested rules.
func (c *call) changeRules(in permissionsInput, side func(*SecurityGroup) *[]Rule, apply func(there, asked []Rule) ([]Rule, error)) (*done, error) {
	g, err := c.securityGroup(in.GroupId)
	if err != nil {
		return nil, err
	}
	asked, err := in.rules()
	if err != nil {
		return nil, err
	}
	for _, r := range asked {
		if r.Group != "" && find(c.SecurityGroups, r.Group) == nil {
			return nil, errorf("InvalidGroup.NotFound", "The security group '%s' does not exist", r.Group)
		}
	}
	rules, err := apply(slices.Clone(*side(g)), asked)
	if err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	*side(g) = rules
	return &done{true}, nil
}

// maxRules is the default quota of rules per direction of a security group.
const maxRules = 60

func addRules(there, asked []Rule) ([]Rule, error) {
	for _, r := range asked {
		if slices.ContainsFunc(there, r.same) {
			return nil, errorf("InvalidPermission.Duplicate", "the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists", r.CIDR+r.CIDRv6+r.Group+r.PrefixList, strings.ToUpper(r.Protocol), r.FromPort, r.ToPort)
		}
		there = append(there, r)
	}
	if len(there) > maxRules {
		return nil, errorf("RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.")
	}
	return there, nil
}

func removeRules(there, asked []Rule) ([]Rule, error) {
	for _, r := range asked {
		i := slices.IndexFunc(there, r.same)
		if i < 0 {
			return nil, errorf("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
		}
		there = slices.Delete(there, i, i+1)
	}
	return there, nil
}

func ingress(g *SecurityGroup) *[]Rule { return &g.Ingress }
func egress(g *SecurityGroup) *[]Rule  { return &g.Egress }

func (c *call) authorizeIngress(in permissionsInput) (*done, error) {
	return c.changeRules(in, ingress, addRules)
}

func (c *call) revokeIngress(in permissionsInput) (*done, error) {
	return c.changeRules(in, ingress, removeRules)
}

func (c *call) authorizeEgress(in permissionsInput) (*done, error) {
	return c.changeRules(in, egress, addRules)
}

func (c *call) revokeEgress(in permissionsInput) (*done, error) {
	return c.changeRules(in, egress, removeRules)
}
