package checks

import (
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "registry-endpoint",
	rank:     500,
	title:    "the ECR API is reachable",
	severity: preflight.Warn,
	Roles:    both,
	section:  sectionPrivate,
	Needs:    facts.FromRegistry,
	run:      checkRegistry,
	fix:      "VPC endpoints for ecr.api, ecr.dkr and s3, or turn the check off.",
})

func checkRegistry(f *facts.Facts) preflight.Outcome {
	if f.RegistryHost == "" {
		return skipped("the region is unknown")
	}
	if f.RegistryErr == nil {
		return passed("%s", f.RegistryHost)
	}
	return found(preflight.Finding{
		Resource: f.RegistryHost, Wanted: "a connection", Found: awserr.RootMessage(f.RegistryErr),
		Why: "Images in the account's ECR repositories cannot be pulled; the release's own images need no registry.",
		Fix: []preflight.Fix{
			fixes.ByCommand(
				fixes.EndpointText,
				append(fixes.EndpointCommands(f, "ecr.api", "ecr.dkr"), fixes.StorageEndpointCommands(f)...)...,
			),
			fixes.CheckOff("if no image comes from ECR", "registry-endpoint")},
	})
}
