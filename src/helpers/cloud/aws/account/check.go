package account

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awsapi"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// Free addresses that a subnet needs: AWS requires 8 for a load balancer; nodes need one each, and one for a VM that
// replaces another.
const (
	balancerAddresses = 8
	nodeAddresses     = 4
)

// Check reports what is missing in the account. It changes nothing and needs no instance; IAM is asked what the roles
// may do.
func (a *Account) Check(ctx context.Context) (*preflight.Report, error) {
	started := a.clock.Now()
	var steps []step
	checks := []struct {
		id, title string
		run       func(context.Context) (preflight.Outcome, error)
	}{
		{
			"account-prepared", "roles, policies, security group, rules and tags exist",
			func(ctx context.Context) (preflight.Outcome, error) { return a.checkSteps(ctx, steps) },
		},
		{"account-role-permissions", "the roles may do what their policies allow", a.checkRoles},
		{"account-pass-role", "the Director may pass the roles to VMs", a.checkPassRole},
		{"account-subnets", "subnets are in their zones and have free addresses", a.checkSubnets},
		{"account-egress", "nodes may connect to AWS", a.checkEgress},
		{"account-ports", "nodes reach each other at the ports that they need", a.checkPorts},
		{"account-routes", "nodes and load balancers have a way to the internet", a.checkRoutes},
		{"account-network-acls", "network ACLs let nodes and load balancers communicate", a.checkACLs},
	}
	known := make([]preflight.Check, len(checks))
	for i, c := range checks {
		known[i] = preflight.Check{ID: c.id, Title: c.title, Severity: preflight.Fail}
	}
	if err := preflight.ValidateOverrides(a.Checks, known); err != nil {
		return nil, err
	}
	steps, blocked := a.steps(ctx)
	if _, ofCall := errors.AsType[*smithy.OperationError](blocked); blocked != nil &&
		(!ofCall || awserr.Classify(blocked) == awserr.UnknownID) { // a mistake in the file
		return nil, blocked
	}
	a.refusals = refusalsOf(ctx, steps)
	config := preflight.Config{
		Provider: "aws", Cluster: a.Cluster, Role: "account", Mode: preflight.ModeEnforce, Checks: a.Checks,
	}
	var results []preflight.Result
	for i, c := range checks {
		if a.Checks[c.id] == preflight.Off {
			continue
		}
		outcome, err := preflight.Outcome{Skip: "the account could not be read"}, error(nil)
		switch {
		case blocked == nil:
			outcome, err = c.run(ctx)
		case len(results) == 0: // the others would say the same
			outcome, err = preflight.Outcome{}, blocked
		}
		if err != nil {
			outcome.Findings = append(outcome.Findings, a.unseenFinding(c.title, err))
		}
		if result, ok := config.Grade(known[i], outcome); ok {
			results = append(results, result)
		}
	}
	report := preflight.NewReport(config, results, started.UTC(), a.clock.Since(started))
	if report.Result == preflight.RunPassed && (a.unseen || report.Count(preflight.Skipped) > 0) {
		report.Result = preflight.RunError
	}
	return report, nil
}

// unseenFinding is about a part of a check that could not be seen. It keeps the run from passing.
func (a *Account) unseenFinding(what string, err error) preflight.Finding {
	a.unseen = true
	fix := "Repeat the check."
	if awserr.Classify(err) == awserr.Denied {
		fix = "Allow your own user or role the action that is denied."
	}
	return preflight.Finding{
		Resource: what, Wanted: "it can be checked", Found: err.Error(), Advisory: true,
		Why: "it is unknown whether it is as it must be", Fix: []preflight.Fix{{Text: fix}},
	}
}

// command is one of the commands of account, with the options of this one.
func (a *Account) command(name string) []string {
	return append([]string{"cloud-preflight", "account", name, "--vars", a.File, "--cluster", a.Cluster}, a.Options...)
}

// deniedFix is the fix if IAM denies a principal actions: what a policy denies explicitly no other one can allow.
func (a *Account) deniedFix(principal string, answers *iampolicy.Answers) []preflight.Fix {
	kind, name, _ := strings.Cut(principal, "/")
	look := fixes.DenyOf(a.facts(), kind, name)
	for _, decision := range answers.Denied {
		if decision != iampolicy.DeniedByPolicy {
			look.Text = "or, if the policy is there: its permissions boundary does not allow it. Otherwise " + look.Text
			return append(a.prepareFix(), look)
		}
	}
	return []preflight.Fix{look}
}

// prepareFix runs the command that creates everything, after what stops it.
func (a *Account) prepareFix() []preflight.Fix {
	words := a.command("prepare")
	text := "Prepare the account:"
	var first []string
	for _, r := range a.refusals {
		var other *adoptable
		if errors.As(r.err, &other) {
			words = append(words, "--adopt", other.option)
			text = "Prepare the account; with --adopt it uses what exists and it did not create:"
			continue
		}
		first = append(first, r.what+": "+r.err.Error())
	}
	if len(first) > 0 {
		text = "First correct what stops prepare. " + strings.Join(first, ". ") + ". Then prepare the account:"
	}
	return []preflight.Fix{{Text: text, Commands: []string{fixes.Line(words...)}}}
}

func (a *Account) checkSteps(ctx context.Context, steps []step) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	for _, s := range steps {
		exists, err := s.exists(ctx)
		if err != nil {
			outcome.Findings = append(outcome.Findings, a.unseenFinding(s.what, err))
			continue
		}
		if s.additional != nil {
			if more := s.additional(ctx); more != nil {
				outcome.Findings = append(outcome.Findings, *more)
				continue
			}
		}
		if exists {
			continue
		}
		difference := "it is missing or differs"
		for _, r := range a.refusals {
			if r.what == s.what {
				difference = "it differs, and prepare stops: " + r.err.Error()
			}
		}
		outcome.Findings = append(outcome.Findings, preflight.Finding{
			Resource: s.what, Wanted: "it exists, as docs/aws.md describes it", Found: difference,
			Why: strings.TrimSuffix("the first deploy fails, "+s.optional, ", "), Fix: a.prepareFix(),
			Advisory: s.optional != "",
		})
	}
	outcome.Note = fmt.Sprintf("%d objects", len(steps))
	return outcome, nil
}

// checkRoles asks IAM whether each statement of the generated policies has its effect: another policy of the role, a
// permissions boundary or the organization may deny it.
func (a *Account) checkRoles(ctx context.Context) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	total := 0
	for _, role := range []preflight.Role{preflight.Control, preflight.Worker} {
		findings, actions, err := a.checkRole(ctx, role)
		if err != nil {
			findings = append(findings, a.unseenFinding("permissions of the role "+a.roles()[role], err))
		}
		total += actions
		outcome.Findings = append(outcome.Findings, findings...)
	}
	outcome.Note = fmt.Sprintf("%d actions, according to IAM", total)
	return outcome, nil
}

// checkRole is what IAM does not allow one of the roles, of a number of actions.
func (a *Account) checkRole(
	ctx context.Context, role preflight.Role,
) (findings []preflight.Finding, actions int, err error) {
	policy, err := cloudaws.NewPolicy(a.policyOptions(role))
	if err != nil {
		return nil, 0, err
	}
	why := fmt.Sprintf("%s VMs call these actions", role)
	for _, s := range policy.Statement {
		if s.NeedsAbsentTag() { // IAM's answers without a key of a condition may be wrong; others have the actions
			continue
		}
		answers, err := a.ask(ctx, "role/"+a.roles()[role], s, policy)
		if err != nil {
			return findings, actions, err
		}
		actions += len(s.Action)
		findings = append(findings, unknown(answers, "role "+a.roles()[role], "", why)...)
		if len(answers.Denied) > 0 {
			denied := slices.Sorted(maps.Keys(answers.Denied))
			findings = append(findings, preflight.Finding{
				Resource: "role " + a.roles()[role],
				Wanted:   "IAM allows " + strings.Join(denied, ", "),
				Found:    "denied",
				Why:      why,
				Fix:      a.deniedFix("role/"+a.roles()[role], answers),
			})
		}
	}
	return findings, actions, nil
}

func (a *Account) checkPassRole(ctx context.Context) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	for _, profile := range []string{a.ControlProfile, a.WorkerProfile} {
		to := map[string][]string{"iam:PassedToService": {arn.EC2Principal(a.partition)}}
		s := cloudaws.Statement{
			Action: []string{"iam:PassRole"}, Resource: []string{a.arnOf("role/" + profile)},
			Condition: map[string]map[string][]string{"StringEquals": to},
		}
		answers, err := a.ask(ctx, a.Director, s, cloudaws.Policy{Statement: []cloudaws.Statement{s}})
		if err != nil {
			outcome.Findings = append(outcome.Findings, a.unseenFinding(
				fmt.Sprintf("iam:PassRole of %s on the role %s", a.Director, profile), err,
			))
			continue
		}
		const why = "the CPI creates VMs with this instance profile"
		outcome.Findings = append(outcome.Findings, unknown(answers, a.Director, " on the role "+profile, why)...)
		if len(answers.Denied) > 0 {
			outcome.Findings = append(outcome.Findings, preflight.Finding{
				Resource: a.Director, Wanted: "iam:PassRole on the role " + profile, Found: "denied",
				Why: "the CPI cannot create a VM with this instance profile", Fix: a.deniedFix(a.Director, answers),
			})
		}
	}
	outcome.Note = a.Director
	return outcome, nil
}

// ask asks IAM what a user/NAME or role/NAME may do of a statement of a policy, under the statement's own conditions.
func (a *Account) ask(
	ctx context.Context, principal string, s cloudaws.Statement, policy cloudaws.Policy,
) (*iampolicy.Answers, error) {
	service, _, _ := strings.Cut(s.Action[0], ":")
	input := &iam.SimulatePrincipalPolicyInput{
		PolicySourceArn: aws.String(a.arnOf(principal)),
		ActionNames:     s.Action,
		ResourceArns:    s.Resource,
		ContextEntries: []iamtypes.ContextEntry{{
			ContextKeyName:   aws.String(iampolicy.RegionKey),
			ContextKeyType:   iamtypes.ContextKeyTypeEnumString,
			ContextKeyValues: []string{arn.RegionOf(service, a.ec2.Options().Region)},
		}},
	}
	for operator, keys := range s.Condition {
		if strings.Contains(operator, ":StringNot") { // its values must not be there, and Null says that others are
			continue
		}
		for key, values := range keys {
			kind := iamtypes.ContextKeyTypeEnum(iampolicy.Question{}.TypeOf(key))
			if strings.HasPrefix(operator, "Numeric") {
				kind = iamtypes.ContextKeyTypeEnumNumeric
			}
			input.ContextEntries = append(input.ContextEntries, iamtypes.ContextEntry{
				ContextKeyName:   aws.String(key),
				ContextKeyType:   kind,
				ContextKeyValues: values[:1],
			})
		}
	}
	var evaluations []iampolicy.Evaluation
	pages := iam.NewSimulatePrincipalPolicyPaginator(a.iam, input)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if exists, err := found(err); !exists {
			return nil, fmt.Errorf("%s: %w", principal, orMissing(err))
		}
		for _, result := range page.EvaluationResults {
			evaluations = append(evaluations, awsapi.Evaluations(result)...)
		}
	}
	answers := &iampolicy.Answers{
		Denied: map[string]string{}, Unknown: map[string]string{}, Allowed: map[string]bool{},
		OwnKeys: append(policy.ConditionKeys(), iampolicy.ConditionKeys(a.Cluster)...),
	}
	answers.Add(iampolicy.Question{Actions: s.Action}, evaluations)
	return answers, nil
}

// unknown are warnings about actions of which IAM's simulation does not tell whether they are allowed.
func unknown(answers *iampolicy.Answers, principal, on, why string) []preflight.Finding {
	var findings []preflight.Finding
	for _, action := range slices.Sorted(maps.Keys(answers.Unknown)) {
		reason := answers.Unknown[action]
		i := slices.IndexFunc(findings, func(f preflight.Finding) bool { return f.Found == reason })
		if i >= 0 {
			findings[i].Wanted += ", " + action
			continue
		}
		fix := "nothing, if the conditions of the principal's policies hold for these calls"
		if reason == iampolicy.UnknownByOrganization {
			fix = fixes.OfOrganization
		}
		findings = append(findings, preflight.Finding{
			Resource: principal, Wanted: "IAM allows " + action, Found: reason, Why: why, Advisory: true,
			Fix: []preflight.Fix{{Text: fix}},
		})
	}
	for i := range findings {
		findings[i].Wanted += on
	}
	return findings
}

func orMissing(err error) error {
	if err == nil {
		return fmt.Errorf("does not exist yet")
	}
	return err
}

func (a *Account) checkSubnets(ctx context.Context) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	outcome.Findings = a.checkDNS(ctx)
	for _, s := range a.own {
		minimum := balancerAddresses
		if n := slices.Index(a.nodeSubnets(), s.ID); n >= 0 {
			minimum = nodeAddresses
			if want := a.zones()[n]; want != s.Zone {
				az := fmt.Sprintf("az%d", n+1)
				outcome.Findings = append(outcome.Findings, a.wrongVariable(s.ID, az, s.Zone, want,
					"the CPI refuses a VM in this subnet: can't use multiple availability zones"))
			}
			if want := a.cidrs()[n]; want != s.Network.String() {
				outcome.Findings = append(
					outcome.Findings,
					a.wrongVariable(s.ID, fmt.Sprintf("subnet%d_cidr", n+1), s.Network.String(), want,
						"VMs would get addresses that are not in the subnet"),
				)
			} else {
				outcome.Findings = append(outcome.Findings, a.checkAddresses(n, s.ID, s.Network)...)
			}
		}
		if s.Free < minimum {
			outcome.Findings = append(outcome.Findings, preflight.Finding{
				Resource: s.ID,
				Wanted:   fmt.Sprintf("at least %d free addresses", minimum),
				Found:    fmt.Sprint(s.Free),
				Why:      "VMs or load balancers cannot be created in it",
				Fix:      []preflight.Fix{{Text: "Use a larger subnet, or delete what is no longer used."}},
			})
		}
	}
	outcome.Note = fmt.Sprintf("%d subnets", len(a.own))
	return outcome, nil
}

func (a *Account) wrongVariable(resource, name, right, wrong, why string) preflight.Finding {
	return preflight.Finding{
		Resource: resource, Wanted: fmt.Sprintf("%s: %s in %s", name, right, a.File), Found: fmt.Sprintf("%q", wrong),
		Why: why, Fix: []preflight.Fix{{Text: fmt.Sprintf("Set %s: %s in %s.", name, right, a.File)}},
	}
}
