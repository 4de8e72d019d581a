package checks

import (
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "other-permissions",
	rank:     280,
	title:    "the role has all other permissions",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionPolicies,
	warnsIf:  rarelyUsedOnly,
	Needs:    facts.FromPolicies | facts.FromProbes,
	run:      checkOtherPermissions,
	fix:      "Attach the generated policy.",
})

func checkOtherPermissions(f *facts.Facts) preflight.Outcome {
	if !f.IsControl() && !f.Request.Thorough {
		return skipped(
			"on workers only the errand cloud-preflight checks it, so that a deployment of many workers does not ask " +
				"IAM for each",
		)
	}
	tested := testedBy(f, "ec2:CreateRoute", "ec2:DescribeInstanceTopology", "ec2:ModifyInstanceAttribute")
	if len(tested.Findings) > 0 {
		return tested
	}
	selected := func(p iampolicy.Permission) bool {
		return !iampolicy.IsLoadBalancing(p) && !p.Storage && p.Scope != iampolicy.Itself
	}
	if outcome, done := withoutPolicies(f, selected); done {
		return outcome
	}
	outcome := byPolicy(f, selected)
	if outcome.Note != "" && f.Policies.Denied[iampolicy.FindRoleAction] != "" {
		outcome.Note += "; except " + iampolicy.FindRoleAction + ", which only a role whose name has a path requires"
	}
	return outcome
}
