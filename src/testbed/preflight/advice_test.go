package preflight_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/internal/awscli"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/accounts/results"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// rightAccount is an account that passes.
func rightAccount(t testing.TB, random *rand.Rand) *accounts.Account {
	t.Helper()
	a, err := accounts.New(random, func(role preflight.Role, cluster, partition string) ([]byte, error) {
		policy, err := aws.NewPolicy(
			aws.PolicyOptions{
				Role:        role,
				Cluster:     cluster,
				Partition:   partition,
				VPC:         awssim.LabVPC,
				CloudRoutes: true,
				Storage:     true,
			},
		)
		if err != nil {
			return nil, err
		}
		return policy.JSON()
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Config.Storage = true
	return a
}

func copyOfWorld(t testing.TB, a *accounts.Account) *store.World {
	t.Helper()
	w, err := a.World.Clone()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// masks are the checks without which others have nothing to go by: what else is wrong is in the next report.
var masks = []string{
	"metadata-service", "instance-profile", "role-credentials", "instance-role", "ec2-read-permissions",
	"untagged-security-groups",
}

var (
	adviceSeed     = flag.String("advice-seed", "", "check the advice for the account with this seed only")
	adviceFirst    = flag.Uint64("advice-first", 0, "seed of the first random account")
	adviceAccounts = flag.Int(
		"advice-accounts", 0, "random accounts to check the advice for; 0: 80, or 15 in short mode",
	)
)

// foundFailures are seeds whose accounts showed faults before an operator wrote policies and tags in them.
var foundFailures = []uint64{
	126, // public subnets got a route, but not the cluster's tag
	272, // a security group had only the old tag, which the policies do not accept
}

// foundByHand are seeds whose accounts showed faults after that.
var foundByHand = []uint64{
	841, // the generated policy, which requires a tag of the security group, replaced one that requires none
	2065, 4554, 4571, 4613, 4645,
	2931, 8053, // the route table of public subnets without a route was taken for that of other nodes
	580, 5631, // a worker has the profile of control VMs, and its own role cannot be assumed
}

// TestAdviceLeadsToAPass breaks right accounts in one to four ways, runs the commands of the report, and wants the next
// report to be without failures, and nothing to be open that was not before.
func TestAdviceLeadsToAPass(t *testing.T) {
	var seeds []uint64
	switch {
	case *adviceSeed != "":
		seed, err := strconv.ParseUint(*adviceSeed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	default:
		seeds = slices.Concat(foundFailures, foundByHand)
		accounts := *adviceAccounts
		switch {
		case accounts != 0:
		case testing.Short():
			accounts = 15
		default:
			accounts = 80
		}
		for n := range accounts {
			seeds = append(seeds, *adviceFirst+uint64(n))
		}
	}
	checker := results.NewChecker()
	defer checker.Close()
	for i, seed := range seeds {
		byHand := *adviceSeed != "" || i >= len(foundFailures)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkAdvice(t, checker, seed, byHand) })
	}
	if !t.Failed() {
		t.Logf("the commands of the preflight's report lead to a pass in %d of %[1]d random accounts", len(seeds))
	}
}

// checkAdvice checks the advice for one account. byHand tells whether an operator has written policies and tags in it.
func checkAdvice(t *testing.T, checker *results.Checker, seed uint64, byHand bool) {
	random := rand.New(rand.NewPCG(seed, 8))
	a := rightAccount(t, random)
	right := copyOfWorld(t, a)
	a.Break()
	if byHand {
		a.BreakByHand()
	}
	if seed%7 == 2 { // none of those with faults
		policies := maps.Clone(a.Role().Policies)
		if policies == nil {
			policies = map[string]iam.Policy{}
		}
		policies["others"] = underCondition("aws:SourceVpc")
		a.Role().Policies = policies
	}
	broken := copyOfWorld(t, a)
	sim, err := awssim.New(a.World, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sim.Close() }()
	var history strings.Builder
	defer func() {
		if t.Failed() {
			t.Logf("to repeat: go test ./preflight -run TestAdviceLeadsToAPass -advice-seed %d\n%s\n%s",
				seed, a, history.String())
		}
	}()
	report := func() *preflight.Report {
		r, err := checker.PreflightIn(t.Context(), sim, a)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&history, "%s\n", text(r))
		return r
	}
	r := report()
	for round := 1; ; round++ {
		masked := slices.ContainsFunc(masks, func(id string) bool { return result(r, id).Status == preflight.Failed })
		for _, fix := range fixesOf(r) {
			if err := paste(t, checker.URL(), sim, fix); err != nil {
				t.Errorf("%s: %v", fix[0].Text, err)
				return
			}
		}
		r = report()
		if r.Result == preflight.RunPassed {
			break
		}
		if !masked || round == len(masks) {
			t.Errorf("after round %d of fixes, the preflight still fails", round)
			return
		}
	}
	nothingOpened(t, right, broken, sim.World(), sim.World().Instances[a.Self].InstanceProfile)
}

// paste runs the commands of the first of a finding's fixes, or of the second where the first one's text says so.
func paste(t *testing.T, url string, sim *awssim.Simulator, fix []preflight.Fix) error {
	err := cli(t).Paste(url, fix[0].Commands, operatorKnows(sim))
	if err != nil && len(fix) > 1 && strings.Contains(err.Error(), "LimitExceeded") &&
		strings.HasPrefix(fix[1].Text, "or, if IAM answers LimitExceeded") {
		return cli(t).Paste(url, fix[1].Commands, operatorKnows(sim))
	}
	return err
}

// operatorKnows returns the values of placeholders.
func operatorKnows(sim *awssim.Simulator) func(string) string {
	network := 200
	return func(placeholder string) string {
		switch placeholder {
		case "CIDR_BLOCK":
			for ; ; network++ {
				block := fmt.Sprintf("127.77.%d.0/24", network)
				if !slices.ContainsFunc(
					sim.World().Subnets, func(subnet store.Subnet) bool { return subnet.CIDR.String() == block },
				) {
					network++
					return block
				}
			}
		case "REGION":
			return sim.World().Region
		}
		return placeholder
	}
}

// nothingOpened compares an account with the right one, and with the broken one what others use. own is the profile
// that the instance has now, with the name of its role.
func nothingOpened(t *testing.T, right, broken, now *store.World, own string) {
	t.Helper()
	for _, s := range right.Subnets {
		if isPublic(now, s.ID) && !isPublic(right, s.ID) {
			t.Errorf("%s has got a route to the internet", s.ID)
		}
	}
	for _, table := range now.RouteTables {
		if table.Main &&
			slices.ContainsFunc(
				table.Routes, func(r store.Route) bool { return strings.HasPrefix(r.Gateway, "igw-") },
			) {
			t.Errorf("the main route table %s has got a route to the internet", table.ID)
		}
	}
	for _, g := range now.SecurityGroups {
		for _, old := range broken.SecurityGroups {
			if g.ID == old.ID &&
				!(slices.Equal(
					withoutPods(g.Ingress), withoutPods(old.Ingress),
				) && reflect.DeepEqual(g.Egress, old.Egress)) {
				t.Errorf("the rules of %s have changed", g.ID)
			}
		}
	}
	for _, role := range now.Roles {
		was, want := accounts.Find(broken.Roles, role.Name), accounts.Find(right.Roles, role.Name)
		for name, policy := range role.Policies {
			if !reflect.DeepEqual(policy, was.Policies[name]) &&
				!narrower(policy, want.Policies[aws.InlinePolicyName]) {
				t.Errorf("the policy %s of %s is\n%+v\nwant\n%s", name, role.Name, policy, policyText(*want))
			}
		}
		for _, arn := range role.Attached {
			if !slices.Contains(was.Attached, arn) && !strings.Contains(arn, ":policy/kubernetes-") {
				t.Errorf("%s has got the managed policy %s", role.Name, arn)
			}
		}
		if role.Untrusted && role.Name == own { // the preflight sees no other
			t.Errorf("EC2 cannot assume %s", role.Name)
		}
	}
	for _, i := range now.Instances {
		if i.Metadata.HTTPTokens != "required" {
			t.Errorf("%s allows IMDSv1", i.ID)
		}
	}
	othersUnchanged(t, broken, now)
	for n, s := range broken.Subnets {
		for key := range s.Tags {
			if strings.HasPrefix(key, aws.TagPrefix) && now.Subnets[n].Tags[key] == "" {
				t.Errorf("%s has lost the tag %s", s.ID, key)
			}
		}
	}
}

// othersUnchanged: what is tagged for another cluster keeps that tag, and gets none of this cluster's.
func othersUnchanged(t *testing.T, broken, now *store.World) {
	t.Helper()
	clusters := func(tags store.Tags) (keys []string) {
		for key := range tags {
			if strings.HasPrefix(key, aws.TagPrefix) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return keys
	}
	check := func(id string, was, is store.Tags) {
		const other = aws.TagPrefix + "other"
		if before, after := clusters(was), clusters(is); slices.Contains(before, other) &&
			(!slices.Contains(after, other) || len(after) > len(before)) {
			t.Errorf("%s of another cluster had the tags %v, has %v", id, before, after)
		}
	}
	for i, g := range broken.SecurityGroups {
		check(g.ID, g.Tags, now.SecurityGroups[i].Tags)
	}
	for i, table := range broken.RouteTables {
		check(table.ID, table.Tags, now.RouteTables[i].Tags)
	}
}

// withoutPods returns rules without those for the pod network, which a fix may add.
func withoutPods(rules []store.Rule) []store.Rule {
	return slices.DeleteFunc(
		slices.Clone(rules), func(r store.Rule) bool { return r.Protocol == "-1" && r.CIDR == accounts.PodNetwork },
	)
}

// narrower reports whether each statement of a policy is one of another policy's.
func narrower(policy, than iam.Policy) bool {
	for _, s := range policy.Statement {
		if !slices.ContainsFunc(
			than.Statement,
			func(o iam.Statement) bool { return reflect.DeepEqual(withoutSid(s), withoutSid(o)) },
		) {
			return false
		}
	}
	return true
}

func withoutSid(s iam.Statement) iam.Statement {
	s.Sid = ""
	return s
}

func policyText(r store.Role) string {
	content, _ := json.Marshal(r.Policies)
	return string(content) + strings.Join(r.Attached, " ")
}

// isPublic reports whether the route table that applies to a subnet leads to an internet gateway.
func isPublic(w *store.World, subnet string) bool {
	var main, own *store.RouteTable
	for i := range w.RouteTables {
		if w.RouteTables[i].Main {
			main = &w.RouteTables[i]
		}
		if slices.Contains(w.RouteTables[i].Subnets, subnet) {
			own = &w.RouteTables[i]
		}
	}
	if own == nil {
		own = main
	}
	return own != nil &&
		slices.ContainsFunc(own.Routes, func(r store.Route) bool { return strings.HasPrefix(r.Gateway, "igw-") })
}

// TestRightAccountsPass: the accounts that TestAdviceLeadsToAPass breaks are right.
func TestRightAccountsPass(t *testing.T) {
	for seed := range uint64(12) {
		a := rightAccount(t, rand.New(rand.NewPCG(seed, 8)))
		sim := simulateWorld(t, a.World)
		r := sim.run(
			t, a.World.Instances[a.Self], a.Config.Role, func(_ *aws.Provider, c *awstest.Config) { *c = a.Config },
		)
		if r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
			t.Errorf("seed %d: want no findings:\n%s", seed, text(r))
		}
	}
}

// TestFullRole: if the role's other inline policies leave too little, the first fix fails and the alternative leads
// to a pass.
func TestFullRole(t *testing.T) {
	for _, cluster := range []string{"prod", strings.Repeat("n", 52) + "." + strings.Repeat("n", 52)} {
		a := rightAccount(t, rand.New(rand.NewPCG(3, 8)))
		a.Config = awstest.NewConfig(preflight.Control)
		a.Config.Cluster = cluster
		a.World = labWorld(cluster)
		i := simulatedInstance(1, preflight.Control)
		i.Tags = store.Tags{aws.TagPrefix + cluster: "shared"}
		a.World.Instances = []store.Instance{i}
		filler := iam.Policy{
			Version: "2012-10-17",
			Statement: iam.Statements{
				{Effect: "Allow", Action: iam.Strings{"s3:" + strings.Repeat("x", 9000)}, Resource: iam.Strings{"*"}},
			},
		}
		a.Role().Policies = map[string]iam.Policy{"other": filler}
		sim := simulateWorld(t, a.World)
		run := func() *preflight.Report {
			return sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) { *c = a.Config })
		}
		fixes := result(run(), "ec2-read-permissions").Findings[0].Fix
		first := fixes[0].Commands
		if err := cli(t).Paste(os.Getenv("AWS_ENDPOINT_URL"), first, operatorKnows(sim.Simulator)); err == nil ||
			!strings.Contains(err.Error(), "LimitExceeded") {
			t.Errorf("%d characters: put-role-policy: %v", len(cluster), err)
		}
		for range 2 { // the alternative can be repeated
			if err := cli(t).Paste(
				os.Getenv("AWS_ENDPOINT_URL"), fixes[1].Commands, operatorKnows(sim.Simulator),
			); err != nil {
				t.Error(err)
			}
		}
		if r := run(); r.Result != preflight.RunPassed {
			t.Errorf("%d characters:\n%s", len(cluster), text(r))
		}
		if names := slices.Sorted(
			maps.Keys(accounts.Find(sim.World().Roles, a.Role().Name).Policies),
		); !slices.Equal(names, []string{"other"}) {
			t.Errorf("inline policies %v", names)
		}
	}
}

// TestEndpointFixes runs the commands that create VPC endpoints in each partition. The nodes must be able to connect to
// them.
func TestEndpointFixes(t *testing.T) {
	for region := range accounts.Regions {
		world := labWorld("prod")
		accounts.MoveTo(world, region)
		i := simulatedInstance(1, preflight.Control)
		world.Instances = []store.Instance{i}
		sim := simulateWorld(t, world)
		// None of the three can be reached; IAM and STS can.
		var conf strings.Builder
		for n, service := range []string{"EC2", "Elastic Load Balancing v2"} {
			fmt.Fprintf(
				&conf,
				"[ServiceOverride \"%d\"]\nService = %s\nRegion = %s\nURL = http://127.0.0.1:1\nSigningRegion = "+
					"%[3]s\n",
				n,
				service,
				region,
			)
		}
		r := sim.runConfigured(t, i, preflight.Control, conf.String(), func(p *aws.Provider, _ *awstest.Config) {
			p.Reachable = func(string) error { return errors.New("timeout") }
		})
		for _, id := range []string{"ec2-endpoint", "load-balancer-endpoint", "registry-endpoint"} {
			findings := result(r, id).Findings
			if len(findings) != 1 {
				t.Fatalf("%s: want a finding of %s:\n%s", region, id, text(r))
			}
			if err := cli(t).Paste(
				os.Getenv("AWS_ENDPOINT_URL"), findings[0].Fix[0].Commands, operatorKnows(sim.Simulator),
			); err != nil {
				t.Errorf("%s: %v", region, err)
			}
		}
		now := sim.World()
		if len(now.VPCEndpoints) != 5 {
			t.Errorf("%s: %d endpoints", region, len(now.VPCEndpoints))
		}
		for _, e := range now.VPCEndpoints {
			if e.Type == "Gateway" {
				if !slices.Equal(e.RouteTables, []string{world.RouteTables[accounts.NodesTable].ID}) {
					t.Errorf("%s: the endpoint for S3 is in the route tables %v", region, e.RouteTables)
				}
				continue
			}
			at := slices.IndexFunc(
				now.SecurityGroups,
				func(g store.SecurityGroup) bool { return len(e.SecurityGroups) == 1 && g.ID == e.SecurityGroups[0] },
			)
			want := []store.Rule{{Protocol: "tcp", FromPort: 443, ToPort: 443, Group: awssim.LabSecurityGroup}}
			if at < 0 || !reflect.DeepEqual(now.SecurityGroups[at].Ingress, want) || !e.PrivateDNS {
				t.Errorf("%s: %+v does not let exactly the nodes connect", region, e)
			}
		}
	}
}

// fixesOf are the fixes of all findings, without those whose first one is a repetition.
func fixesOf(r *preflight.Report) (list [][]preflight.Fix) {
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if !slices.ContainsFunc(
				list, func(other []preflight.Fix) bool { return slices.Equal(other[0].Commands, f.Fix[0].Commands) },
			) {
				list = append(list, f.Fix)
			}
		}
	}
	return list
}

// cli is the AWS CLI with the keys of the account's administrator.
func cli(t testing.TB) *awscli.CLI {
	t.Helper()
	return awscli.Start(
		t, awscli.Credentials{AccessKeyID: awssim.LabAccessKeyID, SecretAccessKey: awssim.LabSecretAccessKey},
	)
}
