package gather

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
)

// policyQuestions derives the questions about a role from the table of permissions.
func policyQuestions(f *facts.Facts, asked facts.CallingRole) []iampolicy.Question {
	var questions []iampolicy.Question
	index := map[string]int{}
	var rows []iampolicy.Permission
	for _, p := range iampolicy.Permissions {
		rows = append(rows, p.PerKind()...)
	}
	for _, p := range rows {
		own, assumed := f.PolicyNeeds().Includes(p)
		if asked.Assumed && !assumed || !asked.Assumed && !own || !p.Asked() ||
			p.IsPublicRegistry() && asked.Partition != "aws" {
			continue
		}
		service, _, _ := strings.Cut(p.Action, ":")
		region := arn.RegionOf(service, f.Region())
		key := p.QuestionKey() + region
		at, ok := index[key]
		if !ok {
			at = len(questions)
			index[key] = at
			questions = append(questions, iampolicy.Question{Context: p.Context(service, f.TagKey(), region)})
			for _, r := range p.Resources {
				questions[at].Resources = append(
					questions[at].Resources,
					exampleARNs(f, asked.Partition, asked.Account, r)...)
			}
			switch p.Scope {
			case iampolicy.DeletesRetagged:
				questions[at].Case = iampolicy.Retagged
			case iampolicy.Itself:
				questions[at].Resources = []string{asked.ARN()}
			case iampolicy.OtherRole:
				questions[at].Resources = []string{f.Conf.RoleARN}
			case iampolicy.Publishes:
				for _, object := range f.Published(asked.Assumed) {
					questions[at].Resources = append(questions[at].Resources, "arn:"+asked.Partition+":s3:::"+object)
				}
			case iampolicy.WritesRoutes:
				maps.Copy(questions[at].Context, tableContext(f))
			case iampolicy.UsesKeys:
				questions[at].Resources = f.KeyARNs()
				questions[at].Context["kms:ViaService"] = "ec2." + f.Region() + "." + arn.PartitionOf(f.Region()).Domain
				questions[at].Context["kms:GrantIsForAWSResource"] = "true"
			}
		}
		questions[at].Actions = append(questions[at].Actions, p.Action)
	}
	return questions
}

// tableContext returns the condition keys of the route table that pod routes are written to: its real tags, which
// decide whether a policy allows that.
func tableContext(f *facts.Facts) map[string]string {
	t := clustertags.Tags{f.TagKey(): "shared"} // until it is known
	if table := f.ClusterTable(); table != nil {
		t = table.Tags
	}
	context := map[string]string{}
	for key, value := range t {
		context["aws:ResourceTag/"+key], context["ec2:ResourceTag/"+key] = value, value
	}
	return context
}

// exampleARNs returns resources that match a row of the table. They need not exist: their names have the form of those
// that the cloud controller creates.
func exampleARNs(f *facts.Facts, partition, account, pattern string) []string {
	const name = "a0123456789abcdef0123456789abcdef"
	table := "rtb-0123456789abcdef0"
	if t := f.ClusterTable(); t != nil {
		table = t.ID
	}
	examples := map[string][]string{
		"security-group": {
			"sg-0123456789abcdef0",
		},
		"vpc":         {cmp.Or(f.VPCID(), "vpc-0123456789abcdef0")},
		"route-table": {table},
		"instance": {
			cmp.Or(f.InstanceID(), "i-0123456789abcdef0"),
		},
		"volume":       {"vol-0123456789abcdef0"},
		"snapshot":     {"snap-0123456789abcdef0"},
		"loadbalancer": {name, "net/" + name + "/0123456789abcdef"},
		"targetgroup": {
			"k8s-default-web-0123456789/0123456789abcdef",
		},
		"listener":      {"net/" + name + "/0123456789abcdef/0123456789abcdef"},
		"listener-rule": {"app/" + name + "/0123456789abcdef/0123456789abcdef/0123456789abcdef"},
	}
	if f.Issuer != nil {
		examples["oidc-provider"] = []string{strings.TrimPrefix(f.Issuer.Issuer, "https://")}
	}
	parts := strings.SplitN(pattern, ":", 4) // service, region, account, resource
	if parts[1] == "*" {
		parts[1] = f.Region()
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
func (g *Gatherer) askPolicies(ctx context.Context) (*iampolicy.Answers, error) {
	asked, known := g.Facts.MachineIdentity()
	if g.Facts.AssumesRole() {
		asked, known = g.Facts.AssumedIdentity(), true
	}
	if !known {
		return nil, awserr.NotAsked("the account and the role are unknown")
	}
	answers := &iampolicy.Answers{Denied: map[string]string{}, Unknown: map[string]string{}, Allowed: map[string]bool{}}
	if err := g.askAbout(ctx, asked, answers); err != nil {
		return nil, err
	}
	return answers, nil
}

// askAbout asks all questions about a role: the first one alone, because the others are pointless if IAM rejects it.
// Most roles have no path; only if IAM does not find the role without one, or denies the question, the path is looked
// up.
func (g *Gatherer) askAbout(ctx context.Context, asked facts.CallingRole, answers *iampolicy.Answers) error {
	questions := policyQuestions(g.Facts, asked)
	g.Facts.Questions = questions
	first, err := g.api.SimulatePolicy(ctx, asked.ARN(), questions[0])
	if asked.Path == "" && (awserr.IsNoRole(err) || awserr.Classify(err) == awserr.Denied) {
		withPath := g.api.RoleARN(ctx, asked.Role)
		if _, path, ok := strings.Cut(strings.TrimSuffix(withPath, asked.Role), ":role"); ok && path != "/" {
			asked.Path = path
			questions = policyQuestions(g.Facts, asked)
			first, err = g.api.SimulatePolicy(ctx, asked.ARN(), questions[0])
		}
	}
	if err != nil {
		return err
	}
	answers.OwnKeys = append(conditionKeys(questions), iampolicy.ConditionKeys(g.Facts.Cluster())...)
	answers.Add(questions[0], first)
	var mu sync.Mutex
	ask := func(q iampolicy.Question) error {
		results, err := g.api.SimulatePolicy(ctx, asked.ARN(), q)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		answers.Add(q, results)
		return nil
	}
	tasks := make([]func() error, 0, len(questions))
	for _, q := range questions[1:] {
		tasks = append(tasks, func() error { return ask(q) })
	}
	return awsclient.InParallel(tasks...)
}

// conditionKeys are all condition keys that questions have values for.
func conditionKeys(questions []iampolicy.Question) []string {
	var keys []string
	for _, q := range questions {
		keys = slices.AppendSeq(keys, maps.Keys(q.Context))
	}
	return keys
}
