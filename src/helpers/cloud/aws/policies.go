package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"kubernetes-release/helpers/preflight"
)

// The load balancer APIs do not support DryRun, and testing every permission would take too many calls for a deployment.
// But IAM can be asked what a role's policies allow (SimulatePrincipalPolicy), which changes nothing. The questions are
// derived from the table of permissions: each row's actions, on a resource of the row's kind, with the tags that the row is
// restricted to.

// simulateAction is the permission to ask IAM. findRoleAction is the one to find the ARN of the role, because instance
// metadata returns the role's name without its path.
const (
	simulateAction = "iam:SimulatePrincipalPolicy"
	findRoleAction = "iam:GetRole"
)

// deniedByPolicy is the decision about an action that a policy denies explicitly.
const deniedByPolicy = "a policy denies it"

// policyAnswers are what the role's policies allow.
type policyAnswers struct {
	denied  map[string]string // action to the decision in words
	unknown map[string]string // action to the reason
	allowed map[string]bool

	// ownKeys are the condition keys of the generated policy. Each question has values for those that matter to its actions.
	ownKeys []string
}

// account returns the partition and the account in the ARN of the instance profile.
func (f *facts) account() (partition, account string, known bool) {
	parts := strings.Split(f.profile, ":")
	if len(parts) < 6 {
		return "", "", false
	}
	return parts[1], parts[4], true
}

// policyQuestions derives the questions about the role from the table of permissions.
func (f *facts) policyQuestions(roleARN string) []question {
	partition, account, _ := f.account()
	var questions []question
	index := map[string]int{}
	for _, p := range permissions {
		if !slices.Contains(p.roles, f.request.Role) || p.routes && !f.request.ConfigureCloudRoutes || p.action == simulateAction {
			continue
		}
		service, _, _ := strings.Cut(p.action, ":")
		key := fmt.Sprint(p.scope, p.resources)
		if p.scope == tagsNew { // the condition contains the service
			key += service
		}
		at, ok := index[key]
		if !ok {
			at = len(questions)
			index[key] = at
			questions = append(questions, question{context: p.context(service, f.tagKey())})
			for _, r := range p.resources {
				questions[at].resources = append(questions[at].resources, f.exampleARNs(partition, account, r)...)
			}
			if p.scope == itself {
				questions[at].resources = []string{roleARN}
			}
		}
		questions[at].actions = append(questions[at].actions, p.action)
	}
	return questions
}

// context returns the values of the condition keys in the permission's statement.
func (p permission) context(service, tagKey string) map[string]string {
	switch p.scope {
	case creates:
		return map[string]string{"aws:RequestTag/" + tagKey: "owned", "aws:TagKeys": tagKey}
	case changes:
		return map[string]string{"aws:ResourceTag/" + tagKey: "owned", service + ":ResourceTag/" + tagKey: "owned"}
	case tagsNew:
		return map[string]string{"aws:RequestTag/" + tagKey: "owned", "aws:TagKeys": tagKey, service + ":CreateAction": createActions[service][0]}
	case serviceLinked:
		return map[string]string{"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}
	}
	return nil
}

// exampleARNs returns resources that match a row of the table. They need not exist: their names have the form of those that
// the cloud controller creates.
func (f *facts) exampleARNs(partition, account, pattern string) []string {
	const name = "a0123456789abcdef0123456789abcdef"
	examples := map[string][]string{
		"security-group": {"sg-0123456789abcdef0"}, "vpc": {cmp.Or(f.vpcID(), "vpc-0123456789abcdef0")}, "route-table": {"rtb-0123456789abcdef0"},
		"instance": {cmp.Or(f.instanceID(), "i-0123456789abcdef0")}, "loadbalancer": {name, "net/" + name + "/0123456789abcdef"},
		"targetgroup": {"k8s-default-web-0123456789/0123456789abcdef"}, "listener": {"net/" + name + "/0123456789abcdef/0123456789abcdef"},
	}
	parts := strings.SplitN(pattern, ":", 4) // service, region, account, resource
	if parts[1] == "*" {
		parts[1] = f.region()
	}
	if parts[2] == "*" {
		parts[2] = account
	}
	prefix := "arn:" + partition + ":" + strings.Join(parts[:3], ":") + ":"
	kind, rest, _ := strings.Cut(parts[3], "/")
	if rest != "*" {
		return []string{prefix + parts[3]}
	}
	var arns []string
	for _, e := range examples[kind] {
		arns = append(arns, prefix+kind+"/"+e)
	}
	return arns
}

// askPolicies asks all questions: the first one alone, because the others are pointless if IAM rejects it. Most roles have
// no path; only if IAM does not find the role without one, or denies the question, the path is looked up.
func (g *gatherer) askPolicies(ctx context.Context) (*policyAnswers, error) {
	partition, account, known := g.facts.account()
	role := g.facts.credentials.Role
	if !known || role == "" {
		return nil, notAsked("the account and the role are unknown")
	}
	roleARN := fmt.Sprintf("arn:%s:iam::%s:role/%s", partition, account, role)
	questions := g.facts.policyQuestions(roleARN)
	first, err := g.api.simulatePolicy(ctx, roleARN, questions[0])
	if isNoRole(err) || classify(err) == classDenied {
		if withPath := g.api.roleARN(ctx, role); withPath != "" && withPath != roleARN {
			roleARN = withPath
			questions = g.facts.policyQuestions(roleARN)
			first, err = g.api.simulatePolicy(ctx, roleARN, questions[0])
		}
	}
	if err != nil {
		return nil, err
	}
	answers := &policyAnswers{denied: map[string]string{}, unknown: map[string]string{}, allowed: map[string]bool{}, ownKeys: conditionKeys(questions)}
	answers.add(questions[0].actions, first)
	var mu sync.Mutex
	ask := func(q question) error {
		results, err := g.api.simulatePolicy(ctx, roleARN, q)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		answers.add(q.actions, results)
		return nil
	}
	tasks := make([]func() error, 0, len(questions))
	for _, q := range questions[1:] {
		tasks = append(tasks, func() error { return ask(q) })
	}
	if err := inParallel(tasks...); err != nil {
		return nil, err
	}
	return answers, nil
}

// conditionKeys are all condition keys that questions have values for.
func conditionKeys(questions []question) []string {
	var keys []string
	for _, q := range questions {
		keys = slices.AppendSeq(keys, maps.Keys(q.context))
	}
	return keys
}

// add adds the results of one question. An action is allowed if it is allowed on one of the resources, because not every
// action of a row supports every kind of resource in it. IAM lists missing condition keys of all statements: those of the
// generated policy that the question lacks belong to other actions. Only with other keys the result remains unknown.
func (a *policyAnswers) add(actions []string, results []evaluation) {
	for _, action := range actions {
		answered, allowed, explicit := false, false, false
		var missing []string
		for _, r := range results {
			if !strings.EqualFold(r.Action, action) {
				continue
			}
			answered, explicit = true, r.Explicit
			allowed = allowed || r.Allowed
			for _, key := range r.Missing {
				if !slices.ContainsFunc(a.ownKeys, func(own string) bool { return strings.EqualFold(own, key) }) {
					missing = append(missing, key)
				}
			}
		}
		switch {
		case allowed:
			a.allowed[action] = true
		case !answered:
			a.unknown[action] = "IAM did not answer"
		case len(missing) > 0:
			slices.Sort(missing)
			a.unknown[action] = "unknown, because a condition depends on " + strings.Join(slices.Compact(missing), ", ")
		case explicit:
			a.denied[action] = deniedByPolicy
		default:
			a.denied[action] = "no policy of the role allows it in this form"
		}
	}
}

// withoutPolicies is the outcome of a check for which IAM should have answered questions. done is false if it has.
func (f *facts) withoutPolicies(selected func(permission) bool) (outcome preflight.Outcome, done bool) {
	switch {
	case f.policiesErr == nil && f.policies != nil:
		return preflight.Outcome{}, false
	case f.metadataErr != nil:
		return skipped(noMetadata), true
	case isNotAsked(f.policiesErr):
		return skipped("%v", f.policiesErr), true
	case f.policiesErr == nil:
		return skipped("IAM was not asked"), true
	}
	return found(preflight.Finding{
		Resource: "role " + f.credentials.Role, Wanted: "an answer from IAM about the role's policies", Found: f.whyNoPolicies(),
		Why:      "It is unknown whether the role has these permissions, which cannot be tested without using them: " + strings.Join(f.untested(selected), ", ") + ".",
		Fix:      append(f.fixPolicy(), byHand("or make sure that the role has these permissions, and turn the check off")),
		Advisory: true,
	}), true
}

// whyNoPolicies is the reason why it is unknown what the role's policies allow.
func (f *facts) whyNoPolicies() string {
	switch {
	case isNoRole(f.policiesErr):
		return fmt.Sprintf("IAM finds no role %s without a path; the role must be allowed %s on its own ARN (the generated policy does)", f.credentials.Role, findRoleAction)
	case classify(f.policiesErr) == classDenied:
		return fmt.Sprintf("the role cannot ask IAM about itself; it must be allowed %s on its own ARN (the generated policy does)", simulateAction)
	case errors.Is(f.policiesErr, context.DeadlineExceeded), classify(f.policiesErr) == classUnreachable:
		return "IAM is not reachable from here, as is usual in a private subnet: " + describe(f.policiesErr)
	}
	return describe(f.policiesErr)
}

// untested are the selected actions for which no call has shown whether they are allowed.
func (f *facts) untested(selected func(permission) bool) []string {
	var actions []string
	tested := f.tested()
	for _, p := range permissions {
		if slices.Contains(p.roles, f.request.Role) && !tested[p.action] && selected(p) {
			actions = append(actions, p.action)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// tested are the actions for which a call has shown whether they are allowed.
func (f *facts) tested() map[string]bool {
	tested := map[string]bool{}
	for _, a := range f.answers() {
		if class := classify(a.err); class == classNone || class == classDenied {
			tested[a.action] = true
		}
	}
	for _, p := range f.probes {
		if class := classify(p.err); class == classNone || class == classDenied {
			for _, action := range p.covers {
				tested[action] = true
			}
		}
	}
	return tested
}

// byPolicy checks those permissions of the table that selected returns true for, according to the role's policies.
func (f *facts) byPolicy(selected func(permission) bool) preflight.Outcome {
	var findings []preflight.Finding
	allowed := 0
	for _, action := range f.untested(selected) {
		p := permissionFor(action, f.request.Role)
		finding := preflight.Finding{
			Resource: action, Wanted: "allowed for role " + f.credentials.Role + p.inWords(f.tagKey()), Found: f.policies.denied[action],
			Why: p.why, Advisory: p.rare, Eventual: true, Fix: f.fixPolicy(),
		}
		switch {
		case f.policies.denied[action] != "":
			if f.policies.denied[action] == deniedByPolicy {
				finding.Fix = []preflight.Fix{f.fixDeny()}
			}
			findings = join(findings, finding)
		case f.policies.allowed[action]:
			allowed++
		default:
			finding.Found, finding.Advisory, finding.Eventual = cmp.Or(f.policies.unknown[action], "IAM was not asked"), true, false
			findings = join(findings, finding)
		}
	}
	if len(findings) > 0 {
		return preflight.Outcome{Findings: findings}
	}
	return passed("%d actions, according to the role's policies", allowed)
}

// permissionFor returns the first row of the table for an action and a role.
func permissionFor(action string, role preflight.Role) permission {
	at := slices.IndexFunc(permissions, func(p permission) bool { return p.action == action && slices.Contains(p.roles, role) })
	return permissions[at]
}

// join merges a finding into one that differs only in the resource, or adds it.
func join(findings []preflight.Finding, f preflight.Finding) []preflight.Finding {
	for i := range findings {
		if other := &findings[i]; other.Wanted == f.Wanted && other.Found == f.Found && other.Why == f.Why && other.Advisory == f.Advisory {
			other.Resource += ", " + f.Resource
			return findings
		}
	}
	return append(findings, f)
}

// inWords describes the permission's condition.
func (p permission) inWords(tagKey string) string {
	switch p.scope {
	case creates, tagsNew:
		return ", for new resources with the tag " + tagKey
	case changes:
		return ", on resources with the tag " + tagKey
	}
	return ""
}

func isLoadBalancing(p permission) bool { return strings.HasPrefix(p.action, "elasticloadbalancing:") }

func checkLoadBalancerWrites(f *facts) preflight.Outcome {
	if outcome, done := f.withoutPolicies(isLoadBalancing); done {
		return outcome
	}
	return f.byPolicy(isLoadBalancing)
}

func checkOtherPermissions(f *facts) preflight.Outcome {
	if !f.isControl() && !f.request.Thorough {
		return skipped("on workers only the errand cloud-preflight checks it, so that a deployment of many workers does not ask IAM for each")
	}
	tested := f.testedBy("other-permissions")
	if len(tested.Findings) > 0 {
		return tested
	}
	selected := func(p permission) bool {
		return !isLoadBalancing(p) && p.scope != itself && (!p.routes || f.request.ConfigureCloudRoutes)
	}
	if outcome, done := f.withoutPolicies(selected); done {
		return outcome
	}
	outcome := f.byPolicy(selected)
	if outcome.Note != "" && f.policies.denied[findRoleAction] != "" {
		outcome.Note += "; except " + findRoleAction + ", which only a role whose name has a path requires"
	}
	return outcome
}
