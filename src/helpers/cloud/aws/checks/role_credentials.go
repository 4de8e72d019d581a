package checks

import (
	"cmp"
	"time"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "role-credentials",
	rank:     50,
	title:    "AWS accepts the credentials of the instance's role",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionPolicies,
	Needs:    facts.FromCredentials | facts.FromEC2 | facts.FromTokenService, // both are asked with them
	run:      checkCredentials,
	fix: "Add a role that trusts EC2 to the instance profile (`aws iam add-role-to-instance-profile`, `aws " +
		"iam update-assume-role-policy`).",
})

func checkCredentials(f *facts.Facts) preflight.Outcome {
	if awserr.IsNotAsked(f.CredentialsErr) {
		return skipped("%v", f.CredentialsErr)
	}
	if f.MetadataFailure() != nil {
		return skipped(facts.NoMetadata)
	}
	if f.ProfileErr == nil && f.Profile == "" {
		return skipped("there is no instance profile (see instance-profile)")
	}
	if f.CredentialsErr != nil {
		return found(preflight.Finding{
			Resource: cmp.Or(f.Profile, f.InstanceID()),
			Wanted:   "an instance profile with a role that EC2 can assume, and credentials that have not expired",
			Found:    f.CredentialsErr.Error(),
			Why:      "Without credentials the cloud controller cannot start.",
			Eventual: true,
			Fix:      []preflight.Fix{fixes.Credentials(f)},
		})
	}
	answered := false
	for _, a := range f.Answers() {
		answered = answered || decided(a.Err)
		if awserr.Classify(a.Err) == awserr.Credentials {
			return found(preflight.Finding{
				Resource: "role " + f.Credentials.Role,
				Wanted:   "credentials that AWS accepts",
				Found:    a.Action + ": " + awserr.Describe(a.Err),
				Why:      "AWS would reject every call of the cloud controller.",
				Eventual: true,
				Fix: []preflight.Fix{
					fixes.ReplaceProfile(f,
						"associate the instance profile again, because the role may have been deleted or recreated "+
							"with the same name",
						cmp.Or(f.Profile, f.WantedProfile()),
					),
					fixes.ByHand(
						"or make sure that no policy of the organization or of a VPC endpoint rejects the account",
					),
				},
			})
		}
	}
	if !answered {
		return skipped(noAnswers)
	}
	return passed("role %s, until %s", f.Credentials.Role, f.Credentials.Expires.UTC().Format(time.RFC3339))
}
