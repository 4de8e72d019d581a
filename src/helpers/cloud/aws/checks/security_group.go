package checks

import (
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "security-group-permissions",
	rank:     250,
	title:    "the role can manage security groups",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPolicies,
	Needs:    facts.FromProbes | facts.FromGroups,
	run:      checkGroupPermissions,
	fix: "Attach the generated policy, and tag the nodes' security group, because the policy is restricted " +
		"to tagged ones.",
})

func checkGroupPermissions(f *facts.Facts) preflight.Outcome {
	return testedBy(f, "ec2:CreateSecurityGroup", "ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress")
}
