package preflight_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// accountBreak is a mistake in a prepared account. Commands of account's report correct it, unless it is byHand.
type accountBreak struct {
	change func(*store.World)
	byHand bool
}

// accountBreaks are the edits of TestOwnership, and mistakes in the network and in what others deny.
func accountBreaks() map[string]accountBreak {
	deny := func(action string) iam.Policy {
		return iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
			Effect: "Deny", Action: iam.Strings{action}, Resource: iam.Strings{"*"},
		}}}
	}
	acl := func(entry store.ACLEntry) func(*store.World) {
		return func(w *store.World) {
			if len(w.NetworkACLs) > 1 {
				return
			}
			w.NetworkACLs = append(w.NetworkACLs, store.NetworkACL{
				ID: "acl-0a0b0c0d0e0f00002", VPC: awssim.LabVPC, Subnets: []string{awssim.LabNodeSubnet(1)},
				Entries: append([]store.ACLEntry{entry}, store.AllowAll()...),
			})
		}
	}
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	all := map[string]accountBreak{
		"no way out": {change: func(w *store.World) { w.RouteTables[0].Routes = w.RouteTables[0].Routes[:1] }},
		"a deleted NAT gateway": {change: func(w *store.World) {
			for i := range w.RouteTables[0].Routes[1:] {
				w.RouteTables[0].Routes[i+1].Blackhole = true
			}
		}},
		"one table": {change: func(w *store.World) {
			w.RouteTables[0].Subnets = append(w.RouteTables[0].Subnets, w.RouteTables[1].Subnets...)
			w.RouteTables[1].Subnets = nil
		}},
		"no route of public subnets": {change: func(w *store.World) {
			w.RouteTables[1].Routes = w.RouteTables[1].Routes[:1]
		}},
		"a detached gateway": {change: func(w *store.World) {
			w.RouteTables[1].Routes = w.RouteTables[1].Routes[:1]
			w.InternetGateways[0].VPC = ""
		}},
		"ACL: 443 outward": {change: acl(store.ACLEntry{
			Number: 9, Egress: true, Protocol: "6", CIDR: anywhere, FromPort: 443, ToPort: 443,
		})},
		"ACL: answers": {change: acl(store.ACLEntry{
			Number: 95, Protocol: "6", CIDR: anywhere, FromPort: 40000, ToPort: 50000,
		})},
		"no egress": {change: func(w *store.World) { groupOf(w).Egress = nil }},
		"egress to nodes": {change: func(w *store.World) {
			groupOf(w).Egress = []store.Rule{{Protocol: "-1", Group: groupOf(w).ID}}
		}},
		"closed ports": {change: func(w *store.World) { groupOf(w).Ingress = nil }},
		"no tags": {change: func(w *store.World) {
			for i := range w.Subnets {
				w.Subnets[i].Tags = store.Tags{}
			}
		}},
		"no role":     {change: func(w *store.World) { w.Roles, w.InstanceProfiles = nil, nil }},
		"no policy":   {change: func(w *store.World) { w.Roles[0].Policies = map[string]iam.Policy{} }},
		"no PassRole": {change: func(w *store.World) { w.StaticKeys[1].Inline = nil }},
		"a policy denies": {change: func(w *store.World) {
			w.Roles[0].Policies["guard"] = deny("ec2:AttachVolume")
		}, byHand: true},
		"a policy denies PassRole": {change: func(w *store.World) {
			w.StaticKeys[1].Policies = append(slices.Clone(w.StaticKeys[1].Policies), deny("iam:PassRole"))
		}, byHand: true},
		"conditions of others": {change: func(w *store.World) {
			w.Roles[0].Policies["others"] = underCondition("aws:SourceVpc")
			w.StaticKeys[1].Policies = append(
				slices.Clone(w.StaticKeys[1].Policies), underCondition("aws:MultiFactorAuthPresent"),
			)
		}},
		"another zone": {change: func(w *store.World) {
			store.Find(w.Subnets, awssim.LabNodeSubnet(2)).AvailabilityZone = "us-east-1a"
		}, byHand: true},
	}
	for kind, o := range objects {
		for name, c := range o.edited {
			all[kind+": "+name] = accountBreak{c.change, c.stops != "" && c.adopt == nil}
		}
	}
	return all
}

// underCondition is a policy of somebody else with a condition that no question to IAM has a value for.
func underCondition(key string) iam.Policy {
	return iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
		Effect: "Allow", Action: iam.Strings{"s3:GetObject"}, Resource: iam.Strings{"*"},
		Condition: iam.Conditions{"StringEquals": {key: {"a"}}},
	}}}
}

// singleReads are actions that an operator may lack.
var singleReads = []string{
	"ec2:DescribeTags", "ec2:DescribeRouteTables", "ec2:DescribeNetworkAcls", "iam:GetRole", "iam:GetRolePolicy",
	"iam:GetUser", "iam:GetUserPolicy", "iam:GetInstanceProfile", "iam:SimulatePrincipalPolicy",
}

// TestAccountAdviceLeadsToAPass makes objects of others in an empty account, or up to four mistakes in a prepared one.
// The commands of account's report must end without an error and lead to a pass, unless something is to be corrected by
// hand, and must leave what is not the cluster's. The first report may lack a read.
func TestAccountAdviceLeadsToAPass(t *testing.T) {
	var seeds []uint64
	if *adviceSeed != "" {
		seed, err := strconv.ParseUint(*adviceSeed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	} else {
		accounts := *adviceAccounts
		if accounts == 0 {
			accounts = map[bool]int{true: 3, false: 6}[testing.Short()]
		}
		for n := range accounts {
			seeds = append(seeds, *adviceFirst+uint64(n))
		}
		seeds = append(seeds, 442) // a foreign role that EC2 may not assume: --adopt alone would not do
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkAccountAdvice(t, rand.New(rand.NewPCG(seed, 9))) })
	}
}

func checkAccountAdvice(t *testing.T, random *rand.Rand) {
	op, broken, byHand, others := brokenAccount(t, random)
	var history strings.Builder
	defer func() {
		if t.Failed() {
			t.Logf("%s\n%s", strings.Join(broken, "; "), history.String())
		}
	}()
	if random.IntN(4) == 0 {
		action := singleReads[random.IntN(len(singleReads))]
		op.fault(awssim.Fault{
			Action: action, Kind: awssim.FaultError, Code: "AccessDenied", Message: "refused", Status: 403,
		})
		if result, found := op.check(); result == string(preflight.RunPassed) && action != "iam:GetUser" {
			t.Errorf("account passes without %s:\n%s", action, found)
		}
		op.sim.ClearFaults()
	}
	before := othersOf(op, others)
	public := []string{awssim.LabPublicSubnet(1), awssim.LabPublicSubnet(2), awssim.LabPublicSubnet(3)}
	for round := 1; ; round++ {
		report, err := op.account(new(bytes.Buffer)).Check(op.context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&history, "%s\n", text(report))
		commands := runnable(report)
		switch {
		case report.Result == preflight.RunPassed:
			return
		case len(commands) == 0:
			if !byHand {
				t.Error("no commands lead to a pass")
			}
			return
		case round > 4:
			t.Errorf("after %d rounds of commands there are more: %q", round, commands)
			return
		}
		for _, lines := range commands {
			if err := op.paste(lines); err != nil {
				t.Errorf("%q: %v", lines, err)
			}
		}
		if after := othersOf(op, others); !reflect.DeepEqual(after, before) {
			t.Errorf("what others have made is %v, and was %v", after, before)
		}
		for _, s := range op.sim.World().Subnets {
			if !slices.Contains(public, s.ID) && isPublic(op.sim.World(), s.ID) {
				t.Errorf("%s has got a route to the internet", s.ID)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// brokenAccount is an account with mistakes, whether some are to be corrected by hand, and objects of others in it.
func brokenAccount(t *testing.T, random *rand.Rand) (op *operator, broken []string, byHand bool, others []object) {
	world := ownershipWorld()
	if random.IntN(3) == 0 {
		for _, kind := range slices.Sorted(maps.Keys(objects)) {
			o := objects[kind]
			cases := maps.Clone(o.foreign)
			if cases == nil {
				cases = map[string]handmade{}
			}
			for name, c := range o.another {
				cases["another cluster, "+name] = c
			}
			names := slices.Sorted(maps.Keys(cases))
			if len(names) == 0 || random.IntN(3) > 0 {
				continue
			}
			name := names[random.IntN(len(names))]
			c := cases[name]
			if c.listed != "" || kind == "role policy" { // others of the group and of the role
				continue
			}
			roles := world.Roles
			c.change(world)
			for _, role := range roles {
				if store.Find(world.Roles, role.Name) == nil {
					world.Roles = append(world.Roles, role)
				}
			}
			broken = append(broken, kind+": "+name)
			byHand = byHand || c.stops != "" && c.adopt == nil
			// The cluster's tag is added to those of others, and its role to their profile.
			if c.left && kind != "tag on subnet" && name != "empty" {
				others = append(others, o)
			}
		}
		return newOperator(t, world), broken, byHand, others
	}
	op = newOperator(t, world)
	op.mustPrepare()
	all := accountBreaks()
	names := slices.Sorted(maps.Keys(all))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	policy := 0 // mistakes in the Director's policy; prepare stops at several, though it corrects each alone
	for _, name := range names[:1+random.IntN(4)] {
		if !op.tryUpdate(all[name].change) {
			continue // another mistake has removed what this one is about
		}
		broken = append(broken, name)
		if strings.HasPrefix(name, "inline policy of the Director: ") {
			policy++
		}
		byHand = byHand || all[name].byHand || policy > 1
	}
	return op, broken, byHand, nil
}

// tryUpdate changes the account, and returns false if the change is not possible in it.
func (o *operator) tryUpdate(change func(*store.World)) bool {
	return o.sim.Update(func(w *store.World) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%v", r)
			}
		}()
		change(w)
		return nil
	}) == nil
}

func othersOf(op *operator, others []object) []any {
	var all []any
	for _, o := range others {
		all = append(all, o.get(op.sim.World()))
	}
	return all
}

// runnable are the commands of the first fixes of what fails, each once. Those after a correction by hand are left out.
func runnable(r *preflight.Report) [][]string {
	var all [][]string
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if f.Advisory || len(f.Fix) == 0 || len(f.Fix[0].Commands) == 0 ||
				strings.HasPrefix(f.Fix[0].Text, correctFirst) || f.Fix[0].Text == fixes.DenyText {
				continue
			}
			if !slices.ContainsFunc(all, func(c []string) bool { return slices.Equal(c, f.Fix[0].Commands) }) {
				all = append(all, f.Fix[0].Commands)
			}
		}
	}
	return all
}

// paste runs commands of a report: that of cloud-preflight in this process.
func (o *operator) paste(lines []string) error {
	if _, options, ok := strings.Cut(lines[0], "cloud-preflight account prepare "); ok && len(lines) == 1 {
		_, err := o.prepare(adopted(options)...)
		return err
	}
	knows := func(placeholder string) string {
		if placeholder == "NAT_GATEWAY_ID" {
			return "nat-0a0b0c0d0e0f00001"
		}
		return placeholder
	}
	return cli(o.t).Paste(o.url, lines, knows)
}
