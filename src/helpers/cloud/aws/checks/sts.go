package checks

import (
	"cmp"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "sts-endpoint",
	rank:     340,
	title:    "STS says who signed a request",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPrivate,
	Needs:    facts.FromTokenService | facts.FromCredentials,
	run:      checkTokenService,
	fix: "A route to the internet, or a VPC endpoint for sts, whose policy allows `sts:GetCallerIdentity` for every " +
		"principal of the account.",
})

// checkTokenService: STS is asked about a proof of this machine as it is about those of machines that join.
func checkTokenService(f *facts.Facts) preflight.Outcome {
	const why = "The job node-controller asks STS which instance wants to join: no new node could."
	host := cmp.Or(f.TokenHost, "STS")
	switch {
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case f.CredentialsErr != nil:
		return skipped("there are no credentials (see role-credentials)")
	case f.TokenErr == nil:
		return passed("%s", host)
	case f.TokenRefused:
		return found(preflight.Finding{
			Resource: host, Wanted: "the ARN of this instance's role", Found: f.TokenErr.Error(), Why: why,
			Eventual: true, // STS does not know new credentials everywhere at once
			Fix: []preflight.Fix{
				fixes.ByHand("if access is denied: no IAM policy does that; in the policy of the VPC endpoint for " +
					"sts, allow sts:GetCallerIdentity for every principal of the account"),
				fixes.ByHand("if the signature or the token is not accepted: correct the clock of this VM (see " +
					"clock), and have proxies pass the requests on unchanged"),
			},
		})
	}
	return found(preflight.Finding{
		Resource: host, Wanted: "an answer", Found: awserr.RootMessage(f.TokenErr), Why: why, Eventual: true,
		Fix: fixes.Endpoint(f, "sts"),
	})
}
