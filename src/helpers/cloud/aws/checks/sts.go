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
	title:    "STS is reachable",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPrivate,
	Needs:    facts.FromTokenService | facts.FromCredentials,
	run:      checkTokenService,
	fix:      "A route to the internet, or a VPC endpoint for sts.",
})

func checkTokenService(f *facts.Facts) preflight.Outcome {
	switch {
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case f.CredentialsErr != nil:
		return skipped("there are no credentials (see role-credentials)")
	case f.TokenErr == nil:
		return passed("%s", f.TokenHost)
	}
	return found(preflight.Finding{
		Resource: cmp.Or(f.TokenHost, "STS"), Wanted: "a connection", Found: awserr.RootMessage(f.TokenErr),
		Why: "The job kubelet-csr-approver asks STS which instance wants to join: no new node could.",
		Fix: []preflight.Fix{fixes.ByCommand(fixes.EndpointText, fixes.EndpointCommands(f, "sts")...)},
	})
}
