package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// denied is the finding of a permission that the role lacks.
func denied(f *facts.Facts, action, resource string, err error) preflight.Finding {
	fix := fixes.Policy(f)
	if strings.Contains(err.Error(), "explicit deny") {
		fix = []preflight.Fix{fixes.Deny(f)}
		if strings.HasPrefix(resource, "sg-") { // the statement may depend on the group's tag
			fix = fixes.TagFirst(f, fix)
		}
	}
	return preflight.Finding{
		Resource: action,
		Wanted:   fmt.Sprintf("allowed for role %s on %s", f.RoleName(), strings.TrimPrefix(resource, "role ")),
		Found:    awserr.Describe(err),
		Why:      iampolicy.Why(action, f.Request.Role),
		Eventual: true,
		Fix:      fix,
		Advisory: slices.Contains(iampolicy.RarelyUsed, action),
	}
}

// testedBy reports the probes of calls.
func testedBy(f *facts.Facts, actions ...string) preflight.Outcome {
	var findings []preflight.Finding
	var allowed []string
	var obstacle error // that another check reports
	for _, p := range f.Probes {
		if !slices.Contains(actions, p.Action) {
			continue
		}
		switch awserr.Classify(p.Err) {
		case awserr.None:
			allowed = append(allowed, p.Covers...)
		case awserr.Denied:
			finding := denied(f, awserr.DeniedAction(p.Err, strings.Join(p.Covers, " or ")), p.Resource, p.Err)
			if strings.HasPrefix(p.Resource, "sg-") && f.GroupsErr == nil &&
				!f.Group(p.Resource).IsOwnedOrShared(f.TagKey()) { // the old tag is not enough for them
				finding.Found += "; the group does not have the tag " + f.TagKey() +
					" with the value owned or shared, which policies require"
			}
			if !slices.ContainsFunc(
				findings, func(other preflight.Finding) bool { return other.Resource == finding.Resource },
			) {
				findings = append(findings, finding)
			}
		case awserr.Other, awserr.UnknownID:
			finding := denied(f, strings.Join(p.Covers, ", "), p.Resource, p.Err)
			finding.Advisory = true
			findings = append(findings, finding)
		default:
			obstacle = p.Err
		}
	}
	switch {
	case len(findings) > 0:
		return preflight.Outcome{Findings: findings}
	case obstacle != nil:
		return skipped("could not be tested: %s", awserr.Describe(obstacle))
	case len(allowed) == 0:
		return skipped(noCalls)
	}
	slices.Sort(allowed)
	return passed("%s", strings.Join(slices.Compact(allowed), ", "))
}

// withoutPolicies is the outcome of a check for which IAM should have answered questions. done is false if it has.
func withoutPolicies(f *facts.Facts, selected func(iampolicy.Permission) bool) (outcome preflight.Outcome, done bool) {
	switch {
	case f.PoliciesErr == nil && f.Policies != nil:
		return preflight.Outcome{}, false
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata), true
	case awserr.IsNotAsked(f.PoliciesErr):
		return skipped("%v", f.PoliciesErr), true
	case f.PoliciesErr == nil:
		return skipped("IAM was not asked"), true
	}
	return found(preflight.Finding{
		Resource: "role " + f.RoleName(),
		Wanted:   "an answer from IAM about the role's policies",
		Found:    whyNoPolicies(f),
		Why: "It is unknown whether the role has these permissions, which cannot be tested without using them: " +
			strings.Join(untested(f, selected), ", ") + ".",
		Fix:      append(fixes.Policy(f), fixes.AskIAM(f, untested(f, selected))),
		Advisory: true,
	}), true
}

// whyNoPolicies is the reason why it is unknown what the role's policies allow.
func whyNoPolicies(f *facts.Facts) string {
	switch {
	case awserr.IsNoRole(f.PoliciesErr):
		return fmt.Sprintf(
			"IAM finds no role %s without a path; the role must be allowed %s on its own ARN (the generated policy "+
				"does)",
			f.RoleName(), iampolicy.FindRoleAction,
		)
	case awserr.Classify(f.PoliciesErr) == awserr.Denied:
		return fmt.Sprintf(
			"the role cannot ask IAM about itself; it must be allowed %s on its own ARN (the generated policy does)",
			iampolicy.SimulateAction,
		)
	case errors.Is(f.PoliciesErr, context.DeadlineExceeded), awserr.Classify(f.PoliciesErr) == awserr.Unreachable:
		return "IAM is not reachable from here, as is usual in a private subnet: " + awserr.Describe(f.PoliciesErr)
	}
	return awserr.Describe(f.PoliciesErr)
}

// untested are the selected actions for which no call has shown whether they are allowed.
func untested(f *facts.Facts, selected func(iampolicy.Permission) bool) []string {
	var actions []string
	tested := tested(f)
	for _, p := range iampolicy.Permissions {
		own, assumed := f.PolicyNeeds().Includes(p)
		asked := own && !f.AssumesRole() ||
			assumed // of the role of the instance profile only AssumeRole matters then, which is tested
		if asked && !(tested[p.Action] && !p.OnlyInPart()) && selected(p) &&
			!(p.IsPublicRegistry() && arn.PartitionOf(f.Region()).Name != "aws") {
			actions = append(actions, p.Action)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// tested are the actions for which a call has shown whether they are allowed.
func tested(f *facts.Facts) map[string]bool {
	tested := map[string]bool{}
	for _, a := range f.Answers() {
		if class := awserr.Classify(a.Err); class == awserr.None || class == awserr.Denied {
			tested[a.Action] = true
		}
	}
	for _, p := range f.Probes {
		if class := awserr.Classify(p.Err); class == awserr.None || class == awserr.Denied {
			for _, action := range p.Covers {
				tested[action] = true
			}
		}
	}
	return tested
}

// byPolicy checks those permissions of the table that selected returns true for, according to the role's policies.
func byPolicy(f *facts.Facts, selected func(iampolicy.Permission) bool) preflight.Outcome {
	var findings []preflight.Finding
	allowed := 0
	for _, action := range untested(f, selected) {
		refusal, unknown := f.Policies.Denied[action], f.Policies.Unknown[action]
		if refusal == "" && unknown == "" && f.Policies.Allowed[action] {
			allowed++
			continue
		}
		p := f.PolicyNeeds().Row(action, selected)
		findings = join(findings, preflight.Finding{
			Resource: action,
			Wanted:   "allowed for role " + f.RoleName() + p.InWords(f.TagKey()),
			Found:    cmp.Or(refusal, unknown, "IAM was not asked"),
			Why:      p.Why,
			Advisory: refusal == "" || p.Rare,
			Eventual: refusal != "",
		})
	}
	for i := range findings { // a generated policy is long
		findings[i].Fix = policyFix(f, findings[i].Found)
	}
	if len(findings) > 0 {
		return preflight.Outcome{Findings: findings}
	}
	return passed("%d actions, according to the role's policies", allowed)
}

// policyFix is the fix of what IAM says that the role may not.
func policyFix(f *facts.Facts, refusal string) []preflight.Fix {
	switch refusal {
	case iampolicy.DeniedByPolicy:
		return []preflight.Fix{fixes.Deny(f)}
	case iampolicy.UnknownByOrganization:
		return []preflight.Fix{fixes.ByHand(fixes.OfOrganization)}
	}
	return fixes.Policy(f)
}

// join merges a finding into one that differs only in the resource, or adds it.
func join(findings []preflight.Finding, f preflight.Finding) []preflight.Finding {
	for i := range findings {
		if other := &findings[i]; other.Wanted == f.Wanted && other.Found == f.Found && other.Why == f.Why &&
			other.Advisory == f.Advisory {
			other.Resource += ", " + f.Resource
			return findings
		}
	}
	return append(findings, f)
}
