package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// scope is what a permission is restricted to. The condition keys are those that AWS' service authorization reference
// lists for the actions.
type scope int

const (
	// anything: describe calls cannot be restricted.
	anything scope = iota
	// creates resources with the cluster's tag and the value owned (aws:RequestTag).
	creates
	// changes resources that have the cluster's tag (aws:ResourceTag).
	changes
	// changesOwn changes only what has the value owned, which the cloud controller has created.
	changesOwn
	// tagsNew tags resources while they are created, and no others (CreateAction).
	tagsNew
	// serviceLinked creates the service-linked role of the load balancer service, once per account.
	serviceLinked
	// itself is the role's own ARN.
	itself
	// inVPC is the VPC that a resource is created in, which has no cluster's tag.
	inVPC
	// writesRoutes is the configured route table, or the ones with the cluster's tag.
	writesRoutes
	// sourceDestOff turns the source/destination check of the cluster's instances off, and changes no other attribute
	// (ec2:Attribute).
	sourceDestOff
	// publicRegistry gets tokens for Amazon ECR Public, and for no other service (sts:AWSServiceName).
	publicRegistry
	// otherRole is the role that the cloud controller is configured to assume.
	otherRole
	// onNodes are instances with the cluster's tag, whatever its value.
	onNodes
	// usesKeys are the customer managed keys of volumes, for EC2 only (kms:ViaService).
	usesKeys
)

// permission is one row of the table that policies and checks are derived from.
type permission struct {
	action    string
	roles     []preflight.Role
	scope     scope
	resources []string // ARNs after "arn:PARTITION:"; empty: *
	why       string
	holder    holder
	when      func(policyNeeds) bool // nil: always
	storage   bool                   // of the EBS CSI driver
	rare      bool                   // most clusters work without it
}

// holder is the role of a control VM that needs a permission if the cloud controller assumes another role.
type holder int

const (
	controllers holder = iota // the one that the cloud controller assumes
	machines                  // the one of the instance profile, which kubelet uses
	eachRole
)

// policyNeeds is what the permissions of machines depend on.
type policyNeeds struct {
	role    preflight.Role
	routes  bool
	storage bool
	keys    []string // ARNs
	conf    cloudconfig.Config
}

// includes reports whether a row applies, and to the role of the instance profile or to the one that the cloud
// controller assumes.
func (n policyNeeds) includes(p permission) (own, assumed bool) {
	if !slices.Contains(p.roles, n.role) || p.storage && !n.storage || p.when != nil && !p.when(n) {
		return false, false
	}
	if n.role != preflight.Control || n.conf.RoleARN == "" {
		return p.scope != otherRole, false
	}
	return p.holder != controllers, p.holder != machines
}

// needs reports whether a row applies to either role.
func (n policyNeeds) needs(p permission) bool {
	own, assumed := n.includes(p)
	return own || assumed
}

// Conditions of rows.
func withRoutes(n policyNeeds) bool { return n.routes }

func withKeys(n policyNeeds) bool { return len(n.keys) > 0 }

// createsGroups: with ElbSecurityGroup the cloud controller neither creates nor deletes a group
// (buildELBSecurityGroupList and buildSecurityGroupsToDelete in cloud-provider-aws), and does not change that group's
// rules (addSecurityGroupIngress).
func createsGroups(n policyNeeds) bool { return n.conf.ElbSecurityGroup == "" }

// opensNodes: with DisableSecurityGroupIngress the groups of nodes keep their rules
// (updateInstanceSecurityGroupsForLoadBalancer and updateInstanceSecurityGroupsForNLB).
func opensNodes(n policyNeeds) bool { return !n.conf.NoIngressManagement }

// permissions is the table of all calls of the cloud controller manager 1.37, kubelet's credential provider and these
// checks. evidence.go has, for each action, where it was seen or which source calls it.
var permissions = buildPermissions()

func buildPermissions() []permission {
	var table []permission
	row := func(p permission, actions ...string) {
		for _, p.action = range actions {
			table = append(table, p)
		}
	}
	control := func(s scope, resources []string, why string, actions ...string) {
		row(permission{roles: controlOnly, scope: s, resources: resources, why: why}, actions...)
	}
	group := []string{"ec2:*:*:security-group/*"}
	loadBalancer := []string{"elasticloadbalancing:*:*:loadbalancer/*"}
	target := []string{"elasticloadbalancing:*:*:targetgroup/*"}
	listener := []string{"elasticloadbalancing:*:*:loadbalancer/*", "elasticloadbalancing:*:*:listener/*"}

	row(
		permission{
			roles:  both,
			holder: eachRole,
			why:    "The cloud controller does not start without it, and the checks read the cluster's tag with it.",
		},
		"ec2:DescribeInstances",
	)
	row(
		permission{roles: both, why: "The cloud controller finds the subnets of load balancers with it."},
		"ec2:DescribeSubnets",
	)
	row(
		permission{
			roles: both,
			why:   "The cloud controller finds the security group that it opens for load balancers with it.",
		},
		"ec2:DescribeSecurityGroups",
	)
	control(
		anything, nil, "The cloud controller distinguishes public from private subnets with it.",
		"ec2:DescribeRouteTables",
	)
	control(
		anything, nil, "Without it nodes keep the taint uninitialized, and no load balancer is created.",
		"ec2:DescribeAvailabilityZones",
	)
	control(
		anything, nil,
		"Nodes of some instance types get topology labels from it; if it is denied they have no such labels.",
		"ec2:DescribeInstanceTopology",
	)
	control(
		anything, nil, "AWS requires it of whoever creates the first load balancer of an account.",
		"ec2:DescribeAccountAttributes", "ec2:DescribeInternetGateways",
	)

	const createGroup = "The cloud controller creates the security groups of load balancers with it."
	groups := func(s scope, resources []string, why string, when func(policyNeeds) bool, actions ...string) {
		row(permission{roles: controlOnly, scope: s, resources: resources, why: why, when: when}, actions...)
	}
	groups(creates, group, createGroup, createsGroups, "ec2:CreateSecurityGroup")
	groups(inVPC, []string{"ec2:*:*:vpc/*"}, createGroup, createsGroups, "ec2:CreateSecurityGroup")
	groups(
		tagsNew, group, "The cloud controller tags the security groups of load balancers with it.", createsGroups,
		"ec2:CreateTags",
	)
	groups(
		changesOwn, group, "The cloud controller deletes the security groups of load balancers with it.", createsGroups,
		"ec2:DeleteSecurityGroup",
	)
	const openGroup = "The cloud controller allows traffic to nodes and load balancers, and revokes that, with it."
	groups(changes, group, openGroup, opensNodes, "ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress")
	groups(
		changesOwn, group, openGroup, func(n policyNeeds) bool { return !opensNodes(n) && createsGroups(n) },
		"ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress",
	)

	groups(
		writesRoutes, []string{"ec2:*:*:route-table/*"}, "The cloud controller writes pod routes with it.", withRoutes,
		"ec2:CreateRoute", "ec2:DeleteRoute",
	)
	groups(
		sourceDestOff, []string{"ec2:*:*:instance/*"},
		"The cloud controller turns the source/destination check off with it, for pod routes.", withRoutes,
		"ec2:ModifyInstanceAttribute",
	)

	const balance = "elasticloadbalancing:"
	describe := "The cloud controller finds load balancers with it."
	for _, a := range []string{
		"LoadBalancers",
		"LoadBalancerAttributes",
		"LoadBalancerPolicies",
		"Listeners",
		"TargetGroups",
		"TargetGroupAttributes",
		"TargetHealth",
	} {
		control(anything, nil, describe, balance+"Describe"+a)
	}
	control(
		creates, append(slices.Clone(loadBalancer), target...), "The cloud controller creates load balancers with it.",
		balance+"CreateLoadBalancer", balance+"CreateTargetGroup",
	)
	// The resource of this action is the load balancer, which exists already.
	control(
		changesOwn, loadBalancer, "The cloud controller adds ports to network load balancers with it.",
		balance+"CreateListener",
	)
	control(
		tagsNew, append(slices.Clone(listener), target...), "The cloud controller tags load balancers with it.",
		balance+"AddTags",
	)
	control(
		changesOwn, loadBalancer, "The cloud controller updates classic load balancers with it.", balance+"AddTags",
		balance+"ApplySecurityGroupsToLoadBalancer", balance+"AttachLoadBalancerToSubnets",
		balance+"ConfigureHealthCheck", balance+"CreateLoadBalancerListeners", balance+"CreateLoadBalancerPolicy",
		balance+"DeleteLoadBalancer", balance+"DeleteLoadBalancerListeners",
		balance+"DeregisterInstancesFromLoadBalancer", balance+"DetachLoadBalancerFromSubnets",
		balance+"ModifyLoadBalancerAttributes", balance+"RegisterInstancesWithLoadBalancer",
		balance+"SetLoadBalancerPoliciesForBackendServer", balance+"SetLoadBalancerPoliciesOfListener",
		balance+"SetSecurityGroups",
	)
	control(
		changesOwn, append(slices.Clone(listener), target...),
		"The cloud controller updates network load balancers with it.", balance+"DeleteListener",
		balance+"DeleteTargetGroup", balance+"DeregisterTargets", balance+"ModifyListener", balance+"ModifyTargetGroup",
		balance+"ModifyTargetGroupAttributes", balance+"RegisterTargets",
	)
	control(
		serviceLinked,
		[]string{
			"iam::*:role/aws-service-role/elasticloadbalancing.amazonaws.com/AWSServiceRoleForElasticLoadBalancing",
		},
		"The first load balancer of an account requires it.",
		"iam:CreateServiceLinkedRole",
	)

	table = append(table, storagePermissions()...)

	const pull = "kubelet pulls images from ECR with it."
	row(
		permission{roles: both, holder: machines, why: pull}, "ecr:GetAuthorizationToken", "ecr:BatchGetImage",
		"ecr:GetDownloadUrlForLayer",
	)
	row(
		permission{
			roles:  both,
			holder: machines,
			why:    "kubelet pulls images from public.ecr.aws with it, instead of anonymously.",
		},
		"ecr-public:GetAuthorizationToken",
	)
	row(
		permission{
			roles:  both,
			holder: machines,
			scope:  publicRegistry,
			why:    "kubelet pulls images from public.ecr.aws with it, instead of anonymously.",
		},
		"sts:GetServiceBearerToken",
	)

	row(
		permission{
			roles:  controlOnly,
			holder: machines,
			scope:  otherRole,
			why:    "The cloud controller makes all its calls as the role in RoleARN.",
		},
		assumeAction,
	)
	row(
		permission{
			roles: both,
			scope: itself,
			why: "The checks ask IAM with it about permissions that cannot be tested without using them, such as " +
				"creating a load balancer.",
		},
		simulateAction,
	)
	row(
		permission{
			roles: both,
			scope: itself,
			why:   "The checks find the path of the role's name with it, if it has one.",
		},
		findRoleAction,
	)
	for i := range table {
		service, _, _ := strings.Cut(table[i].action, ":")
		table[i].rare = slices.Contains(rarelyUsed, table[i].action) || strings.HasPrefix(service, "ecr")
	}
	return table
}

// rarelyUsed are the actions that only some clusters call: topology labels of some instance types, the first load
// balancer of an account, the proxy protocol.
var rarelyUsed = []string{
	"ec2:DescribeInstanceTopology", "ec2:DescribeAccountAttributes", "ec2:DescribeInternetGateways",
	"iam:CreateServiceLinkedRole", "sts:GetServiceBearerToken", simulateAction, findRoleAction,
	"elasticloadbalancing:DescribeLoadBalancerPolicies", "elasticloadbalancing:CreateLoadBalancerPolicy",
	"elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
	"elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
}

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
	return policyNeeds{role: role, routes: cloudRoutes}.actions()
}

// Rare reports whether few clusters use an action, so that a check only warns when it is missing.
func Rare(action string) bool {
	return slices.ContainsFunc(permissions, func(p permission) bool { return p.action == action && p.rare })
}

func (n policyNeeds) actions() []string {
	var actions []string
	for _, p := range permissions {
		if n.needs(p) {
			actions = append(actions, p.action)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// PolicyOptions selects a policy.
type PolicyOptions struct {
	Role        preflight.Role
	Cluster     string
	Partition   string   // aws (also if empty), aws-cn or aws-us-gov
	VPC         string   // id of the only VPC in which security groups may be created; empty: any
	CloudRoutes bool     // with the permissions of the route controller
	Storage     bool     // with the permissions of the EBS CSI driver
	Keys        []string // ARNs of the customer managed keys that volumes are encrypted with
	// of the IAM role that gets the policy; defaults to kubernetes-ROLE, or the name in the configuration's RoleARN
	RoleName    string
	WideOpen    bool   // ec2:* and elasticloadbalancing:*, for experiments only
	CloudConfig []byte // the cloud controller's configuration file, which adds and removes permissions
	// the policy of the role in the configuration's RoleARN, in place of the one of the instance profile
	AssumedRole bool
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

// NewPolicy derives the policy for the machines of a role from the table of permissions. It allows creating resources
// with the cluster's tag, changing resources that have the tag, and tagging only while creating. The error names the
// invalid option.
func NewPolicy(o PolicyOptions) (Policy, error) {
	if o.Partition == "" {
		o.Partition = "aws"
	}
	names := []string{}
	for _, p := range arn.Partitions {
		names = append(names, p.Name)
	}
	if !slices.Contains(names, o.Partition) {
		return Policy{}, fmt.Errorf("partition %q is not one of %s", o.Partition, strings.Join(names, ", "))
	}
	if o.Role != preflight.Control && o.Role != preflight.Worker {
		return Policy{}, fmt.Errorf("role %q is not one of control, worker", o.Role)
	}
	if o.WideOpen {
		return Policy{Version: policyVersion, Statement: []Statement{
			{
				Sid:      "WideOpenNotForProduction",
				Effect:   "Allow",
				Action:   []string{"ec2:*", "elasticloadbalancing:*", "ecr:*"},
				Resource: []string{"*"},
			},
		}}, nil
	}
	if err := clustertags.ValidateName(o.Cluster); err != nil {
		return Policy{}, err
	}
	conf, err := cloudconfig.Parse(o.CloudConfig)
	if err != nil {
		return Policy{}, fmt.Errorf("cloud controller's configuration: %w", err)
	}
	if o.AssumedRole && (conf.RoleARN == "" || o.Role != preflight.Control) {
		return Policy{}, errors.New(
			"only a cloud controller with RoleARN in its configuration, on control machines, assumes a role",
		)
	}
	if o.RoleName == "" {
		o.RoleName = DefaultRoleName(o.Role)
		if o.AssumedRole {
			o.RoleName = conf.RoleName()
		}
	}
	if !roleNameForm.MatchString(o.RoleName) {
		return Policy{}, fmt.Errorf("role name %q is not 1 to 64 letters, digits or + = , . @ _ -", o.RoleName)
	}
	if o.VPC == "" {
		o.VPC = conf.ControllerVPC("")
	}
	if o.VPC != "" && !vpcForm.MatchString(o.VPC) {
		return Policy{}, fmt.Errorf("VPC %q is not an id such as vpc-0123456789abcdef0", o.VPC)
	}
	for _, key := range o.Keys {
		if !keyForm.MatchString(key) {
			return Policy{}, fmt.Errorf(
				"key %q is not the ARN of a KMS key, such as arn:aws:kms:us-east-1:123456789012:key/ID; IAM policies "+
					"do not accept aliases",
				key,
			)
		}
	}
	needs := policyNeeds{role: o.Role, routes: o.CloudRoutes, storage: o.Storage, keys: o.Keys, conf: *conf}
	policy := Policy{Version: policyVersion}
	index := map[string]int{}
	for _, p := range permissions {
		own, assumed := needs.includes(p)
		if o.AssumedRole && !assumed || !o.AssumedRole && !own || p.isPublicRegistry() && o.Partition != "aws" {
			continue
		}
		service, _, _ := strings.Cut(p.action, ":")
		statement := p.statement(service, o, conf)
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
		s.Action = slices.Compact(s.Action)
		seen[s.Sid]++
		if n := seen[s.Sid]; n > 1 { // ids must be unique in a document
			s.Sid = fmt.Sprintf("%s%d", s.Sid, n)
		}
	}
	return policy, nil
}

var (
	roleNameForm = regexp.MustCompile(`^[A-Za-z0-9+=,.@_-]{1,64}$`)
	vpcForm      = regexp.MustCompile(`^vpc-[0-9a-f]+$`)
	keyForm      = regexp.MustCompile(`^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$`)
)

// isPublicRegistry reports whether a row is for public.ecr.aws, which only the partition aws has.
func (p permission) isPublicRegistry() bool {
	return p.scope == publicRegistry || strings.HasPrefix(p.action, "ecr-public:")
}

// DefaultRoleName is the name of the IAM role of machines with a role, unless the operator chooses another.
func DefaultRoleName(role preflight.Role) string { return "kubernetes-" + string(role) }

const policyVersion = "2012-10-17"

var serviceNames = map[string]string{
	"ec2":                  "Ec2",
	"elasticloadbalancing": "LoadBalancers",
	"ecr":                  "Ecr",
	"ecr-public":           "EcrPublic",
	"iam":                  "Iam",
	"kms":                  "Kms",
	"sts":                  "Sts",
}

// createActions are the actions that tag new resources of a row.
func (p permission) createActions() []string {
	switch {
	case p.storage:
		return []string{"CreateVolume", "CreateSnapshot"}
	case strings.HasPrefix(p.action, "ec2:"):
		return []string{"CreateSecurityGroup"}
	}
	return []string{"CreateLoadBalancer", "CreateTargetGroup", "CreateListener"}
}

func (p permission) statement(service string, o PolicyOptions, conf *cloudconfig.Config) Statement {
	s := Statement{Effect: "Allow", Action: []string{p.action}, Resource: []string{"*"}}
	if len(p.resources) > 0 {
		s.Resource = nil
		for _, r := range p.resources {
			s.Resource = append(s.Resource, "arn:"+o.Partition+":"+r)
		}
	}
	name := serviceNames[service]
	equals := func(key string, values ...string) map[string]map[string][]string {
		return map[string]map[string][]string{"StringEquals": {key: values}}
	}
	tag := clustertags.Prefix + o.Cluster
	switch p.scope {
	case anything:
		s.Sid = name + "Read"
		if strings.HasPrefix(service, "ecr") {
			s.Sid = name + "Pull"
		}
	case creates:
		s.Sid = name + "CreateTagged"
		s.Condition = equals("aws:RequestTag/"+tag, "owned")
	case changes:
		s.Sid = name + "ChangeTagged"
		s.Condition = equals("aws:ResourceTag/"+tag, "owned", "shared")
	case changesOwn:
		s.Sid = name + "ChangeOwn"
		s.Condition = equals("aws:ResourceTag/"+tag, "owned")
	case tagsNew:
		s.Sid = name + "TagNew"
		s.Condition = equals("aws:RequestTag/"+tag, "owned")
		s.Condition["StringEquals"][service+":CreateAction"] = p.createActions()
	case serviceLinked:
		s.Sid = name + "ServiceLinkedRole"
		s.Condition = equals("iam:AWSServiceName", "elasticloadbalancing.amazonaws.com")
	case itself:
		s.Sid = name + "AskAboutItself"
		// The name of a role is unique in an account, whatever its path.
		s.Resource = []string{
			"arn:" + o.Partition + ":iam::*:role/" + o.RoleName, "arn:" + o.Partition + ":iam::*:role/*/" + o.RoleName,
		}
	case inVPC:
		s.Sid = name + "CreateInVpc"
		if o.VPC != "" {
			s.Resource = []string{"arn:" + o.Partition + ":ec2:*:*:vpc/" + o.VPC}
		}
	case writesRoutes:
		s.Sid = name + "WriteRoutes"
		if conf.RouteTableID != "" {
			s.Resource = []string{"arn:" + o.Partition + ":ec2:*:*:route-table/" + conf.RouteTableID}
			break
		}
		s.Condition = equals("aws:ResourceTag/"+tag, "owned", "shared")
	case sourceDestOff:
		s.Sid = name + "SourceDestCheckOff"
		s.Condition = map[string]map[string][]string{
			"Null": {"aws:ResourceTag/" + tag: {"false"}}, // the tag with any value makes an instance the cluster's
			// EC2 uses the attribute's name and value as the request spells them, so both are compared without case.
			"StringEqualsIgnoreCase": {"ec2:Attribute/SourceDestCheck": {"false"}},
		}
	case onNodes:
		s.Sid = name + "AttachToNodes"
		s.Condition = map[string]map[string][]string{"Null": {"aws:ResourceTag/" + tag: {"false"}}}
	case usesKeys:
		s.Sid = name + "UseForVolumes"
		s.Resource = o.Keys
		s.Condition = map[string]map[string][]string{"StringLike": {"kms:ViaService": {"ec2.*.amazonaws.com*"}}}
		if p.action == "kms:CreateGrant" {
			s.Sid = name + "GrantForVolumes"
			s.Condition["Bool"] = map[string][]string{"kms:GrantIsForAWSResource": {"true"}}
		}
	case publicRegistry:
		s.Sid = name + "PublicRegistry"
		s.Condition = equals("sts:AWSServiceName", "ecr-public.amazonaws.com")
	case otherRole:
		s.Sid = name + "AssumeCloudControllersRole"
		s.Resource = []string{conf.RoleARN}
	}
	return s
}
