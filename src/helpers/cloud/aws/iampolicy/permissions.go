package iampolicy

import (
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/cloudconfig"
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
	// TagsNew tags resources while they are created, and no others (CreateAction).
	TagsNew
	// serviceLinked creates the service-linked role of the load balancer service, once per account.
	serviceLinked
	// Itself is the role's own ARN.
	Itself
	// inVPC is the VPC that a resource is created in, which has no cluster's tag.
	inVPC
	// WritesRoutes is the configured route table, or the ones with the cluster's tag.
	WritesRoutes
	// sourceDestOff turns the source/destination check of the cluster's instances off, and changes no other attribute
	// (ec2:Attribute).
	sourceDestOff
	// publicRegistry gets tokens for Amazon ECR Public, and for no other service (sts:AWSServiceName).
	publicRegistry
	// OtherRole is the role that the cloud controller is configured to assume.
	OtherRole
	// onNodes are instances with the cluster's tag, whatever its value.
	onNodes
	// UsesKeys are the customer managed keys of volumes; only EC2 may use them (kms:ViaService).
	UsesKeys
	// encryptsSecrets are the keys that encrypt the cluster's Secrets in etcd, for this cluster only
	// (kms:EncryptionContext).
	encryptsSecrets
)

// Permission is one row of the table that policies and checks are derived from.
type Permission struct {
	Action    string
	roles     []preflight.Role
	Scope     scope
	Resources []string // ARNs after "arn:PARTITION:"; empty: *
	Why       string
	holder    holder
	when      func(Needs) bool // nil: always
	Storage   bool             // of the EBS CSI driver
	Rare      bool             // most clusters work without it
}

// holder is the role of a control VM that needs a permission if the cloud controller assumes another role.
type holder int

const (
	controllers holder = iota // the one that the cloud controller assumes
	machines                  // the one of the instance profile, which kubelet uses
	eachRole
)

// Needs is what the permissions of machines depend on.
type Needs struct {
	Role    preflight.Role
	Routes  bool
	Storage bool
	Keys    []string // ARNs
	Secrets []string // ARNs of the keys that encrypt Secrets in etcd
	Conf    cloudconfig.Config
	// LoadBalancerController: the AWS Load Balancer Controller runs beside the cloud controller.
	LoadBalancerController bool
}

// Includes reports whether a row applies, and to the role of the instance profile or to the one that the cloud
// controller assumes.
func (n Needs) Includes(p Permission) (own, assumed bool) {
	if !slices.Contains(p.roles, n.Role) || p.Storage && !n.Storage || p.when != nil && !p.when(n) {
		return false, false
	}
	if n.Role != preflight.Control || n.Conf.RoleARN == "" {
		return p.Scope != OtherRole, false
	}
	// The AWS Load Balancer Controller assumes no role, and makes the cloud controller's calls too.
	return p.holder != controllers || n.LoadBalancerController, p.holder != machines
}

// eitherNeeds reports whether a row applies to either role.
func (n Needs) eitherNeeds(p Permission) bool {
	own, assumed := n.Includes(p)
	return own || assumed
}

// Conditions of rows.
func withRoutes(n Needs) bool { return n.Routes }

func withKeys(n Needs) bool { return len(n.Keys) > 0 }

// The AWS Load Balancer Controller does not read the cloud controller's configuration.
//
// createsGroups: with ElbSecurityGroup the cloud controller neither creates nor deletes a group
// (buildELBSecurityGroupList and buildSecurityGroupsToDelete in cloud-provider-aws), and does not change that group's
// rules (addSecurityGroupIngress).
func createsGroups(n Needs) bool { return n.Conf.ElbSecurityGroup == "" || n.LoadBalancerController }

// opensNodes: with DisableSecurityGroupIngress the groups of nodes keep their rules
// (updateInstanceSecurityGroupsForLoadBalancer and updateInstanceSecurityGroupsForNLB).
func opensNodes(n Needs) bool { return !n.Conf.NoIngressManagement || n.LoadBalancerController }

// The machines that rows are for.
var (
	allMachines     = []preflight.Role{preflight.Control, preflight.Worker}
	controlMachines = []preflight.Role{preflight.Control}
)

// Permissions is the table of all calls of the cloud controller manager 1.37, kubelet's credential provider and these
// checks. evidence_test.go has, for each action, where it was seen or which source calls it.
var Permissions = buildPermissions()

func buildPermissions() []Permission {
	var table []Permission
	row := func(p Permission, actions ...string) {
		for _, p.Action = range actions {
			table = append(table, p)
		}
	}
	control := func(s scope, resources []string, why string, actions ...string) {
		row(Permission{roles: controlMachines, Scope: s, Resources: resources, Why: why}, actions...)
	}
	group := []string{"ec2:*:*:security-group/*"}
	loadBalancer := []string{"elasticloadbalancing:*:*:loadbalancer/*"}
	target := []string{"elasticloadbalancing:*:*:targetgroup/*"}
	listener := []string{"elasticloadbalancing:*:*:loadbalancer/*", "elasticloadbalancing:*:*:listener/*"}

	row(
		Permission{
			roles:  allMachines,
			holder: eachRole,
			Why:    "The cloud controller does not start without it, and the checks read the cluster's tag with it.",
		},
		"ec2:DescribeInstances",
	)
	row(
		Permission{roles: allMachines, Why: "The cloud controller finds the subnets of load balancers with it."},
		"ec2:DescribeSubnets",
	)
	row(
		Permission{
			roles: allMachines,
			Why:   "The cloud controller finds the security group that it opens for load balancers with it.",
		},
		"ec2:DescribeSecurityGroups",
	)
	row(
		Permission{
			roles: allMachines, // the profile of control VMs may be that of workers too
			Why: "The checks read the tags of a worker's subnet and security groups with it in one call; without it " +
				"they make three.",
		},
		"ec2:DescribeTags",
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
	groups := func(s scope, resources []string, why string, when func(Needs) bool, actions ...string) {
		row(Permission{roles: controlMachines, Scope: s, Resources: resources, Why: why, when: when}, actions...)
	}
	groups(creates, group, createGroup, createsGroups, "ec2:CreateSecurityGroup")
	groups(inVPC, []string{"ec2:*:*:vpc/*"}, createGroup, createsGroups, "ec2:CreateSecurityGroup")
	groups(
		TagsNew, group, "The cloud controller tags the security groups of load balancers with it.", createsGroups,
		"ec2:CreateTags",
	)
	groups(
		changesOwn, group, "The cloud controller deletes the security groups of load balancers with it.", createsGroups,
		"ec2:DeleteSecurityGroup",
	)
	const openGroup = "The cloud controller allows traffic to nodes and load balancers, and revokes that, with it."
	groups(changes, group, openGroup, opensNodes, "ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress")
	groups(
		changesOwn, group, openGroup, func(n Needs) bool { return !opensNodes(n) && createsGroups(n) },
		"ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress",
	)

	groups(
		WritesRoutes, []string{"ec2:*:*:route-table/*"}, "The cloud controller writes pod routes with it.", withRoutes,
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
		TagsNew, append(slices.Clone(listener), target...), "The cloud controller tags load balancers with it.",
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
	table = append(table, encryptionPermissions()...)
	table = append(table, loadBalancerControllerPermissions()...)

	const pull = "kubelet pulls images from ECR with it."
	row(
		Permission{roles: allMachines, holder: machines, Why: pull}, "ecr:GetAuthorizationToken", "ecr:BatchGetImage",
		"ecr:GetDownloadUrlForLayer",
	)
	row(
		Permission{
			roles:  allMachines,
			holder: machines,
			Why:    "kubelet pulls images from public.ecr.aws with it, instead of anonymously.",
		},
		"ecr-public:GetAuthorizationToken",
	)
	row(
		Permission{
			roles:  allMachines,
			holder: machines,
			Scope:  publicRegistry,
			Why:    "kubelet pulls images from public.ecr.aws with it, instead of anonymously.",
		},
		"sts:GetServiceBearerToken",
	)

	row(
		Permission{
			roles:  controlMachines,
			holder: machines,
			Scope:  OtherRole,
			Why:    "The cloud controller makes all its calls as the role in RoleARN.",
		},
		AssumeAction,
	)
	row(
		Permission{
			roles: allMachines,
			Scope: Itself,
			Why: "The checks ask IAM with it about permissions that cannot be tested without using them, such as " +
				"creating a load balancer.",
		},
		SimulateAction,
	)
	row(
		Permission{
			roles: allMachines,
			Scope: Itself,
			Why:   "The checks find the path of the role's name with it, if it has one.",
		},
		FindRoleAction,
	)
	for i := range table {
		service, _, _ := strings.Cut(table[i].Action, ":")
		table[i].Rare = slices.Contains(RarelyUsed, table[i].Action) || strings.HasPrefix(service, "ecr")
	}
	return table
}

// RarelyUsed are the actions that only some clusters call: copies of claims, topology labels of some instance types,
// the first load balancer of an account, the proxy protocol. Where tags cannot be described, resources are.
var RarelyUsed = []string{
	"ec2:CopyVolumes", "ec2:DescribeInstanceTopology", "ec2:DescribeAccountAttributes",
	"ec2:DescribeInternetGateways", "ec2:DescribeTags",
	"iam:CreateServiceLinkedRole", "sts:GetServiceBearerToken", SimulateAction, FindRoleAction,
	"elasticloadbalancing:DescribeLoadBalancerPolicies", "elasticloadbalancing:CreateLoadBalancerPolicy",
	"elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
	"elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
}

// Why explains what an action is required for.
func Why(action string) string {
	first, _, _ := strings.Cut(action, " or ")
	for _, p := range Permissions {
		if p.Action == first {
			return p.Why
		}
	}
	return "The cloud controller requires it."
}

// Actions returns the actions that a machine with this role requires, sorted and without duplicates, optionally with
// those of cloud routes.
func Actions(role preflight.Role, cloudRoutes bool) []string {
	return Needs{Role: role, Routes: cloudRoutes}.Actions()
}

// Rare reports whether few clusters use an action, so that a check only warns when it is missing.
func Rare(action string) bool {
	return slices.ContainsFunc(Permissions, func(p Permission) bool { return p.Action == action && p.Rare })
}

// Actions are the actions that either role requires, sorted and without duplicates.
func (n Needs) Actions() []string {
	var actions []string
	for _, p := range Permissions {
		if n.eitherNeeds(p) {
			actions = append(actions, p.Action)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// IsPublicRegistry reports whether a row is for public.ecr.aws, which only the partition aws has.
func (p Permission) IsPublicRegistry() bool {
	return p.Scope == publicRegistry || strings.HasPrefix(p.Action, "ecr-public:")
}

// creators are the actions that create and tag resources, by the kind of resource. IAM is asked about the first.
var creators = map[string][]string{
	"security-group": {"CreateSecurityGroup"},
	"volume":         {"CreateVolume", "CopyVolumes"},
	"snapshot":       {"CreateSnapshot"},
	"loadbalancer":   {"CreateLoadBalancer"},
	"targetgroup":    {"CreateTargetGroup"},
	"listener":       {"CreateListener"},
	"listener-rule":  {"CreateRule"},
}

// createActions are the actions that tag new resources of a row.
func (p Permission) createActions() []string {
	var actions []string
	for _, r := range p.Resources {
		for _, action := range creators[kindOf(r)] {
			if !slices.Contains(actions, action) {
				actions = append(actions, action)
			}
		}
	}
	return actions
}

// kindOf is the kind of resource that an ARN, or its end, is of: what precedes the first slash of the resource.
func kindOf(arn string) string {
	kind, _, _ := strings.Cut(arn[strings.LastIndex(arn, ":")+1:], "/")
	return kind
}

// PerKind returns a row of new resources once for each kind that its action creates or tags, because a policy can allow
// that for some of them only. Rows of other scopes are for all of their resources together.
func (p Permission) PerKind() []Permission {
	if p.Scope != creates && p.Scope != TagsNew {
		return []Permission{p}
	}
	byKind := map[string][]string{}
	var kinds []string
	for _, r := range p.Resources {
		kind := kindOf(r)
		if !concerns(p.Action, r) {
			continue
		}
		if byKind[kind] == nil {
			kinds = append(kinds, kind)
		}
		byKind[kind] = append(byKind[kind], r)
	}
	rows := make([]Permission, len(kinds))
	for i, kind := range kinds {
		rows[i] = p
		rows[i].Resources = byKind[kind]
	}
	return rows
}

// Creates reports whether a row is about new resources. Questions about those of one kind have the same context.
func (p Permission) Creates() bool { return p.Scope == creates || p.Scope == TagsNew }

// The load balancer APIs do not support DryRun, and testing every permission would take too many calls for a
// deployment. But IAM can be asked what a role's policies allow (SimulatePrincipalPolicy), which changes nothing. The
// questions are derived from the table of permissions: each row's actions, on a resource of the row's kind, with the
// tags that the row is restricted to.

// SimulateAction is the permission to ask IAM. findRoleAction is the one to find the ARN of the role, because instance
// metadata returns the role's name without its path.
const (
	SimulateAction = "iam:SimulatePrincipalPolicy"
	FindRoleAction = "iam:GetRole"
	AssumeAction   = "sts:AssumeRole"
)

// OnlyInPart reports whether calls test an action of a row for another kind of resource than the row's: no call
// restores a volume from a snapshot, and tags are tested on security groups.
func (p Permission) OnlyInPart() bool {
	return p.Storage && (p.Action == "ec2:CreateVolume" && p.Scope == changes || p.Action == "ec2:CreateTags")
}

// PermissionFor returns the first row of the table for an action and a role.
func PermissionFor(action string, role preflight.Role) Permission {
	at := slices.IndexFunc(
		Permissions, func(p Permission) bool { return p.Action == action && slices.Contains(p.roles, role) },
	)
	return Permissions[at]
}

// InWords describes the permission's condition.
func (p Permission) InWords(tagKey string) string {
	switch p.Scope {
	case creates, TagsNew:
		return ", for new resources with the tag " + tagKey
	case changes:
		return ", on resources with the tag " + tagKey
	}
	return ""
}

// IsLoadBalancing selects the rows of the load balancer APIs.
func IsLoadBalancing(p Permission) bool { return strings.HasPrefix(p.Action, "elasticloadbalancing:") }
