package iampolicy

import (
	"fmt"
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
	// changesDrivers changes volumes and snapshots with the tag of the EBS CSI driver beside the cluster's. BOSH gives
	// attached volumes the tags of their instance, and its own disks the cluster's.
	changesDrivers
	// DeletesRetagged deletes those of them for which BOSH has changed the value of the cluster's tag to shared.
	DeletesRetagged
	// tagsDrivers changes tags of the same volumes, except those that policies and the driver tell volumes by
	// (aws:TagKeys).
	tagsDrivers
	// changesByHand changes volumes and snapshots to which an operator has given the cluster's tag, and BOSH none.
	changesByHand
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
	// AsksLimits is the question of the EBS CSI driver how many IOPS a volume can have, which creates none
	// (aws:RequestTag and ec2:VolumeIops).
	AsksLimits
	// onNodes are instances with the cluster's tag, whatever its value.
	onNodes
	// UsesKeys are the customer managed keys of volumes; only EC2 may use them (kms:ViaService).
	UsesKeys
	// encryptsSecrets are the keys that encrypt the cluster's Secrets in etcd, for this cluster only
	// (kms:EncryptionContext).
	encryptsSecrets
	// Publishes the two documents of the issuer of service account tokens.
	Publishes
	// providers are the OpenID Connect providers of the account, of which none is changed.
	providers
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
	Rare      bool             // most machines work without it
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
	// Published are the objects that job pod-roles writes: BUCKET/NAME.
	Published []string
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

// Row is the row of an action that applies and is selected; of several, one without which most machines do not work.
func (n Needs) Row(action string, selected func(Permission) bool) Permission {
	var row Permission
	for _, p := range Permissions {
		if p.Action == action && n.eitherNeeds(p) && selected(p) && (row.Action == "" || row.Rare && !p.Rare) {
			row = p
		}
	}
	return row
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
	workerMachines  = []preflight.Role{preflight.Worker}
)

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

// Asked reports whether IAM is asked about a row. A call tests the question for limits, and what is allowed for volumes
// of the driver says more than what is allowed for others. Answers are by action, of which tags of new resources have
// CreateTags, so that DeleteTags stands for both where tags change.
func (p Permission) Asked() bool {
	return p.Action != SimulateAction && p.Scope != AsksLimits && p.Scope != changesByHand &&
		!(p.Scope == tagsDrivers && p.Action == createTags)
}

// QuestionKey is the same for rows that IAM is asked about in one question.
func (p Permission) QuestionKey() string {
	switch {
	case p.Creates(): // and tags
		return fmt.Sprint(p.Resources)
	case p.Scope == tagsDrivers:
		p.Scope = changesDrivers
	}
	return fmt.Sprint(p.Scope, p.Resources, p.Storage)
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
	return p.Storage && (p.Action == "ec2:CreateVolume" && p.Scope == changesDrivers || p.Action == createTags)
}

// InWords describes the permission's condition.
func (p Permission) InWords(tagKey string) string {
	switch p.Scope {
	case creates, TagsNew:
		return ", for new resources with the tag " + tagKey
	case changes:
		return ", on resources with the tag " + tagKey
	case changesDrivers, tagsDrivers:
		return ", on volumes and snapshots with the tags " + tagKey + " and " + DriverTag
	}
	return ""
}

// IsLoadBalancing selects the rows of the load balancer APIs.
func IsLoadBalancing(p Permission) bool { return strings.HasPrefix(p.Action, "elasticloadbalancing:") }

// callsFor are the kinds of resources of actions that are asked about together with actions for others.
var callsFor = map[string][]string{
	"elasticloadbalancing:CreateLoadBalancer":          {"loadbalancer"},
	"elasticloadbalancing:CreateTargetGroup":           {"targetgroup"},
	"elasticloadbalancing:AddListenerCertificates":     {"listener"},
	"elasticloadbalancing:CreateRule":                  {"listener"},
	"elasticloadbalancing:ModifyIpPools":               {"loadbalancer"},
	"elasticloadbalancing:ModifyListenerAttributes":    {"listener"},
	"elasticloadbalancing:RemoveListenerCertificates":  {"listener"},
	"elasticloadbalancing:SetIpAddressType":            {"loadbalancer"},
	"elasticloadbalancing:SetSubnets":                  {"loadbalancer"},
	"elasticloadbalancing:DeleteListener":              {"listener"},
	"elasticloadbalancing:ModifyListener":              {"listener"},
	"elasticloadbalancing:DeleteTargetGroup":           {"targetgroup"},
	"elasticloadbalancing:DeregisterTargets":           {"targetgroup"},
	"elasticloadbalancing:ModifyTargetGroup":           {"targetgroup"},
	"elasticloadbalancing:ModifyTargetGroupAttributes": {"targetgroup"},
	"elasticloadbalancing:RegisterTargets":             {"targetgroup"},
	"ec2:DeleteSnapshot":                               {"snapshot"},
	"ec2:DeleteVolume":                                 {"volume"},
}

// concerns reports whether an action is called for a resource of this kind. A result without a resource is for all.
func concerns(action, resource string) bool {
	kinds := callsFor[action]
	return len(kinds) == 0 || resource == "*" || slices.Contains(kinds, kindOf(resource))
}
