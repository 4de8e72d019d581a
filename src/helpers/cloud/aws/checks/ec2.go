package checks

import (
	"errors"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awsapi"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "ec2-endpoint",
	rank:     70,
	title:    "the EC2 API answers",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionPrivate,
	Needs:    facts.FromEC2,
	run:      checkEC2Endpoint,
	fix: "Give the subnet a route to the internet or a VPC endpoint for ec2; throttling and outages of AWS " +
		"are temporary.",
})

var _ = register(Check{
	ID:       "ec2-read-permissions",
	rank:     80,
	title:    "the role has the permissions that the checks use",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionPolicies,
	Needs:    facts.FromCredentials | facts.FromEC2,
	run:      checkReadPermissions,
	fix:      "Attach the generated policy (`cloud-preflight iam-policy`).",
})

func checkEC2Endpoint(f *facts.Facts) preflight.Outcome {
	var failures []string // one per kind of answer, with the calls that got it
	actions := map[string][]string{}
	fail := func(action, text string) {
		if len(actions[text]) == 0 {
			failures = append(failures, text)
		}
		actions[text] = append(actions[text], action)
	}
	answered := false
	for _, a := range f.Answers() {
		if !strings.HasPrefix(a.Action, "ec2:") {
			continue
		}
		switch awserr.Classify(a.Err) {
		case awserr.Unreachable:
			if awserr.IsNotAsked(a.Err) || awserr.IsEmpty(a.Err) {
				continue
			}
			fail(a.Action, awserr.Describe(a.Err))
		case awserr.Other:
			if !a.IsProbe { // the check of the permission reports it
				fail(a.Action, awserr.Describe(a.Err))
			}
		case awserr.Server, awserr.Malformed, awserr.Throttled:
			text := awserr.Describe(a.Err)
			var out *awsapi.ThrottledOut
			if errors.As(a.Err, &out) {
				text = out.Error()
			}
			fail(a.Action, text)
		default:
			answered = true
		}
	}
	if len(failures) == 0 && !answered {
		return skipped(noCalls)
	}
	if len(failures) == 0 {
		return passed("")
	}
	for i, text := range failures {
		failures[i] = strings.Join(actions[text], ", ") + ": " + text
	}
	return found(preflight.Finding{
		Resource: "ec2." + f.Region(),
		Wanted:   "answers from the EC2 API in " + f.Region(),
		Found:    strings.Join(failures, "; "),
		Why:      "The cloud controller would fail on the same calls.",
		Eventual: true,
		Fix:      fixes.Endpoint(f, "ec2"),
	})
}

func checkReadPermissions(f *facts.Facts) preflight.Outcome {
	var findings []preflight.Finding
	asked, answered := 0, 0
	for _, a := range f.EC2Answers() {
		if awserr.IsNotAsked(a.Err) {
			continue
		}
		asked++
		if decided(a.Err) && awserr.Classify(a.Err) != awserr.Credentials {
			answered++
		}
		action := awserr.DeniedAction(a.Err, a.Action)
		known := slices.ContainsFunc(findings, func(f preflight.Finding) bool { return f.Resource == action })
		if awserr.Classify(a.Err) == awserr.Denied && !known {
			findings = append(findings, denied(f, action, "role "+f.RoleName(), a.Err))
		}
	}
	switch {
	case asked == 0:
		return skipped(noCalls)
	case answered == 0:
		return skipped(noAnswers)
	}
	return preflight.Outcome{Findings: findings}
}
