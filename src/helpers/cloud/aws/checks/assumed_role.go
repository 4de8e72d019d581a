package checks

import (
	"fmt"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "assumed-role",
	rank:     90,
	title:    "the cloud controller can assume the configured role",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionConfig,
	Needs:    facts.FromCredentials | facts.FromEC2,
	run:      checkAssumedRole,
	fix: "For `RoleARN` in the property `config`: attach both generated policies, and let the role trust " +
		"the one of the instance profile.",
})

func checkAssumedRole(f *facts.Facts) preflight.Outcome {
	switch {
	case !f.AssumesRole():
		return passed("the role of the instance profile is used")
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case f.CredentialsErr != nil:
		return skipped("there are no credentials")
	case f.AssumeErr == nil:
		return passed("%s", f.Conf.RoleARN)
	}
	own := f.Credentials.Role
	return found(preflight.Finding{
		Resource: f.Conf.RoleARN,
		Wanted:   fmt.Sprintf("a role that %s may assume", own),
		Found:    awserr.Describe(f.AssumeErr),
		Eventual: true,
		Why:      "The cloud controller makes all its calls as this role, and does not start without it.",
		Fix: append(
			fixes.MachinePolicy(f),
			fixes.ByCommand(
				fmt.Sprintf(
					"make sure that the trust policy of the role allows %s the action %s; to show it:", own,
					iampolicy.AssumeAction,
				),
				fixes.AWS(
					f,
					"iam",
					"get-role",
					"--role-name",
					f.Conf.RoleName(),
					"--query",
					"Role.AssumeRolePolicyDocument",
				),
			),
		),
	})
}
