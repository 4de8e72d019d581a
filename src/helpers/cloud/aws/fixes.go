package aws

import (
	"cmp"
	"fmt"
	"strings"
)

// mends says of each check what puts its findings right, in a few words; findings have the command with the ids in it.
var mends = map[string]string{
	"cluster-name":                    "Choose a `cluster_name` of at most 105 characters that AWS allows in tags.",
	"cloud-config":                    "Correct the property `config` of the job cloud-provider; leave `KubernetesClusterID` out of it.",
	"metadata-service":                "`aws ec2 modify-instance-metadata-options --http-endpoint enabled --http-tokens required`, and `metadata_options` in the VM extension; else look at firewall rules for 169.254.169.254.",
	"instance-profile":                "`iam_instance_profile` in the VM extension; for the running VM `aws ec2 associate-iam-instance-profile`.",
	"role-credentials":                "Put a role into the instance profile that trusts ec2.amazonaws.com (`aws iam add-role-to-instance-profile`).",
	"clock":                           "Mend the VM's time source (`chronyc tracking`; on AWS 169.254.169.123 is always there).",
	"ec2-endpoint":                    "Give the subnet a route to the internet or a VPC endpoint for ec2; throttling and failures of AWS pass by themselves.",
	"ec2-read-permissions":            "Attach the generated policy (`cloud-preflight iam-policy`).",
	"instance-role":                   "Set the VM extension's `iam_instance_profile` to `preflight.instance_profile`, or the other way round.",
	"instance-known":                  "Wait, for EC2 learns of new instances late; else the endpoint belongs to another account or region.",
	"instance-cluster-tag":            "`aws ec2 create-tags --resources INSTANCE`, and `tags:` in the manifest (ops-files/aws.yml).",
	"instance-cluster-ids":            "`aws ec2 delete-tags` for the other cluster's tag, or `bosh recreate`.",
	"instance-legacy-tag":             "`aws ec2 delete-tags --tags Key=KubernetesCluster`.",
	"node-subnet-cluster-tag":         "`aws ec2 create-tags --resources SUBNET`.",
	"public-subnet-cluster-tag":       "`aws ec2 create-tags --resources SUBNET …`.",
	"public-subnet-route":             "Give the public subnets' route table a route to an internet gateway; a cluster without internet-facing load balancers turns the check off.",
	"internal-subnets":                "Tag a subnet for the cluster.",
	"tagged-security-groups":          "Keep the tag on one of the instance's security groups only (`aws ec2 delete-tags`).",
	"untagged-security-groups":        "Tag one of the instance's security groups.",
	"security-group-permissions":      "Attach the generated policy, and tag the nodes' security group, by which the policy is narrowed.",
	"load-balancer-permissions":       "Attach the generated policy.",
	"load-balancer-write-permissions": "Attach the generated policy. Skipped where the role may not ask IAM about itself or IAM does not answer.",
	"other-permissions":               "Attach the generated policy. What is needed at times only warns.",
	"load-balancer-endpoint":          "A route to the internet, or a VPC endpoint for elasticloadbalancing.",
	"node-name":                       "Enable DNS host names in the VPC; use one domain name in its DHCP options.",
	"node-address":                    "`bosh recreate`: the VM's network settings are not those of the instance.",
	"source-dest-check":               "`source_dest_check: false` in the VM extension; for the running VM `aws ec2 modify-instance-attribute --no-source-dest-check`.",
	"cloud-routes-table":              "Tag exactly one route table, or name it with `RouteTableID` in the property `config`.",
	"stale-node":                      "`kubectl delete node NAME`, then `monit restart kubelet` on the VM.",
	"instance-tag-limit":              "Use fewer than 50 tags in the manifest and the runtime config.",
	"cluster-tag-value":               "Set the tag's value to `shared`.",
	"foreign-public-subnets":          "Tag a public subnet in the zone for this cluster as well.",
	"public-subnet-choice":            "Tag one public subnet in each zone with `kubernetes.io/role/elb`.",
	"internal-subnet-choice":          "Tag one subnet in each zone with `kubernetes.io/role/internal-elb`.",
	"metadata-hop-limit":              "Looked for only where `preflight.checks` sets this check to warn or fail, because pods need instance metadata: `http_put_response_hop_limit: 2` in the VM extension.",
	"registry-endpoint":               "VPC endpoints for ecr.api, ecr.dkr and s3, or turn the check off.",
}

// policyMend is how a permission is given to the role.
func (f *facts) policyMend() []string {
	role := cmp.Or(f.credentials.Role, "ROLE")
	options := partitionOf(f.region()).flag()
	if role != DefaultRoleName(f.request.Role) {
		options += " --role-name " + role
	}
	if f.request.ConfigureCloudRoutes {
		options += " --cloud-routes"
	}
	return []string{fmt.Sprintf("/var/vcap/packages/helpers/bin/cloud-preflight iam-policy --role %s --cluster %s%s > policy.json && aws iam put-role-policy --role-name %s --policy-name kubernetes-%s --policy-document file://policy.json",
		f.request.Role, shellQuote(f.cluster()), options, role, f.request.Role)}
}

// tagCommand is the command that puts the cluster's tag on resources.
func (f *facts) tagCommand(value string, resources ...string) string {
	return tagCommand(f.region(), f.tagKey(), value, resources...)
}

func tagCommand(region, key, value string, resources ...string) string {
	argument := fmt.Sprintf("Key=%s,Value=%s", key, value)
	if !isPlain(key) || !isPlain(value) { // the short form knows no quoting
		argument = shellQuote(fmt.Sprintf(`[{"Key":%q,"Value":%q}]`, key, value))
	}
	return fmt.Sprintf("aws ec2 create-tags --region %s --resources %s --tags %s", region, strings.Join(resources, " "), argument)
}

func isPlain(s string) bool {
	return s == "" || !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._/:@+", c))
	})
}

// shellQuote makes one word of a POSIX shell out of s.
func shellQuote(s string) string {
	if s != "" && isPlain(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// untagCommand is the command that takes tags from resources.
func (f *facts) untagCommand(resources []string, keys ...string) string {
	var arguments []string
	for _, key := range keys {
		argument := "Key=" + key
		if !isPlain(key) { // the short form knows no quoting
			argument = shellQuote(fmt.Sprintf(`{"Key":%q}`, key))
		}
		arguments = append(arguments, argument)
	}
	return fmt.Sprintf("aws ec2 delete-tags --region %s --resources %s --tags %s", f.region(), strings.Join(resources, " "), strings.Join(arguments, " "))
}

// keepTagOnFirst takes the cluster's tag from all resources but the first.
func (f *facts) keepTagOnFirst(resources []string) string {
	return fmt.Sprintf("%s, to keep the tag on %s only", f.untagCommand(resources[1:], f.tagKey()), resources[0])
}

// endpointCommand is the command that makes the VPC's endpoint for an AWS service.
func (f *facts) endpointCommand(service string) string {
	return fmt.Sprintf("aws ec2 create-vpc-endpoint --region %s --vpc-id %s --vpc-endpoint-type Interface --service-name com.amazonaws.%s.%s --subnet-ids %s",
		f.region(), cmp.Or(f.vpcID(), "VPC"), f.region(), service, cmp.Or(f.subnetID(), "SUBNET"))
}
