package checks

import (
	"errors"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "pod-roles",
	rank:     306,
	title:    "AWS accepts the tokens of pods",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPodRoles,
	Needs:    facts.FromIssuer,
	run:      checkPodRoles,
	fix: "Make the two objects of the issuer readable without credentials, or create its OpenID Connect provider " +
		"with the audience `sts.amazonaws.com`.",
})

func checkPodRoles(f *facts.Facts) preflight.Outcome {
	switch {
	case f.Issuer == nil:
		return skipped("there is no job pod-roles")
	case !f.Request.Thorough:
		return skipped("in a deployment, pre-start of job pod-roles checks it")
	}
	var unknown error
	var findings []preflight.Finding
	for _, err := range f.IssuerErrs {
		var problem *issuer.Problem
		switch {
		case errors.As(err, &problem):
			fix := []preflight.Fix{fixes.ByCommand("for AWS to accept the tokens", problem.Commands...)}
			if problem.Hint != "" {
				fix = append(fix, fixes.ByHand("%s", problem.Hint))
			}
			findings = append(findings, preflight.Finding{
				Resource: f.Issuer.Issuer, Wanted: "AWS accepts tokens of the issuer", Found: problem.Err.Error(),
				Fix: fix, Why: "Pods with an IAM role get no credentials.",
			})
		case issuer.IsUnknown(err), awserr.IsNotAsked(err):
			unknown = errors.Join(unknown, err)
		default:
			findings = append(findings, preflight.Finding{
				Resource: f.Issuer.PublicKeys, Wanted: "the public keys of service accounts", Found: err.Error(),
				Fix: []preflight.Fix{fixes.ByHand("correct service_account.public_keys of job kube-apiserver")},
			})
		}
	}
	if len(findings) == 0 && unknown != nil {
		return skipped("%v", unknown)
	}
	if len(findings) == 0 {
		return passed("%s", f.Issuer.Issuer)
	}
	return found(findings...)
}
