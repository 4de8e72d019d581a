package aws

import (
	"fmt"
	"slices"

	"kubernetes-release/preflight"
)

// check is one check of this provider. Its entry in checks is the only place where it is registered: the
// documentation's table, the ids that the job cloud-provider accepts, and the tests are derived from it.
type check struct {
	id       string
	title    string
	roles    []preflight.Role
	severity preflight.Severity
	warnsIf  string // in which cases a finding of a check that fails only warns, in words
	// the same as code, if it does not depend on the finding; findings then need not be Advisory
	advisory func(*facts) bool
	needs    source // what the check is based on
	run      func(*facts) preflight.Outcome
	fix      string // how to resolve findings, in a sentence; findings contain the command with the ids in it
	section  string // of docs/aws.md that explains the background, as a URL fragment
}

var (
	both        = []preflight.Role{preflight.Control, preflight.Worker}
	controlOnly = []preflight.Role{preflight.Control}
)

// load balancers' subnets are chosen by all of these.
const fromVPC = fromSubnets | fromRouteTables | fromZones

// Sections of docs/aws.md.
const (
	sectionPolicies    = "instance-profiles-and-policies"
	sectionCloudConfig = "cloud-config"
	sectionTags        = "tags"
	sectionSubnets     = "subnets"
	sectionSharing     = "several-clusters-in-one-vpc"
	sectionPrivate     = "private-clusters"
	sectionRenaming    = "renaming-a-cluster"
	sectionOverview    = "overview"
	sectionConfig      = "cloud-controller-configuration"
	sectionStorage     = "storage"
)

// checks are all checks, the most important first: a check whose failure makes others impossible comes before them.
var checks = []check{
	{
		id:       "cluster-name",
		title:    "the cluster's name fits into a tag",
		severity: preflight.Fail,
		roles:    both,
		run:      checkClusterName,
		section:  sectionTags,
		fix:      "Choose a `cluster_name` of at most 105 characters that AWS allows in tags.",
	},
	{
		id:       "cloud-config",
		title:    "the cloud controller supports its configuration file",
		severity: preflight.Fail,
		roles:    both,
		run:      checkCloudConfig,
		section:  sectionTags,
		fix:      "Correct the property `config` of the job cloud-provider; leave `KubernetesClusterID` out of it.",
	},
	{
		id:       "metadata-service",
		title:    "instance metadata answers",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionCloudConfig,
		warnsIf:  "half of the answers take longer than 0.5 s",
		needs:    fromMetadata | fromProfile | fromCredentials | fromEC2,
		run:      checkMetadata,
		fix: "`aws ec2 modify-instance-metadata-options --http-endpoint enabled --http-tokens required`, and " +
			"`metadata_options` in the VM extension; otherwise check the firewall rules for 169.254.169.254.",
	},
	{
		id:       "instance-profile",
		title:    "the instance has an instance profile",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionPolicies,
		needs:    fromProfile | fromCredentials,
		run:      checkProfile,
		fix: "`iam_instance_profile` in the VM extension; for the running VM `aws ec2 " +
			"associate-iam-instance-profile`.",
	},
	{
		id:       "role-credentials",
		title:    "AWS accepts the credentials of the instance's role",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionPolicies,
		needs:    fromCredentials | fromEC2,
		run:      checkCredentials,
		fix: "Add a role that trusts EC2 to the instance profile (`aws iam add-role-to-instance-profile`, `aws " +
			"iam update-assume-role-policy`).",
	},
	{
		id:       "clock",
		title:    "the clock agrees with AWS",
		severity: preflight.Fail,
		warnsIf:  "up to 4.5 minutes of difference",
		roles:    both,
		section:  sectionOverview,
		needs:    fromEC2,
		run:      checkClock,
		fix:      "Correct the VM's time source (`chronyc tracking`; on AWS 169.254.169.123 is always available).",
	},
	{
		id:       "ec2-endpoint",
		title:    "the EC2 API answers",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionPrivate,
		needs:    fromEC2,
		run:      checkEC2Endpoint,
		fix: "Give the subnet a route to the internet or a VPC endpoint for ec2; throttling and outages of AWS " +
			"are temporary.",
	},
	{
		id:       "ec2-read-permissions",
		title:    "the role has the permissions that the checks use",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionPolicies,
		needs:    fromCredentials | fromEC2,
		run:      checkReadPermissions,
		fix:      "Attach the generated policy (`cloud-preflight iam-policy`).",
	},
	{
		id:       "assumed-role",
		title:    "the cloud controller can assume the configured role",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionConfig,
		needs:    fromCredentials | fromEC2,
		run:      checkAssumedRole,
		fix: "For `RoleARN` in the property `config`: attach both generated policies, and let the role trust " +
			"the one of the instance profile.",
	},
	{
		id:       "cloud-config-scope",
		title:    "the configuration names this instance's region and VPC",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionConfig,
		warnsIf:  "the cloud controller ignores a key",
		needs:    fromMetadata | fromInstance | fromSubnets,
		run:      checkConfigScope,
		fix: "Remove `Zone`, `Region`, `VPC` and `SubnetID` from the property `config`: the cloud controller " +
			"takes them from its instance.",
	},
	{
		id:       "instance-role",
		title:    "the instance has the configured instance profile",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionCloudConfig,
		needs:    fromProfile,
		run:      checkInstanceRole,
		fix:      "Make the VM extension's `iam_instance_profile` and `preflight.instance_profile` equal.",
	},
	{
		id:       "node-join-role",
		title:    "control VMs accept the instance's role as that of a node",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionPolicies,
		needs:    fromProfile | fromCredentials,
		run:      checkJoinRole,
		fix: "Name the role in `join.roles` of the job kubelet-csr-approver, or give it the name of its " +
			"instance profile.",
	},
	{
		id:       "instance-known",
		title:    "EC2 describes the instance",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionPrivate,
		needs:    fromInstance,
		run:      checkInstanceKnown,
		fix: "Wait, because EC2 shows new instances late; otherwise the endpoint belongs to another account or " +
			"region.",
	},
	{
		id:       "instance-cluster-tag",
		title:    "the instance has the cluster's tag",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionTags,
		needs:    fromInstance,
		run:      checkInstanceTag,
		fix:      "`aws ec2 create-tags --resources INSTANCE`, and `tags:` in the manifest (ops-files/aws.yml).",
	},
	{
		id:       "instance-cluster-ids",
		title:    "the instance is tagged for one cluster only",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionRenaming,
		warnsIf:  onlyControllerStops,
		advisory: (*facts).controllerReadsNoTags,
		needs:    fromInstance,
		run:      checkClusterIDs,
		fix:      "`aws ec2 delete-tags` for the other cluster's tag, or `bosh recreate`.",
	},
	{
		id:       "instance-legacy-tag",
		title:    "old and new cluster tag agree",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionRenaming,
		warnsIf:  onlyControllerStops,
		advisory: (*facts).controllerReadsNoTags,
		needs:    fromInstance,
		run:      checkLegacyTag,
		fix:      "`aws ec2 delete-tags --tags Key=KubernetesCluster`.",
	},
	{
		id:       "node-subnet-cluster-tag",
		title:    "the node's subnet has the cluster's tag",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionTags,
		needs:    fromSubnets,
		run:      checkNodeSubnet,
		fix:      "`aws ec2 create-tags --resources SUBNET`.",
	},
	{
		id:       "public-subnet-cluster-tag",
		title:    "public subnets have the cluster's tag",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionTags,
		needs:    fromVPC,
		run:      onChoice(false, checkPublicSubnetTags),
		fix:      "`aws ec2 create-tags --resources SUBNET …`.",
	},
	{
		id:       "public-subnet-route",
		title:    "there is a subnet for internet-facing load balancers",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionSubnets,
		warnsIf:  "there is one, but another subnet with `kubernetes.io/role/elb` has no public route",
		needs:    fromVPC,
		run:      onChoice(false, checkPublicRoute),
		fix: "Route the public subnets to an internet gateway, in a route table that no private subnet uses; " +
			"for a cluster without internet-facing load balancers turn the check off.",
	},
	{
		id:       "internal-subnets",
		title:    "there is a subnet for internal load balancers",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionSubnets,
		needs:    fromVPC,
		run:      onChoice(true, checkInternalSubnets),
		fix:      "Tag a subnet in a regular zone for the cluster.",
	},
	{
		id:       "tagged-security-groups",
		title:    "at most one of the instance's security groups is tagged",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionTags,
		warnsIf:  "there is only one, and it is tagged for another cluster too",
		needs:    fromInstance | fromGroups,
		run:      checkTaggedGroups,
		fix:      "Keep the tag on only one of the instance's security groups (`aws ec2 delete-tags`).",
	},
	{
		id:       "untagged-security-groups",
		title:    "one of several security groups is tagged",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionTags,
		needs:    fromInstance | fromGroups,
		run:      checkUntaggedGroups,
		fix: "Tag one of the instance's security groups; if all are other clusters', give it one of this " +
			"cluster in addition.",
	},
	{
		id:       "load-balancer-security-group",
		title:    "the configured security group of load balancers exists",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionConfig,
		needs:    fromGroups,
		run:      checkBalancersGroup,
		fix:      "Correct `ElbSecurityGroup` in the property `config`.",
	},
	{
		id:       "node-ports",
		title:    "load balancers can connect to the node",
		severity: preflight.Warn,
		roles:    both,
		section:  sectionConfig,
		needs:    fromGroups,
		run:      checkNodePorts,
		fix: "With `DisableSecurityGroupIngress` in the property `config`: open the nodes' security group to " +
			"load balancers.",
	},
	{
		id:       "security-group-permissions",
		title:    "the role can manage security groups",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionPolicies,
		needs:    fromProbes | fromGroups,
		run:      checkGroupPermissions,
		fix: "Attach the generated policy, and tag the nodes' security group, because the policy is restricted " +
			"to tagged ones.",
	},
	{
		id:       "load-balancer-permissions",
		title:    "the role can describe load balancers",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionPolicies,
		needs:    fromProbes,
		run:      checkLoadBalancerPermissions,
		fix:      "Attach the generated policy.",
	},
	{
		id:       "load-balancer-write-permissions",
		title:    "the role can create and manage load balancers",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionPolicies,
		warnsIf:  rarelyUsedOnly,
		needs:    fromPolicies,
		run:      checkLoadBalancerWrites,
		fix:      "Attach the generated policy.",
	},
	{
		id:       "other-permissions",
		title:    "the role has all other permissions",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionPolicies,
		warnsIf:  rarelyUsedOnly,
		needs:    fromPolicies | fromProbes,
		run:      checkOtherPermissions,
		fix:      "Attach the generated policy.",
	},
	{
		id:       "storage-permissions",
		title:    "the role can create, attach and remove volumes",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionPolicies,
		warnsIf:  "IAM does not answer whether it can",
		needs:    fromPolicies | fromProbes,
		run:      onStorage(checkStoragePermissions),
		fix:      "Attach the generated policy, without `--no-storage`.",
	},
	{
		id:       "storage-keys",
		title:    "the role can use the keys that volumes are encrypted with",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionStorage,
		warnsIf:  "a key is named by an alias, or IAM does not answer whether it can",
		needs:    fromStorage | fromPolicies,
		run:      onStorage(checkStorageKeys),
		fix:      "Attach the generated policy, with `--key ARN`; or `aws ec2 reset-ebs-default-kms-key-id`.",
	},
	{
		id:       "storage-zones",
		title:    "volumes can be created in the zones of StorageClasses, and attached there",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionStorage,
		warnsIf:  "no subnet in the zone has the cluster's tag",
		needs:    fromZones | fromSubnets,
		run:      onStorage(checkStorageZones),
		fix:      "Correct the zones of the StorageClass, or tag the subnets of the nodes there.",
	},
	{
		id:       "storage-attachments",
		title:    "every instance of the cluster can attach another volume",
		severity: preflight.Warn,
		roles:    controlOnly,
		section:  sectionStorage,
		needs:    fromStorage | fromCluster,
		run:      onStorage(checkStorageAttachments),
		fix: "`aws ec2 detach-volume` for volumes that are not the cluster's, or an `instance_type` with more " +
			"attachments.",
	},
	{
		id:       "load-balancer-endpoint",
		title:    "the load balancer APIs answer",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionPrivate,
		needs:    fromProbes,
		run:      checkLoadBalancerEndpoint,
		fix:      "A route to the internet, or a VPC endpoint for elasticloadbalancing.",
	},
	{
		id:       "sts-endpoint",
		title:    "STS is reachable",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionPrivate,
		needs:    fromTokenService | fromCredentials,
		run:      checkTokenService,
		fix:      "A route to the internet, or a VPC endpoint for sts.",
	},
	{
		id:       "node-name",
		title:    "node name and private DNS name agree",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionOverview,
		needs:    fromMetadata | fromInstance,
		run:      checkNodeName,
		fix:      "Enable DNS host names in the VPC; use one domain name in its DHCP options.",
	},
	{
		id:       "node-address",
		title:    "the node's address belongs to the instance",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionOverview,
		needs:    fromMetadata | fromInstance,
		run:      checkNodeAddress,
		fix:      "`bosh recreate`: the VM's network settings do not match the instance.",
	},
	{
		id:       "node-ip-families",
		title:    "the instance has addresses of the configured families",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionConfig,
		needs:    fromMetadata | fromInstance,
		run:      checkIPFamilies,
		fix:      "Correct `NodeIPFamilies` in the property `config`.",
	},
	{
		id:       "source-dest-check",
		title:    "the source/destination check allows the pod network's packets",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionCloudConfig,
		warnsIf:  "`configure_cloud_routes` is set: the cloud controller turns it off itself",
		advisory: func(f *facts) bool { return f.request.ConfigureCloudRoutes },
		needs:    fromInstance,
		run:      checkSourceDest,
		fix: "`source_dest_check: false` in the VM extension; for the running VM `aws ec2 " +
			"modify-network-interface-attribute --no-source-dest-check`.",
	},
	{
		id:       "pod-network-ingress",
		title:    "a security group of the instance admits the pod network",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionSubnets,
		warnsIf:  "`configure_cloud_routes` is not set: a CNI of your own may use other addresses",
		advisory: func(f *facts) bool { return !f.request.ConfigureCloudRoutes },
		needs:    fromGroups,
		run:      checkPodIngress,
		fix:      "`aws ec2 authorize-security-group-ingress --protocol all --cidr POD_NETWORK`.",
	},
	{
		id:       "cloud-routes-table",
		title:    "exactly one route table is the cluster's, for pod routes",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionSubnets,
		warnsIf:  "the table is tagged for another cluster too",
		needs:    fromRouteTables,
		run:      checkRouteTable,
		fix:      "Tag exactly one route table, or set `RouteTableID` in the property `config`.",
	},
	{
		id:       "stale-node",
		title:    "the Node object does not belong to a previous VM",
		severity: preflight.Fail,
		roles:    both,
		section:  sectionOverview,
		needs:    fromNode,
		run:      checkStaleNode,
		fix:      "`kubectl delete node NAME`, then `monit restart kubelet` on the VM.",
	},
	{
		id:       "instance-tag-limit",
		title:    "the instance has fewer tags than AWS allows",
		severity: preflight.Warn,
		roles:    both,
		section:  sectionTags,
		needs:    fromInstance,
		run:      checkTagLimit,
		fix:      "Use fewer than 50 tags in the manifest and the runtime config.",
	},
	{
		id:       "other-deployment",
		title:    "no other deployment has a cluster of that name in the VPC",
		severity: preflight.Fail,
		roles:    controlOnly,
		section:  sectionSharing,
		needs:    fromInstance | fromCluster,
		run:      checkOtherDeployment,
		fix:      "Choose another `cluster_name` for the new deployment, or delete the other one first.",
	},
	{
		id:       "cluster-tag-value",
		title:    "cluster tags have the value owned or shared",
		severity: preflight.Warn,
		roles:    both,
		section:  sectionTags,
		needs:    fromInstance | fromSubnets,
		run:      checkTagValues,
		fix:      "Set the tag's value to `shared`.",
	},
	{
		id:       "foreign-public-subnets",
		title:    "no zone has only public subnets of other clusters",
		severity: preflight.Warn,
		roles:    controlOnly,
		section:  sectionSharing,
		needs:    fromVPC,
		run:      onChoice(false, checkForeignSubnets),
		fix:      "Tag a public subnet in the zone for this cluster as well.",
	},
	{
		id:       "node-zone-public-subnet",
		title:    "every zone with the cluster's subnets has a public one",
		severity: preflight.Warn,
		roles:    controlOnly,
		section:  sectionSubnets,
		needs:    fromVPC,
		run:      onChoice(false, checkNodeZones),
		fix: "Create a public subnet in the zone and tag it; for a cluster without internet-facing load " +
			"balancers turn the check off.",
	},
	{
		id:       "public-subnet-choice",
		title:    "the choice of public subnets does not depend on ids",
		severity: preflight.Warn,
		roles:    controlOnly,
		section:  sectionSubnets,
		needs:    fromVPC,
		run:      onChoice(false, checkSubnetChoice),
		fix:      "Tag one public subnet in each zone with `kubernetes.io/role/elb`.",
	},
	{
		id:       "internal-subnet-choice",
		title:    "the choice of internal subnets does not depend on ids",
		severity: preflight.Warn,
		roles:    controlOnly,
		section:  sectionSubnets,
		needs:    fromVPC,
		run:      onChoice(true, checkSubnetChoice),
		fix:      "Tag one subnet in each zone with `kubernetes.io/role/internal-elb`.",
	},
	{
		id:       "metadata-hop-limit",
		title:    "pods can or cannot reach instance metadata, as configured",
		severity: preflight.Warn,
		roles:    both,
		section:  sectionCloudConfig,
		needs:    fromInstance,
		run:      checkHopLimit,
		fix: "Active only if `preflight.checks` sets this check to warn or fail, because pods need instance " +
			"metadata: `http_put_response_hop_limit: 2` in the VM extension.",
	},
	{
		id:       "registry-endpoint",
		title:    "the ECR API is reachable",
		severity: preflight.Warn,
		roles:    both,
		section:  sectionPrivate,
		needs:    fromRegistry,
		run:      checkRegistry,
		fix:      "VPC endpoints for ecr.api, ecr.dkr and s3, or turn the check off.",
	},
}

// Conditions that several checks share.
const (
	onlyControllerStops = "on workers, and where the cloud config sets the cluster id"
	rarelyUsedOnly      = "only actions are denied that few clusters use, or IAM does not answer whether they are"
)

// controllerReadsNoTags reports whether no cloud controller takes the cluster's name from this instance's tags.
func (f *facts) controllerReadsNoTags() bool { return !f.isControl() || f.conf.ClusterID != "" }

// public returns the part of a check that does not depend on this package.
func (c check) public() preflight.Check {
	return preflight.Check{
		ID:          c.id,
		Title:       c.title,
		Severity:    c.severity,
		WarnsIf:     c.warnsIf,
		Roles:       c.roles,
		Permissions: c.permissions(),
		Fix:         c.fix,
		Section:     c.section,
	}
}

// permissions are the actions that the check itself uses, sorted.
func (c check) permissions() []string {
	var actions []string
	for s, a := range sourceActions {
		if c.needs&s != 0 {
			actions = append(actions, a...)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// evaluate runs the check.
func (c check) evaluate(f *facts) preflight.Outcome {
	outcome := c.run(f)
	if c.advisory != nil && c.advisory(f) {
		for i := range outcome.Findings {
			outcome.Findings[i].Advisory = true
		}
	}
	return outcome
}

func found(findings ...preflight.Finding) preflight.Outcome {
	return preflight.Outcome{Findings: findings}
}

func passed(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Note: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Skip: fmt.Sprintf(format, args...)}
}
