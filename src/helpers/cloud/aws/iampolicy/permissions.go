package iampolicy

import (
	"cmp"
	"slices"
	"strings"

	"kubernetes-release/preflight"
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
	control(
		anything, nil, "The cloud controller finds the subnets of load balancers with it.", "ec2:DescribeSubnets",
	)
	control(
		anything, nil, "The cloud controller finds the security group that it opens for load balancers with it.",
		"ec2:DescribeSecurityGroups",
	)
	row(
		Permission{
			roles: workerMachines,
			Why: "The checks read a worker's subnet and security groups with it, if ec2:DescribeTags is denied or " +
				"the rules of the groups matter.",
			Rare: true,
		},
		"ec2:DescribeSubnets", "ec2:DescribeSecurityGroups",
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
	row(
		Permission{
			roles: controlMachines,
			Why: "AWS requires it of whoever creates load balancers with security groups, fixed addresses or targets " +
				"in a VPC, in some accounts only.",
			Rare: true,
		},
		"ec2:DescribeAddresses", "ec2:DescribeVpcs", "ec2:GetSecurityGroupsForVpc",
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
	row(
		Permission{ // the AWS Load Balancer Controller cannot do without it
			roles: controlMachines,
			Why:   "The errand cloud-preflight finds load balancers with it that have been left behind.",
			Rare:  true,
		},
		balance+"DescribeTags",
	)
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
	table = append(table, podRolePermissions()...)

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
		table[i].Rare = table[i].Rare || slices.Contains(RarelyUsed, table[i].Action) ||
			strings.HasPrefix(service, "ecr")
	}
	return table
}

// RarelyUsed are the actions that only some clusters call: copies of claims, topology labels of some instance types,
// the first load balancer of an account, the proxy protocol, pools of IPAM. Where tags cannot be described, resources
// are. The policy of a bucket may allow PublishAction, of which IAM is not asked; pre-start of job pod-roles fails
// without it. Without ProviderAction it is unknown whether there is a provider, and nothing else.
var RarelyUsed = []string{
	"ec2:CopyVolumes", "ec2:DescribeInstanceTopology", "ec2:DescribeAccountAttributes",
	"ec2:DescribeInternetGateways", "ec2:DescribeIpamPools", "ec2:DescribeTags",
	"iam:CreateServiceLinkedRole", "sts:GetServiceBearerToken", SimulateAction, FindRoleAction,
	PublishAction, ProviderAction,
	"elasticloadbalancing:DescribeLoadBalancerPolicies", "elasticloadbalancing:CreateLoadBalancerPolicy",
	"elasticloadbalancing:ModifyIpPools",
	"elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
	"elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
}

// Why explains what a machine with this role requires an action for.
func Why(action string, role preflight.Role) string {
	first, _, _ := strings.Cut(action, " or ")
	return cmp.Or(PermissionFor(first, role).Why, "The cloud controller requires it.")
}

// Actions returns the actions that a machine with this role requires, sorted and without duplicates, optionally with
// those of cloud routes.
func Actions(role preflight.Role, cloudRoutes bool) []string {
	return Needs{Role: role, Routes: cloudRoutes}.Actions()
}

// Rare reports whether few machines with this role use an action, so that a check only warns when it is missing.
func Rare(action string, role preflight.Role) bool { return PermissionFor(action, role).Rare }

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

// PermissionFor returns the first row of the table for an action and a role, and an empty one if there is none.
func PermissionFor(action string, role preflight.Role) Permission {
	for _, p := range Permissions {
		if p.Action == action && slices.Contains(p.roles, role) {
			return p
		}
	}
	return Permission{}
}
