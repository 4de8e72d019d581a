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
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"

	"kubernetes-release/helpers/preflight"
)

// Load balancers know no DryRun, and a deployment has no calls to spare for trying every permission. But IAM can be
// asked what a role's policies say (SimulatePrincipalPolicy), which changes nothing. The questions are made from the
// table of permissions: each row's actions, on a resource of the row's kind, with the tags that the row is narrowed to.

// simulateAction is the permission to ask, findRoleAction the one to find out whom to ask about: instance metadata gives the
// role's name without its path.
const (
	simulateAction = "iam:SimulatePrincipalPolicy"
	findRoleAction = "iam:GetRole"
)

// policyTimeout bounds one question. IAM has one endpoint a partition, which a private subnet may not reach; then the
// answers are not worth a longer wait.
const policyTimeout = 3 * time.Second

// policyAnswers are what the role's policies say.
type policyAnswers struct {
	denied  map[string]string // action to the decision in words
	unsure  map[string]string // action to the condition keys that the answer would depend on
	allowed map[string]bool
}

// question is one call of SimulatePrincipalPolicy: permissions of one scope on one kind of resource.
type question struct {
	actions   []string
	resources []string
	context   map[string]string
}

// account takes the partition and the account from the ARN of the instance profile.
func (f *facts) account() (partition, account string, known bool) {
	parts := strings.Split(f.profile, ":")
	if len(parts) < 6 {
		return "", "", false
	}
	return parts[1], parts[4], true
}

// policyQuestions makes the questions for the role from the table.
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
		if p.scope == tagsNew { // the condition names the service
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

// context is what the condition of the permission's statement looks at.
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

// exampleARNs are resources such as a row of the table means. They need not exist: names are like those that the cloud
// controller gives.
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

// askPolicies asks all questions: the first alone, since the others need not be asked where it is refused. Most roles have
// no path; only where IAM does not know the role without one, or may not be asked about it, is the path looked up.
func (g *gatherer) askPolicies(ctx context.Context) (*policyAnswers, error) {
	partition, account, known := g.facts.account()
	role := g.facts.credentials.Role
	if !known || role == "" {
		return nil, notAsked("the account and the role are not known")
	}
	roleARN := fmt.Sprintf("arn:%s:iam::%s:role/%s", partition, account, role)
	questions := g.facts.policyQuestions(roleARN)
	first, err := g.askPolicy(ctx, roleARN, questions[0])
	if isNoRole(err) || classify(err) == classDenied {
		if withPath := g.roleARN(ctx, role); withPath != "" && withPath != roleARN {
			roleARN = withPath
			questions = g.facts.policyQuestions(roleARN)
			first, err = g.askPolicy(ctx, roleARN, questions[0])
		}
	}
	if err != nil {
		return nil, err
	}
	answers := &policyAnswers{denied: map[string]string{}, unsure: map[string]string{}, allowed: map[string]bool{}}
	answers.add(questions[0].actions, first)
	var mu sync.Mutex
	ask := func(q question) error {
		results, err := g.askPolicy(ctx, roleARN, q)
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

// isNoRole tells whether IAM knows no role of the name asked about.
func isNoRole(err error) bool {
	var apiError smithy.APIError
	return errors.As(err, &apiError) && apiError.ErrorCode() == "NoSuchEntity"
}

// roleARN looks up the ARN of a role by its name; "" if that cannot be done.
func (g *gatherer) roleARN(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	out, err := g.api.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: awssdk.String(name)})
	if err != nil || out.Role == nil {
		return ""
	}
	return awssdk.ToString(out.Role.Arn)
}

func (g *gatherer) askPolicy(ctx context.Context, roleARN string, q question) ([]types.EvaluationResult, error) {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	input := &iam.SimulatePrincipalPolicyInput{
		PolicySourceArn: awssdk.String(roleARN), ActionNames: q.actions, ResourceArns: q.resources, MaxItems: awssdk.Int32(1000),
	}
	for _, key := range slices.Sorted(maps.Keys(q.context)) {
		kind := types.ContextKeyTypeEnumString
		if key == "aws:TagKeys" {
			kind = types.ContextKeyTypeEnumStringList
		}
		input.ContextEntries = append(input.ContextEntries, types.ContextEntry{
			ContextKeyName: awssdk.String(key), ContextKeyType: kind, ContextKeyValues: []string{q.context[key]}})
	}
	var results []types.EvaluationResult
	for {
		out, err := g.api.iam.SimulatePrincipalPolicy(ctx, input)
		if err != nil {
			return nil, err
		}
		results = append(results, out.EvaluationResults...)
		if !out.IsTruncated || awssdk.ToString(out.Marker) == "" {
			return results, nil
		}
		input.Marker = out.Marker
	}
}

// add takes in the results of one question. An action is allowed when it is so on one of the resources, for not every
// action of a row knows every kind of resource in it. What depends on conditions that the question did not answer for
// is not held against the role.
func (a *policyAnswers) add(actions []string, results []types.EvaluationResult) {
	for _, action := range actions {
		decision, missing, allowed := "", []string{}, false
		for _, r := range results {
			if !strings.EqualFold(awssdk.ToString(r.EvalActionName), action) {
				continue
			}
			allowed = allowed || r.EvalDecision == types.PolicyEvaluationDecisionTypeAllowed
			missing = append(missing, r.MissingContextValues...)
			decision = string(r.EvalDecision)
		}
		switch {
		case allowed:
			a.allowed[action] = true
		case decision == "":
			a.unsure[action] = "IAM did not say"
		case len(missing) > 0:
			slices.Sort(missing)
			a.unsure[action] = "its condition looks at " + strings.Join(slices.Compact(missing), ", ")
		case decision == string(types.PolicyEvaluationDecisionTypeExplicitDeny):
			a.denied[action] = "a policy denies it"
		default:
			a.denied[action] = "no policy of the role allows it in this form"
		}
	}
}

// whyNoPolicies says why the role's policies are not known.
func (f *facts) whyNoPolicies() string {
	switch {
	case f.policiesErr == nil && f.policies != nil:
		return ""
	case f.metadataErr != nil:
		return "instance metadata does not answer"
	case isNotAsked(f.policiesErr):
		return f.policiesErr.Error()
	case f.policiesErr == nil:
		return "IAM was not asked"
	case isNoRole(f.policiesErr):
		return fmt.Sprintf("these permissions cannot be tried without using them, and IAM knows no role %s without a path; allow the role %s on its own ARN (the generated policy does)", f.credentials.Role, findRoleAction)
	case classify(f.policiesErr) == classDenied:
		return fmt.Sprintf("these permissions cannot be tried without using them, and the role may not ask IAM about itself; allow it %s on its own ARN (the generated policy does)", simulateAction)
	case errors.Is(f.policiesErr, context.DeadlineExceeded), classify(f.policiesErr) == classUnreachable:
		return "these permissions cannot be tried without using them, and IAM does not answer from here, as is usual in a private subnet: " + describe(f.policiesErr)
	}
	return "these permissions cannot be tried without using them, and IAM did not say: " + describe(f.policiesErr)
}

// tried are the actions of which a call has shown whether they are allowed.
func (f *facts) tried() map[string]bool {
	tried := map[string]bool{}
	for _, a := range f.answers() {
		if class := classify(a.err); class == classNone || class == classDenied {
			tried[a.action] = true
		}
	}
	for _, p := range f.probes {
		if class := classify(p.err); class == classNone || class == classDenied {
			for _, action := range p.covers {
				tried[action] = true
			}
		}
	}
	return tried
}

// byPolicy judges those permissions of the table that are meant by what the role's policies say.
func (f *facts) byPolicy(meant func(permission) bool) preflight.Outcome {
	var findings []preflight.Finding
	var unsure []string
	tried, seen, allowed := f.tried(), map[string]bool{}, 0
	for _, p := range permissions {
		if !slices.Contains(p.roles, f.request.Role) || tried[p.action] || seen[p.action] || !meant(p) {
			continue
		}
		seen[p.action] = true
		switch {
		case f.policies.denied[p.action] != "":
			findings = join(findings, preflight.Finding{
				Resource: p.action, Wanted: "allowed to role " + f.credentials.Role + p.inWords(f.tagKey()), Found: f.policies.denied[p.action],
				Why: p.why, Advisory: p.atTimes, Eventual: true, Mend: f.policyMend(),
			})
		case f.policies.unsure[p.action] != "":
			unsure = append(unsure, p.action+" ("+f.policies.unsure[p.action]+")")
		case f.policies.allowed[p.action]:
			allowed++
		}
	}
	switch {
	case len(findings) > 0:
		return preflight.Outcome{Findings: findings}
	case len(unsure) > 0:
		return skipped("the policies' conditions do not let IAM foretell %s", strings.Join(unsure, "; "))
	}
	return passed("%d actions, by the role's policies", allowed)
}

// join puts a finding into one that differs in nothing but the resource, or adds it.
func join(findings []preflight.Finding, f preflight.Finding) []preflight.Finding {
	for i := range findings {
		if other := &findings[i]; other.Wanted == f.Wanted && other.Found == f.Found && other.Why == f.Why && other.Advisory == f.Advisory {
			other.Resource += ", " + f.Resource
			return findings
		}
	}
	return append(findings, f)
}

// inWords is the permission's condition for people.
func (p permission) inWords(tagKey string) string {
	switch p.scope {
	case creates, tagsNew:
		return ", for what is created with the tag " + tagKey
	case changes:
		return ", on what carries the tag " + tagKey
	}
	return ""
}

func isLoadBalancing(p permission) bool { return strings.HasPrefix(p.action, "elasticloadbalancing:") }

func checkLoadBalancerWrites(f *facts) preflight.Outcome {
	if why := f.whyNoPolicies(); why != "" {
		return skipped("%s", why)
	}
	return f.byPolicy(isLoadBalancing)
}

func checkOtherPermissions(f *facts) preflight.Outcome {
	if !f.isControl() && !f.request.Thorough {
		return skipped("on workers the errand cloud-preflight looks at it, so that a deploy of many does not ask IAM for each")
	}
	tried := f.probedAs("other-permissions")
	if len(tried.Findings) > 0 {
		return tried
	}
	if why := f.whyNoPolicies(); why != "" {
		return skipped("%s", why)
	}
	outcome := f.byPolicy(func(p permission) bool {
		return !isLoadBalancing(p) && p.scope != itself && (!p.routes || f.request.ConfigureCloudRoutes)
	})
	if outcome.Note != "" && f.policies.denied[findRoleAction] != "" {
		outcome.Note += "; not " + findRoleAction + ", which only a role whose name has a path needs"
	}
	return outcome
}
