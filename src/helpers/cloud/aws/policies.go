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

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// The load balancer APIs do not support DryRun, and testing every permission would take too many calls for a
// deployment. But IAM can be asked what a role's policies allow (SimulatePrincipalPolicy), which changes nothing. The
// questions are derived from the table of permissions: each row's actions, on a resource of the row's kind, with the
// tags that the row is restricted to.

// simulateAction is the permission to ask IAM. findRoleAction is the one to find the ARN of the role, because instance
// metadata returns the role's name without its path.
const (
	simulateAction = "iam:SimulatePrincipalPolicy"
	findRoleAction = "iam:GetRole"
	assumeAction   = "sts:AssumeRole"
)

// deniedByPolicy is the decision about an action that a policy denies explicitly.
const deniedByPolicy = "a policy denies it"

// policyAnswers are what the role's policies allow.
type policyAnswers struct {
	denied  map[string]string // action to the decision in words
	unknown map[string]string // action to the reason
	allowed map[string]bool

	// ownKeys are the condition keys of the generated policy. Each question has values for those that matter to its
	// actions.
	ownKeys []string
}

// callingRole is a role that makes calls from this machine: the instance profile's, or the one that the cloud
// controller assumes.
type callingRole struct {
	api                *api
	partition, account string
	role               string // name
	path               string // if it is known
	assumed            bool
}

func (i callingRole) arn() string {
	return fmt.Sprintf("arn:%s:iam::%s:role%s%s", i.partition, i.account, cmp.Or(i.path, "/"), i.role)
}

// machineIdentity is the role of the instance profile; known is false if its account is not.
func (f *facts) machineIdentity() (i callingRole, known bool) {
	parts := strings.Split(f.profile, ":")
	if len(parts) < 6 || f.credentials.Role == "" {
		return callingRole{}, false
	}
	return callingRole{partition: parts[1], account: parts[4], role: f.credentials.Role}, true
}

// assumedIdentity is the role in the configuration's RoleARN.
func (f *facts) assumedIdentity() callingRole {
	parts := strings.Split(f.conf.RoleARN, ":")
	if len(parts) < 6 {
		return callingRole{assumed: true, role: f.conf.RoleName()}
	}
	path := strings.TrimSuffix(strings.TrimPrefix(parts[5], "role"), f.conf.RoleName())
	return callingRole{partition: parts[1], account: parts[4], role: f.conf.RoleName(), path: path, assumed: true}
}

// assumesRole reports whether the cloud controller on this machine makes its calls as another role.
func (f *facts) assumesRole() bool { return f.isControl() && f.conf.RoleARN != "" }

// needs is what the machine's permissions depend on.
func (f *facts) needs() policyNeeds {
	return policyNeeds{
		role:    f.request.Role,
		routes:  f.request.ConfigureCloudRoutes,
		storage: f.storage(),
		keys:    f.keyARNs(),
		conf:    *f.conf,
	}
}

// policyQuestions derives the questions about a role from the table of permissions.
func (f *facts) policyQuestions(asked callingRole) []question {
	var questions []question
	index := map[string]int{}
	for _, p := range permissions {
		own, assumed := f.needs().includes(p)
		if asked.assumed && !assumed || !asked.assumed && !own || p.action == simulateAction ||
			p.isPublicRegistry() && asked.partition != "aws" {
			continue
		}
		service, _, _ := strings.Cut(p.action, ":")
		key := fmt.Sprint(p.scope, p.resources, p.storage)
		if p.scope == tagsNew { // the condition contains the service
			key += service
		}
		key += f.regionOf(service, asked.partition)
		at, ok := index[key]
		if !ok {
			at = len(questions)
			index[key] = at
			questions = append(
				questions, question{context: p.context(service, f.tagKey(), f.regionOf(service, asked.partition))},
			)
			for _, r := range p.resources {
				questions[at].resources = append(
					questions[at].resources,
					f.exampleARNs(asked.partition, asked.account, r)...)
			}
			switch p.scope {
			case itself:
				questions[at].resources = []string{asked.arn()}
			case otherRole:
				questions[at].resources = []string{f.conf.RoleARN}
			case writesRoutes:
				maps.Copy(questions[at].context, f.tableContext())
			case usesKeys:
				questions[at].resources = f.keyARNs()
				questions[at].context["kms:ViaService"] = "ec2." + f.region() + "." + arn.PartitionOf(f.region()).Domain
				questions[at].context["kms:GrantIsForAWSResource"] = "true"
			}
		}
		questions[at].actions = append(questions[at].actions, p.action)
	}
	return questions
}

// regionKey is the condition key with which policies of an organization often limit the regions.
const regionKey = "aws:RequestedRegion"

// globalRegions are the regions that requests to services with one endpoint in a partition are for, such as those to
// IAM.
var globalRegions = map[string]string{"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}

// regionOf is the region that requests to a service are for.
func (f *facts) regionOf(service, partition string) string {
	if service == "iam" {
		return globalRegions[partition]
	}
	return f.region()
}

// context returns the values of the condition keys in the permission's statement, and of the one for the region.
func (p permission) context(service, tagKey, region string) map[string]string {
	context := map[string]string{regionKey: region}
	resourceTag := func(value string) {
		context["aws:ResourceTag/"+tagKey], context[service+":ResourceTag/"+tagKey] = value, value
	}
	switch p.scope {
	case creates:
		context["aws:RequestTag/"+tagKey], context["aws:TagKeys"] = "owned", tagKey
	case changes, changesOwn:
		resourceTag("owned")
	case sourceDestOff:
		resourceTag("owned")
		context["ec2:Attribute"], context["ec2:Attribute/SourceDestCheck"] = "SourceDestCheck", "false"
	case tagsNew:
		context["aws:RequestTag/"+tagKey], context["aws:TagKeys"] = "owned", tagKey
		context[service+":CreateAction"] = p.createActions()[0]
	case onNodes:
		resourceTag("shared")
	case serviceLinked:
		context["iam:AWSServiceName"] = "elasticloadbalancing.amazonaws.com"
	case publicRegistry:
		context["sts:AWSServiceName"] = "ecr-public.amazonaws.com"
	}
	return context
}

// tableContext returns the condition keys of the route table that pod routes are written to: its real tags, which
// decide whether a policy allows that.
func (f *facts) tableContext() map[string]string {
	t := clustertags.Tags{f.tagKey(): "shared"} // until it is known
	if table := f.clusterTable(); table != nil {
		t = table.Tags
	}
	context := map[string]string{}
	for key, value := range t {
		context["aws:ResourceTag/"+key], context["ec2:ResourceTag/"+key] = value, value
	}
	return context
}

// clusterTable is the route table that the cloud controller writes pod routes to, or nil if it cannot choose one.
func (f *facts) clusterTable() *routeTable {
	if len(f.routeTables) != 1 {
		return nil
	}
	return &f.routeTables[0]
}

// exampleARNs returns resources that match a row of the table. They need not exist: their names have the form of those
// that the cloud controller creates.
func (f *facts) exampleARNs(partition, account, pattern string) []string {
	const name = "a0123456789abcdef0123456789abcdef"
	table := "rtb-0123456789abcdef0"
	if t := f.clusterTable(); t != nil {
		table = t.ID
	}
	examples := map[string][]string{
		"security-group": {
			"sg-0123456789abcdef0",
		},
		"vpc":         {cmp.Or(f.vpcID(), "vpc-0123456789abcdef0")},
		"route-table": {table},
		"instance": {
			cmp.Or(f.instanceID(), "i-0123456789abcdef0"),
		},
		"volume":       {"vol-0123456789abcdef0"},
		"snapshot":     {"snap-0123456789abcdef0"},
		"loadbalancer": {name, "net/" + name + "/0123456789abcdef"},
		"targetgroup": {
			"k8s-default-web-0123456789/0123456789abcdef",
		},
		"listener": {"net/" + name + "/0123456789abcdef/0123456789abcdef"},
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

// askPolicies asks IAM about the permissions of the instance profile's role, or of the one that the cloud controller
// assumes.
func (g *gatherer) askPolicies(ctx context.Context) (*policyAnswers, error) {
	asked, known := g.facts.machineIdentity()
	if g.facts.assumesRole() {
		asked, known = g.facts.assumedIdentity(), true
	}
	if !known {
		return nil, awserr.NotAsked("the account and the role are unknown")
	}
	asked.api = g.api
	answers := &policyAnswers{denied: map[string]string{}, unknown: map[string]string{}, allowed: map[string]bool{}}
	if err := g.askAbout(ctx, asked, answers); err != nil {
		return nil, err
	}
	return answers, nil
}

// askAbout asks all questions about a role: the first one alone, because the others are pointless if IAM rejects it.
// Most roles have no path; only if IAM does not find the role without one, or denies the question, the path is looked
// up.
func (g *gatherer) askAbout(ctx context.Context, asked callingRole, answers *policyAnswers) error {
	questions := g.facts.policyQuestions(asked)
	first, err := asked.api.simulatePolicy(ctx, asked.arn(), questions[0])
	if asked.path == "" && (awserr.IsNoRole(err) || awserr.Classify(err) == awserr.Denied) {
		withPath := asked.api.roleARN(ctx, asked.role)
		if _, path, ok := strings.Cut(strings.TrimSuffix(withPath, asked.role), ":role"); ok && path != "/" {
			asked.path = path
			questions = g.facts.policyQuestions(asked)
			first, err = asked.api.simulatePolicy(ctx, asked.arn(), questions[0])
		}
	}
	if err != nil {
		return err
	}
	answers.ownKeys = conditionKeys(questions)
	answers.add(questions[0].actions, first)
	var mu sync.Mutex
	ask := func(q question) error {
		results, err := asked.api.simulatePolicy(ctx, asked.arn(), q)
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
	return awsclient.InParallel(tasks...)
}

// conditionKeys are all condition keys that questions have values for.
func conditionKeys(questions []question) []string {
	var keys []string
	for _, q := range questions {
		keys = slices.AppendSeq(keys, maps.Keys(q.context))
	}
	return keys
}

// add adds the results of one question. An action must be allowed on every kind of resource that it is called for. IAM
// lists missing condition keys of all statements: those of the generated policy that the question lacks belong to other
// actions. Only with other keys the result remains unknown.
func (a *policyAnswers) add(actions []string, results []evaluation) {
	for _, action := range actions {
		answered, denied, explicit := false, false, false
		var missing []string
		for _, r := range results {
			if !strings.EqualFold(r.Action, action) || !concerns(action, r.Resource) {
				continue
			}
			answered, explicit = true, explicit || r.Explicit
			if r.Allowed {
				continue
			}
			denied = true
			for _, key := range r.Missing {
				if !slices.ContainsFunc(a.ownKeys, func(own string) bool { return strings.EqualFold(own, key) }) {
					missing = append(missing, key)
				}
			}
		}
		switch {
		case !answered:
			a.unknown[action] = "IAM did not answer"
		case !denied:
			a.allowed[action] = true
		case len(missing) > 0: // also of statements that deny
			slices.Sort(missing)
			a.unknown[action] = "unknown, because a condition depends on " + strings.Join(slices.Compact(missing), ", ")
		case explicit:
			a.denied[action] = deniedByPolicy
		default:
			a.denied[action] = "no policy of the role allows it in this form"
		}
	}
}

// callsFor are the kinds of resources of actions that are asked about together with actions for others.
var callsFor = map[string][]string{
	"elasticloadbalancing:CreateLoadBalancer":          {"loadbalancer"},
	"elasticloadbalancing:CreateTargetGroup":           {"targetgroup"},
	"elasticloadbalancing:DeleteListener":              {"listener"},
	"elasticloadbalancing:ModifyListener":              {"listener"},
	"elasticloadbalancing:DeleteTargetGroup":           {"targetgroup"},
	"elasticloadbalancing:DeregisterTargets":           {"targetgroup"},
	"elasticloadbalancing:ModifyTargetGroup":           {"targetgroup"},
	"elasticloadbalancing:ModifyTargetGroupAttributes": {"targetgroup"},
	"elasticloadbalancing:RegisterTargets":             {"targetgroup"},
	"ec2:DeleteSnapshot":                               {"snapshot"},
	"ec2:DeleteVolume":                                 {"volume"},
}

// concerns reports whether an action is called for a resource of this kind. A result without a resource is for all.
func concerns(action, resource string) bool {
	kinds := callsFor[action]
	parts := strings.SplitN(resource, ":", 6)
	if len(kinds) == 0 || len(parts) < 6 {
		return true
	}
	kind, _, _ := strings.Cut(parts[5], "/")
	return slices.Contains(kinds, kind)
}

// withoutPolicies is the outcome of a check for which IAM should have answered questions. done is false if it has.
func (f *facts) withoutPolicies(selected func(permission) bool) (outcome preflight.Outcome, done bool) {
	switch {
	case f.policiesErr == nil && f.policies != nil:
		return preflight.Outcome{}, false
	case f.metadataErr != nil:
		return skipped(noMetadata), true
	case awserr.IsNotAsked(f.policiesErr):
		return skipped("%v", f.policiesErr), true
	case f.policiesErr == nil:
		return skipped("IAM was not asked"), true
	}
	return found(preflight.Finding{
		Resource: "role " + f.roleName(),
		Wanted:   "an answer from IAM about the role's policies",
		Found:    f.whyNoPolicies(),
		Why: "It is unknown whether the role has these permissions, which cannot be tested without using them: " + strings.Join(
			f.untested(selected),
			", ",
		) + ".",
		Fix: append(f.fixPolicy(), byHand("or make sure that the role has these permissions, and turn the check "+
			"off")),
		Advisory: true,
	}), true
}

// whyNoPolicies is the reason why it is unknown what the role's policies allow.
func (f *facts) whyNoPolicies() string {
	switch {
	case awserr.IsNoRole(f.policiesErr):
		return fmt.Sprintf(
			"IAM finds no role %s without a path; the role must be allowed %s on its own ARN (the generated policy "+
				"does)",
			f.roleName(), findRoleAction,
		)
	case awserr.Classify(f.policiesErr) == awserr.Denied:
		return fmt.Sprintf(
			"the role cannot ask IAM about itself; it must be allowed %s on its own ARN (the generated policy does)",
			simulateAction,
		)
	case errors.Is(f.policiesErr, context.DeadlineExceeded), awserr.Classify(f.policiesErr) == awserr.Unreachable:
		return "IAM is not reachable from here, as is usual in a private subnet: " + awserr.Describe(f.policiesErr)
	}
	return awserr.Describe(f.policiesErr)
}

// untested are the selected actions for which no call has shown whether they are allowed.
func (f *facts) untested(selected func(permission) bool) []string {
	var actions []string
	tested := f.tested()
	for _, p := range permissions {
		own, assumed := f.needs().includes(p)
		asked := own && !f.assumesRole() ||
			assumed // of the role of the instance profile only AssumeRole matters then, which is tested
		if asked && !(tested[p.action] && !p.onlyInPart()) && selected(p) &&
			!(p.isPublicRegistry() && arn.PartitionOf(f.region()).Name != "aws") {
			actions = append(actions, p.action)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// onlyInPart reports whether calls test an action of a row for another kind of resource than the row's: no call
// restores a volume from a snapshot, and tags are tested on security groups.
func (p permission) onlyInPart() bool {
	return p.storage && (p.action == "ec2:CreateVolume" && p.scope == changes || p.action == "ec2:CreateTags")
}

// tested are the actions for which a call has shown whether they are allowed.
func (f *facts) tested() map[string]bool {
	tested := map[string]bool{}
	for _, a := range f.answers() {
		if class := awserr.Classify(a.err); class == awserr.None || class == awserr.Denied {
			tested[a.action] = true
		}
	}
	for _, p := range f.probes {
		if class := awserr.Classify(p.err); class == awserr.None || class == awserr.Denied {
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
			Resource: action,
			Wanted:   "allowed for role " + f.roleName() + p.inWords(f.tagKey()),
			Found:    f.policies.denied[action],
			Why:      p.why,
			Advisory: p.rare,
			Eventual: true,
			Fix:      f.fixPolicy(),
		}
		switch {
		case f.policies.denied[action] != "":
			if f.policies.denied[action] == deniedByPolicy {
				finding.Fix = []preflight.Fix{f.fixDeny()}
			}
			findings = join(findings, finding)
		case f.policies.allowed[action] && f.policies.unknown[action] == "":
			allowed++
		default:
			finding.Found, finding.Advisory, finding.Eventual = cmp.Or(
				f.policies.unknown[action], "IAM was not asked",
			), true, false
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
	at := slices.IndexFunc(
		permissions, func(p permission) bool { return p.action == action && slices.Contains(p.roles, role) },
	)
	return permissions[at]
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
		return skipped(
			"on workers only the errand cloud-preflight checks it, so that a deployment of many workers does not ask " +
				"IAM for each",
		)
	}
	tested := f.testedBy("other-permissions")
	if len(tested.Findings) > 0 {
		return tested
	}
	selected := func(p permission) bool {
		return !isLoadBalancing(p) && !p.storage && p.scope != itself
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
