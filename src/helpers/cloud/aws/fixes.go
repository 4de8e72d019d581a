package aws

import (
	"cmp"
	"fmt"
	"strings"

	"al.essio.dev/pkg/shellescape"

	"kubernetes-release/internal/bosh"
)

// fixPolicy is the command that gives the permissions of the generated policy to the role that the cloud controller uses.
func (f *facts) fixPolicy() []string {
	if f.assumesRole() {
		return f.policyCommand(f.conf.roleName(), f.conf.roleName(), " --assumed-role")
	}
	return f.fixOwnPolicy()
}

// fixOwnPolicy is the command for the role of the instance profile.
func (f *facts) fixOwnPolicy() []string {
	return f.policyCommand(cmp.Or(f.credentials.Role, "ROLE"), DefaultRoleName(f.request.Role), "")
}

func (f *facts) policyCommand(role, defaultName, options string) []string {
	options += partitionOf(f.region()).flag()
	if role != defaultName {
		options += " --role-name " + role
	}
	if f.request.ConfigureCloudRoutes {
		options += " --cloud-routes"
	}
	if f.isControl() && f.vpcID() != "" {
		options += " --vpc " + f.vpcID()
	}
	if f.isControl() && f.conf.changesPermissions() {
		options += " --cloud-config " + shellescape.Quote(f.request.CloudConfigFile)
	}
	return []string{fmt.Sprintf("%s iam-policy --role %s --cluster %s%s > policy.json && aws iam put-role-policy --role-name %s --policy-name kubernetes-%s --policy-document file://policy.json",
		bosh.DefaultRoot.Package("helpers", "bin", "cloud-preflight"), f.request.Role, shellescape.Quote(f.cluster()), options, role, f.request.Role)}
}

// tagCommand adds the cluster's tag to resources, with the value that allows other clusters to use them too.
func (f *facts) tagCommand(resources ...string) string {
	return tagCommand(f.region(), f.tagKey(), "shared", resources...)
}

func tagCommand(region, key, value string, resources ...string) string {
	argument := fmt.Sprintf("Key=%s,Value=%s", key, value)
	if !isShorthand(key) || !isShorthand(value) {
		argument = shellescape.Quote(fmt.Sprintf(`[{"Key":%q,"Value":%q}]`, key, value))
	}
	return fmt.Sprintf("aws ec2 create-tags --region %s --resources %s --tags %s", region, strings.Join(resources, " "), argument)
}

// isShorthand reports whether s can be part of the AWS CLI's shorthand syntax, which has no quoting.
func isShorthand(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._/:@+", c))
	})
}

// untagCommand removes tags from resources.
func (f *facts) untagCommand(resources []string, keys ...string) string {
	var arguments []string
	for _, key := range keys {
		argument := "Key=" + key
		if !isShorthand(key) {
			argument = shellescape.Quote(fmt.Sprintf(`{"Key":%q}`, key))
		}
		arguments = append(arguments, argument)
	}
	return fmt.Sprintf("aws ec2 delete-tags --region %s --resources %s --tags %s", f.region(), strings.Join(resources, " "), strings.Join(arguments, " "))
}

// keepTagOnFirst removes the cluster's tag from all resources but the first.
func (f *facts) keepTagOnFirst(resources []string) string {
	return fmt.Sprintf("%s, to keep the tag on %s only", f.untagCommand(resources[1:], f.tagKey()), resources[0])
}

// endpointCommand creates a VPC endpoint for an AWS service.
func (f *facts) endpointCommand(service string) string {
	return fmt.Sprintf("aws ec2 create-vpc-endpoint --region %s --vpc-id %s --vpc-endpoint-type Interface --service-name com.amazonaws.%s.%s --subnet-ids %s",
		f.region(), cmp.Or(f.vpcID(), "VPC"), f.region(), service, cmp.Or(f.subnetID(), "SUBNET"))
}

// inExtension is the setting in the cloud config's VM extension for machines of this role.
func (f *facts) inExtension(properties string) string {
	return fmt.Sprintf("in the cloud config's vm_extension kubernetes-%s: cloud_properties: {%s}", f.request.Role, properties)
}
