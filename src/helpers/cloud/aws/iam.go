package aws

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kubernetes-release/helpers/preflight"
)

// scope is what a permission is restricted to.
type scope int

const (
	// anything: describe calls cannot be restricted.
	anything scope = iota
	// creates resources with the cluster's tag (aws:RequestTag).
	creates
	// changes resources that have the cluster's tag (aws:ResourceTag).
	changes
	// tagsNew tags resources while they are created, and no others (CreateAction).
	tagsNew
	// serviceLinked creates the service-linked role of the load balancer service, once per account.
	serviceLinked
	// itself is the role's own ARN.
	itself
	// inVPC is the VPC that a resource is created in, which has no cluster's tag.
	inVPC
)

// permission is one row of the table that policies and checks are derived from.
type permission struct {
	action    string
	roles     []preflight.Role
	scope     scope
	resources []string // ARNs after "arn:PARTITION:"; empty: *
	why       string
	routes    bool // required only with cloud routes
	rare      bool // most clusters work without it
}

// permissions is the table of all calls of the cloud controller manager 1.37, kubelet's credential provider and these
// checks.
var permissions = buildPermissions()

func buildPermissions() []permission {
	var table []permission
	add := func(roles []preflight.Role, s scope, resources []string, why string, actions ...string) {
		for _, a := range actions {
			table = append(table, permission{action: a, roles: roles, scope: s, resources: resources, why: why})
		}
	}
	group := []string{"ec2:*:*:security-group/*"}
	loadBalancer := []string{"elasticloadbalancing:*:*:loadbalancer/*"}
	target := []string{"elasticloadbalancing:*:*:targetgroup/*"}
	listener := []string{"elasticloadbalancing:*:*:loadbalancer/*", "elasticloadbalancing:*:*:listener/*"}

	add(both, anything, nil, "The cloud controller does not start without it, and the checks read the cluster's tag with it.", "ec2:DescribeInstances")
	add(both, anything, nil, "The cloud controller finds the subnets of load balancers with it.", "ec2:DescribeSubnets")
	add(both, anything, nil, "The cloud controller finds the security group that it opens for load balancers with it.", "ec2:DescribeSecurityGroups")
	add(controlOnly, anything, nil, "The cloud controller distinguishes public from private subnets with it.", "ec2:DescribeRouteTables")
	add(controlOnly, anything, nil, "Without it nodes keep the taint uninitialized, and no load balancer is created.", "ec2:DescribeAvailabilityZones")
	add(controlOnly, anything, nil, "Nodes of some instance types get topology labels from it; if it is denied they have no such labels.", "ec2:DescribeInstanceTopology")
	add(controlOnly, creates, group, "The cloud controller creates the security groups of load balancers with it.", "ec2:CreateSecurityGroup")
	add(controlOnly, inVPC, []string{"ec2:*:*:vpc/*"}, "The cloud controller creates the security groups of load balancers with it.", "ec2:CreateSecurityGroup")
	add(controlOnly, tagsNew, group, "The cloud controller tags the security groups of load balancers with it.", "ec2:CreateTags")
	add(controlOnly, changes, group, "The cloud controller allows traffic to nodes and load balancers, and revokes that, with it.",
		"ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress", "ec2:DeleteSecurityGroup")
	for _, a := range []string{"ec2:CreateRoute", "ec2:DeleteRoute"} {
		table = append(table, permission{a, controlOnly, changes, []string{"ec2:*:*:route-table/*"}, "The cloud controller writes pod routes with it.", true, false})
	}
	table = append(table, permission{"ec2:ModifyInstanceAttribute", controlOnly, changes, []string{"ec2:*:*:instance/*"}, "The cloud controller turns the source/destination check off with it, for pod routes.", true, false})

	const balance = "elasticloadbalancing:"
	describe := "The cloud controller finds load balancers with it."
	for _, a := range []string{"LoadBalancers", "LoadBalancerAttributes", "LoadBalancerPolicies", "Listeners", "TargetGroups", "TargetGroupAttributes", "TargetHealth"} {
		add(controlOnly, anything, nil, describe, balance+"Describe"+a)
	}
	add(controlOnly, creates, append(slices.Clone(loadBalancer), target...), "The cloud controller creates load balancers with it.", balance+"CreateLoadBalancer", balance+"CreateTargetGroup")
	// The resource of this action is the load balancer, which exists already.
	add(controlOnly, changes, loadBalancer, "The cloud controller adds ports to network load balancers with it.", balance+"CreateListener")
	add(controlOnly, tagsNew, append(slices.Clone(listener), target...), "The cloud controller tags load balancers with it.", balance+"AddTags")
	add(controlOnly, changes, loadBalancer, "The cloud controller updates classic load balancers with it.",
		balance+"AddTags", balance+"ApplySecurityGroupsToLoadBalancer", balance+"AttachLoadBalancerToSubnets", balance+"ConfigureHealthCheck",
		balance+"CreateLoadBalancerListeners", balance+"CreateLoadBalancerPolicy", balance+"DeleteLoadBalancer", balance+"DeleteLoadBalancerListeners",
		balance+"DeregisterInstancesFromLoadBalancer", balance+"DetachLoadBalancerFromSubnets", balance+"ModifyLoadBalancerAttributes",
		balance+"RegisterInstancesWithLoadBalancer", balance+"SetLoadBalancerPoliciesForBackendServer", balance+"SetLoadBalancerPoliciesOfListener", balance+"SetSecurityGroups")
	add(controlOnly, changes, append(slices.Clone(listener), target...), "The cloud controller updates network load balancers with it.",
		balance+"DeleteListener", balance+"DeleteTargetGroup", balance+"DeregisterTargets", balance+"ModifyListener", balance+"ModifyTargetGroup",
		balance+"ModifyTargetGroupAttributes", balance+"RegisterTargets")
	add(controlOnly, serviceLinked, []string{"iam::*:role/aws-service-role/elasticloadbalancing.amazonaws.com/AWSServiceRoleForElasticLoadBalancing"},
		"The first load balancer of an account requires it.", "iam:CreateServiceLinkedRole")

	add(both, anything, nil, "kubelet pulls images from ECR with it.", "ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer",
		"ecr:GetRepositoryPolicy", "ecr:DescribeRepositories", "ecr:ListImages", "ecr:BatchGetImage")
	add(both, itself, nil, "The checks ask IAM with it about permissions that cannot be tested without using them, such as creating a load balancer.", simulateAction)
	add(both, itself, nil, "The checks find the path of the role's name with it, if it has one.", findRoleAction)
	for i := range table {
		table[i].rare = slices.Contains(rarelyUsed, table[i].action) || strings.HasPrefix(table[i].action, "ecr:")
	}
	return table
}

// rarelyUsed are the actions that only some clusters call: topology labels of some instance types, the first load balancer
// of an account, the proxy protocol.
var rarelyUsed = []string{"ec2:DescribeInstanceTopology", "iam:CreateServiceLinkedRole", simulateAction, findRoleAction, "elasticloadbalancing:DescribeLoadBalancerPolicies",
	"elasticloadbalancing:CreateLoadBalancerPolicy", "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer", "elasticloadbalancing:SetLoadBalancerPoliciesOfListener"}

// whyPermission explains what an action is required for.
func whyPermission(action string) string {
	first, _, _ := strings.Cut(action, " or ")
	for _, p := range permissions {
		if p.action == first {
			return p.why
		}
	}
	return "The cloud controller requires it."
}

// Actions returns the actions that a machine with this role requires, sorted and without duplicates, optionally with
// those of cloud routes.
func Actions(role preflight.Role, cloudRoutes bool) []string {
	var actions []string
	for _, p := range permissions {
		if slices.Contains(p.roles, role) && (cloudRoutes || !p.routes) {
			actions = append(actions, p.action)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// partition is a group of regions with accounts of its own.
type partition struct{ name, domain string }

var partitions = []partition{{"aws", "amazonaws.com"}, {"aws-cn", "amazonaws.com.cn"}, {"aws-us-gov", "amazonaws.com"}}

// partitionOf returns the partition of a region.
func partitionOf(region string) partition {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return partitions[1]
	case strings.HasPrefix(region, "us-gov-"):
		return partitions[2]
	}
	return partitions[0]
}

// PolicyOptions selects a policy.
type PolicyOptions struct {
	Role        preflight.Role
	Cluster     string
	Partition   string // aws (also if empty), aws-cn or aws-us-gov
	CloudRoutes bool   // with the permissions of the route controller
	RoleName    string // of the IAM role that gets the policy; defaults to kubernetes-ROLE
	WideOpen    bool   // ec2:* and elasticloadbalancing:*, for experiments only
}

// Policy is an IAM policy document.
type Policy struct {
	Version   string
	Statement []Statement
}

// Statement is one statement of a Policy.
type Statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// JSON returns the document indented, with a newline at its end.
func (p Policy) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(content, '\n'), nil
}

// NewPolicy derives the policy for the machines of a role from the table of permissions. It allows creating resources with
// the cluster's tag, changing resources that have the tag, and tagging only while creating. The error names the invalid
// option.
func NewPolicy(o PolicyOptions) (Policy, error) {
	if o.Partition == "" {
		o.Partition = "aws"
	}
	names := []string{}
	for _, p := range partitions {
		names = append(names, p.name)
	}
	if !slices.Contains(names, o.Partition) {
		return Policy{}, fmt.Errorf("partition %q is not one of %s", o.Partition, strings.Join(names, ", "))
	}
	if o.Role != preflight.Control && o.Role != preflight.Worker {
		return Policy{}, fmt.Errorf("role %q is not one of control, worker", o.Role)
	}
	if o.WideOpen {
		return Policy{Version: policyVersion, Statement: []Statement{{
			Sid: "WideOpenNotForProduction", Effect: "Allow", Action: []string{"ec2:*", "elasticloadbalancing:*", "ecr:*"}, Resource: []string{"*"},
		}}}, nil
	}
	if err := ValidateClusterName(o.Cluster); err != nil {
		return Policy{}, err
	}
	if o.RoleName == "" {
		o.RoleName = DefaultRoleName(o.Role)
	}
	if !roleNameForm.MatchString(o.RoleName) {
		return Policy{}, fmt.Errorf("role name %q is not 1 to 64 letters, digits or + = , . @ _ -", o.RoleName)
	}
	policy := Policy{Version: policyVersion}
	index := map[string]int{}
	for _, p := range permissions {
		if !slices.Contains(p.roles, o.Role) || p.routes && !o.CloudRoutes {
			continue
		}
		service, _, _ := strings.Cut(p.action, ":")
		statement := p.statement(service, o)
		key := statement.Sid + strings.Join(statement.Resource, ",")
		at, ok := index[key]
		if !ok {
			at = len(policy.Statement)
			index[key] = at
			policy.Statement = append(policy.Statement, statement)
			continue
		}
		policy.Statement[at].Action = append(policy.Statement[at].Action, p.action)
	}
	seen := map[string]int{}
	for i := range policy.Statement {
		s := &policy.Statement[i]
		slices.Sort(s.Action)
		seen[s.Sid]++
		if n := seen[s.Sid]; n > 1 { // ids must be unique in a document
			s.Sid = fmt.Sprintf("%s%d", s.Sid, n)
		}
	}
	return policy, nil
}

var roleNameForm = regexp.MustCompile(`^[A-Za-z0-9+=,.@_-]{1,64}$`)

// DefaultRoleName is the name of the IAM role of machines with a role, unless the operator chooses another.
func DefaultRoleName(role preflight.Role) string { return "kubernetes-" + string(role) }

const policyVersion = "2012-10-17"

var serviceNames = map[string]string{"ec2": "Ec2", "elasticloadbalancing": "LoadBalancers", "ecr": "Ecr", "iam": "Iam"}

// createActions are the actions that tag a service's new resources.
var createActions = map[string][]string{
	"ec2":                  {"CreateSecurityGroup"},
	"elasticloadbalancing": {"CreateLoadBalancer", "CreateTargetGroup", "CreateListener"},
}

func (p permission) statement(service string, o PolicyOptions) Statement {
	s := Statement{Effect: "Allow", Action: []string{p.action}, Resource: []string{"*"}}
	if len(p.resources) > 0 {
		s.Resource = nil
		for _, r := range p.resources {
			s.Resource = append(s.Resource, "arn:"+o.Partition+":"+r)
		}
	}
	name := serviceNames[service]
	tagIs := func(kind string) map[string]map[string][]string {
		return map[string]map[string][]string{"StringEquals": {kind + "/" + TagPrefix + o.Cluster: {"owned", "shared"}}}
	}
	switch p.scope {
	case anything:
		s.Sid = name + "Read"
		if service == "ecr" {
			s.Sid = name + "Pull"
		}
	case creates:
		s.Sid = name + "CreateTagged"
		s.Condition = tagIs("aws:RequestTag")
	case changes:
		s.Sid = name + "ChangeOwn"
		s.Condition = tagIs("aws:ResourceTag")
	case tagsNew:
		s.Sid = name + "TagNew"
		s.Condition = tagIs("aws:RequestTag")
		s.Condition["StringEquals"][service+":CreateAction"] = createActions[service]
	case serviceLinked:
		s.Sid = name + "ServiceLinkedRole"
		s.Condition = map[string]map[string][]string{"StringEquals": {"iam:AWSServiceName": {"elasticloadbalancing.amazonaws.com"}}}
	case itself:
		s.Sid = name + "AskAboutItself"
		// The name of a role is unique in an account, whatever its path.
		s.Resource = []string{"arn:" + o.Partition + ":iam::*:role/" + o.RoleName, "arn:" + o.Partition + ":iam::*:role/*/" + o.RoleName}
	case inVPC:
		s.Sid = name + "CreateInVpc"
	}
	return s
}
