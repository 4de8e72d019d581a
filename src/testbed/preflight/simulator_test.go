package preflight_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// simulated is a running simulator of AWS.
type simulated struct {
	*awssim.Simulator
	metadata string // address of instance metadata
	record   string
}

// simulate starts the simulator with the lab's world after the given change, and points the SDK at it.
func simulate(t testing.TB, change func(*store.World)) simulated {
	t.Helper()
	world := labWorld("prod")
	change(world)
	return simulateWorld(t, world)
}

func labWorld(cluster string) *store.World { return accounts.World(cluster) }

// simulateWorld starts the simulator and points the SDK at it.
func simulateWorld(t testing.TB, world *store.World) simulated {
	t.Helper()
	record := filepath.Join(t.TempDir(), "calls.jsonl")
	sim, err := awssim.New(world, awssim.Options{RecordFile: record})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metadata := sim.MetadataServer()
	go func() { _ = metadata.Serve(listener) }()
	t.Cleanup(func() { metadata.Close() })
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)
	setenv(t, "AWS_ENDPOINT_URL", api.URL)
	setenv(t, "AWS_CA_BUNDLE", "") // every client would read it
	return simulated{sim, listener.Addr().String(), record}
}

// metadataFor serves instance metadata as the instance with that address sees it: connections come from there.
func (s simulated) metadataFor(t testing.TB, address netip.Addr) string {
	t.Helper()
	target := &url.URL{Scheme: "http", Host: s.metadata}
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0))}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{DialContext: dialer.DialContext},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// simulatedInstance returns the nth instance, in the first zone.
func simulatedInstance(n int, role preflight.Role) store.Instance {
	return accounts.Instance(n, role, "prod")
}

func (s simulated) run(
	t testing.TB, i store.Instance, role preflight.Role, change func(*aws.Provider, *awstest.Config),
) *preflight.Report {
	t.Helper()
	return s.runConfigured(t, i, role, "", change)
}

// runConfigured runs with a configuration file of the cloud controller.
func (s simulated) runConfigured(
	t testing.TB, i store.Instance, role preflight.Role, conf string, change func(*aws.Provider, *awstest.Config),
) *preflight.Report {
	t.Helper()
	p := &aws.Provider{
		MetadataEndpoint: s.metadataFor(t, i.Address),
		LocalAddresses:   func() ([]netip.Addr, error) { return []netip.Addr{i.Address}, nil },
		Reachable:        func(string) error { return nil },
		RoundPause:       quick,
	}
	c := awstest.NewConfig(role)
	if change != nil {
		change(p, &c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	started := time.Now()
	request := c.Request()
	if conf != "" {
		request.Config.CloudConfigFile, request.CloudConfig = "/cloud.conf", []byte(conf)
	}
	out, err := p.Preflight(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	r := preflight.NewReport(c.Config, out.Results, started, time.Since(started))
	r.Node, r.Machine, r.Explanations, r.Calls = out.Identity, out.Machine, out.Explanations, out.Calls
	return r
}

// generated replaces the policies of the simulator's roles by those that this package generates, without the given
// actions.
func generated(t testing.TB, w *store.World, without ...string) {
	t.Helper()
	for i := range w.Roles {
		role := preflight.Role(strings.TrimPrefix(w.Roles[i].Name, "kubernetes-"))
		w.Roles[i].Policies = enforced(
			t,
			aws.PolicyOptions{
				Role:        role,
				Cluster:     "prod",
				CloudRoutes: true,
				Storage:     true,
				Keys:        []string{testStorageKey},
				VPC:         awssim.LabVPC,
			},
			without...)
	}
}

// enforced is a generated policy without the given actions, for a role of the simulator.
func enforced(t testing.TB, o aws.PolicyOptions, without ...string) map[string]iam.Policy {
	t.Helper()
	policy, err := aws.NewPolicy(o)
	if err != nil {
		t.Fatal(err)
	}
	for j := range policy.Statement {
		policy.Statement[j].Action = slices.DeleteFunc(
			policy.Statement[j].Action, func(a string) bool { return slices.Contains(without, a) },
		)
	}
	policy.Statement = slices.DeleteFunc(policy.Statement, func(s aws.Statement) bool { return len(s.Action) == 0 })
	content, err := policy.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var parsed iam.Policy
	if err := json.Unmarshal(content, &parsed); err != nil {
		t.Fatalf("the simulator rejects the policy: %v\n%s", err, content)
	}
	return map[string]iam.Policy{"kubernetes": parsed}
}

// TestSimulatedAWS runs with the generated policies enforced. The simulator's record must show that nothing was
// changed, and the documented number of calls.
func TestSimulatedAWS(t *testing.T) {
	for _, test := range []struct {
		role                      preflight.Role
		routes, thorough, storage bool
		calls                     int // of EC2, as documented
	}{
		{preflight.Worker, false, false, false, 2},
		{preflight.Worker, true, false, true, 2}, {preflight.Worker, false, true, false, 2},
		{
			preflight.Control, false, false, false, 9,
		},
		{preflight.Control, true, false, false, 10},
		{preflight.Control, false, true, false, 10}, {preflight.Control, true, true, false, 13},
		{preflight.Control, false, false, true, 14}, // with the key of encryption by default
	} {
		t.Run(
			fmt.Sprintf("%s routes=%v thorough=%v storage=%v", test.role, test.routes, test.thorough, test.storage),
			func(t *testing.T) {
				i := simulatedInstance(1, test.role)
				off := false
				i.SourceDestCheck = &off
				sim := simulate(t, func(w *store.World) {
					w.Instances = []store.Instance{i}
					w.RouteTables[0].Tags["kubernetes.io/cluster/prod"] = "shared"
					w.Encryption = store.Encryption{ByDefault: true, DefaultKey: testStorageKey}
					w.KMSKeys = []store.KMSKey{{ARN: testStorageKey}}
					generated(t, w)
				})
				before, _ := json.Marshal(sim.World())
				r := sim.run(t, i, test.role, func(_ *aws.Provider, c *awstest.Config) {
					c.ConfigureCloudRoutes, c.Thorough, c.Storage = test.routes, test.thorough, test.storage
				})
				if r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
					t.Errorf("want no findings:\n%s", text(r))
				}
				after, _ := json.Marshal(sim.World())
				if string(before) != string(after) {
					t.Errorf("the world has changed")
				}
				if n := len(sim.Calls("ec2:*")); n != test.calls {
					t.Errorf("%d EC2 calls, want %d", n, test.calls)
				}
				for _, c := range sim.Calls("") {
					if c.Service != "metadata" && !strings.HasPrefix(c.Action, "Describe") &&
						!strings.HasPrefix(c.Action, "GetEbs") &&
						!c.DryRun &&
						c.Action != "SimulatePrincipalPolicy" && c.Action != "GetCallerIdentity" {
						t.Errorf("%s:%s without DryRun", c.Service, c.Action)
					}
					if c.Service == "ec2" && c.Action != "DescribeAvailabilityZones" &&
						!strings.HasPrefix(c.Action, "GetEbs") &&
						!narrowed(c) {
						t.Errorf("%s asks for more than the VPC or known ids: %v", c.Action, c.Params)
					}
					if c.Status >= 400 && !c.DryRun {
						t.Errorf("%s:%s answered %d %s", c.Service, c.Action, c.Status, c.Code)
					}
				}
			},
		)
	}
}

// TestCallsOfEachRole: a run asks no more than this. STS, which a control VM asks once, does not count.
func TestCallsOfEachRole(t *testing.T) {
	for _, test := range []struct {
		role          preflight.Role
		storage, keys bool
		calls         int // of EC2, load balancing, IAM and KMS
	}{
		{preflight.Worker, false, false, 2},
		{preflight.Worker, true, false, 2},
		{preflight.Control, false, false, 24},
		{preflight.Control, true, false, 35},
		{preflight.Control, true, true, 38}, // which key, what it is, and what IAM says about it
	} {
		t.Run(fmt.Sprintf("%s storage=%v keys=%v", test.role, test.storage, test.keys), func(t *testing.T) {
			i := simulatedInstance(1, test.role)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				if test.keys {
					w.Encryption = store.Encryption{ByDefault: true, DefaultKey: testStorageKey}
					w.KMSKeys = []store.KMSKey{{ARN: testStorageKey}}
				}
				generated(t, w)
			})
			r := sim.run(t, i, test.role, func(_ *aws.Provider, c *awstest.Config) { c.Storage = test.storage })
			calls := 0
			for _, c := range r.Calls {
				calls += c.Count
			}
			simulated := slices.DeleteFunc(sim.Calls(""), func(c awssim.Call) bool {
				return c.Service == "metadata" || c.Service == "sts"
			})
			if r.Result != preflight.RunPassed || calls != test.calls || len(simulated) != test.calls {
				t.Errorf("%d calls in the report, %d seen, want %d: %v", calls, len(simulated), test.calls, r.Calls)
			}
		})
	}
}

// TestDomainOfDHCPOptions: instance metadata has names in the domain of the VPC's DHCP options, EC2 does not.
func TestDomainOfDHCPOptions(t *testing.T) {
	other := func(w *store.World) { w.VPCs[0].DomainName = "corp.example.com" }
	for _, role := range []preflight.Role{preflight.Control, preflight.Worker} {
		for _, mode := range []preflight.Mode{preflight.ModeEnforce, preflight.ModeOff} {
			t.Run(fmt.Sprintf("%s mode=%s", role, mode), func(t *testing.T) {
				i := simulatedInstance(1, role)
				sim := simulate(t, func(w *store.World) {
					other(w)
					w.Instances = []store.Instance{i}
					generated(t, w)
				})
				r := sim.run(t, i, role, func(_ *aws.Provider, c *awstest.Config) { c.Mode = mode })
				if r.Result == preflight.RunFailed || r.Count(preflight.Warned) > 0 {
					t.Errorf("want no findings:\n%s", text(r))
				}
				if r.Node == nil || r.Node.Name != nodeName(i) {
					t.Fatalf("the identity is %+v, want the name %s", r.Node, nodeName(i))
				}
				authority := (&aws.Provider{MetadataEndpoint: sim.metadataFor(t, i.Address)}).NewAuthority("prod", nil)
				machine, err := authority.Admit(t.Context(), node.Application{
					Request: []byte("request"), Proof: prove(t, sim, i, "prod", "request", time.Now()), Peer: i.Address,
				})
				if err != nil || machine.Node != r.Node.Name {
					t.Errorf("the VM joins as %q, %v", machine.Node, err)
				}
			})
		}
	}
	t.Run("EC2 does not say", func(t *testing.T) {
		i := simulatedInstance(1, preflight.Worker)
		sim := simulate(t, func(w *store.World) {
			other(w)
			w.Instances = []store.Instance{i}
			generated(t, w, "ec2:DescribeInstances")
		})
		r := sim.run(t, i, preflight.Worker, nil)
		name := result(r, "node-name")
		if want := strings.Replace(nodeName(i), "ec2.internal", "corp.example.com", 1); r.Node.Name != want ||
			name.Status != preflight.Failed || !strings.Contains(text(r), "start the preflight again") {
			t.Errorf("node %+v\n%s", r.Node, text(r))
		}
	})
}

// narrowed reports whether a call is restricted to one VPC, the cluster's tag, or ids.
func narrowed(c awssim.Call) bool {
	for name, value := range c.Params {
		if strings.HasSuffix(name, "Id.1") || strings.HasSuffix(name, "Id") || name == "InstanceType.1" ||
			name == "AvailabilityZone" ||
			name == "Filter.1.Name" &&
				slices.Contains([]string{"vpc-id", "tag-key", "route-table-id", "resource-id"}, value) {
			return true
		}
	}
	return false
}

// allowed are the actions of the policy for everything that the preflight can be configured for.
func allowed(t *testing.T, role preflight.Role) []string {
	t.Helper()
	policy, err := aws.NewPolicy(
		aws.PolicyOptions{
			Role:        role,
			Cluster:     "prod",
			CloudRoutes: true,
			Storage:     true,
			Keys:        []string{testStorageKey},
			VPC:         awssim.LabVPC,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, s := range policy.Statement {
		actions = append(actions, s.Action...)
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// removals are the sets of actions that TestMissingPermissions removes: each action separately, except that in short
// mode those that only IAM can answer for are removed together.
func removals(t *testing.T, role preflight.Role) [][]string {
	var sets [][]string
	together := map[string]int{}
	for _, action := range allowed(t, role) {
		service, name, _ := strings.Cut(action, ":")
		at, ok := together[service]
		switch {
		case !testing.Short() || service == "ec2" || service == "iam" ||
			strings.HasPrefix(name, "DescribeLoadBalancer"):
			sets = append(sets, []string{action})
		case ok:
			sets[at] = append(sets[at], action)
		default:
			together[service] = len(sets)
			sets = append(sets, []string{action})
		}
	}
	return sets
}

// TestMissingPermissions removes each action from the generated policy. A finding must name it, as a warning if few
// machines with the role use the action.
func TestMissingPermissions(t *testing.T) {
	for _, role := range both {
		for _, actions := range removals(t, role) {
			t.Run(string(role)+" "+actions[0], func(t *testing.T) {
				i := simulatedInstance(1, role)
				sim := simulate(t, func(w *store.World) {
					w.Instances = []store.Instance{i}
					w.RouteTables[0].Tags["kubernetes.io/cluster/prod"] = "shared"
					w.Encryption = store.Encryption{ByDefault: true, DefaultKey: testStorageKey}
					w.KMSKeys = []store.KMSKey{{ARN: testStorageKey}}
					generated(t, w, actions...)
				})
				r := sim.run(t, i, role, func(_ *aws.Provider, c *awstest.Config) {
					// A deployment checks a control VM's permissions; the errand also checks a worker's.
					c.ConfigureCloudRoutes, c.Thorough = role == preflight.Control, role == preflight.Worker
					c.Storage = true
				})
				out := text(r)
				switch actions[0] {
				case "iam:GetRole":
					if got := result(r, "other-permissions"); got.Status != preflight.Passed ||
						!strings.Contains(got.Note, "iam:GetRole") {
						t.Errorf("the action is not named:\n%s", out)
					}
					return
				case "iam:SimulatePrincipalPolicy":
					if got := result(r, "other-permissions"); got.Status != preflight.Warned ||
						!strings.Contains(got.Findings[0].Found, "iam:SimulatePrincipalPolicy") {
						t.Errorf("the action is not named:\n%s", out)
					}
					return
				}
				fails := false
				for _, action := range actions {
					rare := aws.Rare(action, role)
					fails = fails || !rare
					named := slices.ContainsFunc(r.Results, func(result preflight.Result) bool {
						return slices.ContainsFunc(result.Findings, func(f preflight.Finding) bool {
							return slices.Contains(strings.Split(f.Resource, ", "), action) && f.Advisory == rare
						})
					})
					if !named {
						t.Errorf("%s is not named by a finding that warns=%v:\n%s", action, rare, out)
					}
				}
				if (r.Result == preflight.RunFailed) != fails {
					t.Errorf("result %s:\n%s", r.Result, out)
				}
			})
		}
	}
}

// TestTagsOfEachCreation: a policy that allows tags with some of the actions that create resources lacks the others.
func TestTagsOfEachCreation(t *testing.T) {
	for _, test := range []struct{ key, action, denied, check string }{
		{"ec2:CreateAction", "CreateSecurityGroup", "ec2:CreateTags", "security-group-permissions"},
		{"ec2:CreateAction", "CreateVolume", "ec2:CreateTags", "storage-permissions"},
		{"ec2:CreateAction", "CreateSnapshot", "ec2:CreateTags", "storage-permissions"},
		{
			"elasticloadbalancing:CreateAction", "CreateLoadBalancer", "elasticloadbalancing:AddTags",
			"load-balancer-write-permissions",
		},
		{
			"elasticloadbalancing:CreateAction", "CreateTargetGroup", "elasticloadbalancing:AddTags",
			"load-balancer-write-permissions",
		},
		{
			"elasticloadbalancing:CreateAction", "CreateListener", "elasticloadbalancing:AddTags",
			"load-balancer-write-permissions",
		},
	} {
		t.Run(test.action, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				generated(t, w)
				for _, p := range w.Roles[0].Policies {
					for _, s := range p.Statement {
						actions := s.Condition["StringEquals"][test.key]
						if at := slices.Index(actions, test.action); at >= 0 {
							s.Condition["StringEquals"][test.key] = slices.Delete(actions, at, at+1)
						}
					}
				}
			})
			r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) { c.Storage = true })
			got := result(r, test.check)
			if got.Status != preflight.Failed || !slices.ContainsFunc(got.Findings, func(f preflight.Finding) bool {
				return strings.Contains(f.Resource, test.denied)
			}) {
				t.Errorf("%s is %s:\n%s", test.check, got.Status, text(r))
			}
		})
	}
}

// TestDeniedPermissionsFail: IAM lists the condition keys of all statements as missing, which makes no answer unknown.
func TestDeniedPermissionsFail(t *testing.T) {
	deny := func(action string) func(map[string]iam.Policy) {
		return func(policies map[string]iam.Policy) {
			policies["guard"] = iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
				Effect: "Deny", Action: iam.Strings{action}, Resource: iam.Strings{"*"},
			}}}
		}
	}
	for name, test := range map[string]struct {
		change         func(map[string]iam.Policy)
		check, missing string
		secrets        []string
	}{
		"a denied listener": {
			deny("elasticloadbalancing:CreateListener"), "load-balancer-write-permissions",
			"elasticloadbalancing:CreateListener", nil,
		},
		"a denied listener, with a key of Secrets": {
			deny("elasticloadbalancing:CreateListener"), "load-balancer-write-permissions",
			"elasticloadbalancing:CreateListener", []string{testStorageKey},
		},
		"no statements of load balancers": {
			func(policies map[string]iam.Policy) {
				p := policies["kubernetes"]
				p.Statement = slices.DeleteFunc(
					p.Statement, func(s iam.Statement) bool { return strings.HasPrefix(s.Sid, "LoadBalancers") },
				)
				policies["kubernetes"] = p
			}, "load-balancer-write-permissions", "elasticloadbalancing:CreateLoadBalancer", nil,
		},
		"denied deletion of volumes": {deny("ec2:DeleteVolume"), "storage-permissions", "ec2:DeleteVolume", nil},
	} {
		t.Run(name, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				w.Roles[0].Policies = enforced(t, aws.PolicyOptions{
					Role: preflight.Control, Cluster: "prod", Storage: true, VPC: awssim.LabVPC, Secrets: test.secrets,
				})
				test.change(w.Roles[0].Policies)
			})
			r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) { c.Storage = true })
			got := result(r, test.check)
			if got.Status != preflight.Failed || !slices.ContainsFunc(got.Findings, func(f preflight.Finding) bool {
				return strings.Contains(f.Resource, test.missing)
			}) {
				t.Errorf("%s is %s:\n%s", test.check, got.Status, text(r))
			}
		})
	}
}

// TestGroupWithAnotherValue: policies require one of two values of the group's tag, and the fix sets one.
func TestGroupWithAnotherValue(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		w.SecurityGroups[0].Tags["kubernetes.io/cluster/prod"] = "yes"
		generated(t, w)
	})
	r := sim.run(t, i, preflight.Control, nil)
	if r.Result != preflight.RunFailed {
		t.Fatalf("want a failure:\n%s", text(r))
	}
	fix := result(r, "security-group-permissions").Findings[0].Fix
	if err := paste(t, os.Getenv("AWS_ENDPOINT_URL"), sim.Simulator, fix); err != nil {
		t.Fatal(err)
	}
	if r := sim.run(t, i, preflight.Control, nil); r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
		t.Errorf("want no findings after the fix:\n%s", text(r))
	}
}

// TestUnencryptedVolumesAreForbidden: volumes of the driver are encrypted, unless a StorageClass says otherwise.
func TestUnencryptedVolumesAreForbidden(t *testing.T) {
	for unencrypted, want := range map[bool]preflight.Status{false: preflight.Warned, true: preflight.Failed} {
		t.Run(fmt.Sprint(unencrypted), func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				generated(t, w)
				w.Roles[0].Policies["guard"] = iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
					Effect: "Deny", Action: iam.Strings{"ec2:CreateVolume"}, Resource: iam.Strings{"*"},
					Condition: iam.Conditions{"Bool": {"ec2:Encrypted": {"false"}}},
				}}}
			})
			r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) {
				c.Storage, c.StorageUnencrypted = true, unencrypted
			})
			got := result(r, "storage-permissions")
			named := strings.Contains(text(r), "unencrypted volumes in us-east-1a")
			// The driver's question for limits is not for an encrypted volume, which is a warning.
			if got.Status != want || named != unencrypted {
				t.Errorf("%s:\n%s", got.Status, text(r))
			}
		})
	}
}

// TestAdministratorAsksIAM: the role cannot ask IAM about itself; the fix has an administrator ask. It prints nothing
// if nothing is missing, or else what is.
func TestAdministratorAsksIAM(t *testing.T) {
	for _, missing := range []string{
		"", "elasticloadbalancing:RegisterTargets", "ec2:DeleteVolume", "kms:CreateGrant",
	} {
		t.Run(missing, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				w.Encryption = store.Encryption{ByDefault: true, DefaultKey: testStorageKey}
				w.KMSKeys = []store.KMSKey{{ARN: testStorageKey}}
				generated(t, w, "iam:SimulatePrincipalPolicy", missing)
			})
			r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) { c.Storage = true })
			printed := filepath.Join(t.TempDir(), "printed")
			var lines []string
			for _, f := range everyFix(r) {
				if !strings.Contains(f.Text, "as an administrator") {
					continue
				}
				for _, l := range f.Commands {
					if strings.HasPrefix(l, "aws iam simulate-principal-policy") {
						l += " >> " + printed
					}
					lines = append(lines, l)
				}
			}
			if len(lines) < 10 {
				t.Fatalf("%d commands:\n%s", len(lines), text(r))
			}
			if err := cli(t).Paste(os.Getenv("AWS_ENDPOINT_URL"), lines, operatorKnows(sim.Simulator)); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(printed)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Compact(strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' }))
			want := []string{}
			if missing != "" {
				want = []string{missing + "\timplicitDeny"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("printed %q, want %q", got, want)
			}
		})
	}
}

// everyFix are all fixes of all findings.
func everyFix(r *preflight.Report) (list []preflight.Fix) {
	for _, result := range r.Results {
		for _, f := range result.Findings {
			list = append(list, f.Fix...)
		}
	}
	return list
}

// TestRoleWithPath: the generated policy lets a role read its own path, which instance metadata does not contain.
func TestRoleWithPath(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		generated(t, w)
		for n := range w.Roles {
			w.Roles[n].Path = "/teams/platform/"
		}
	})
	r := sim.run(t, i, preflight.Control, nil)
	for _, id := range []string{"load-balancer-write-permissions", "other-permissions"} {
		if result(r, id).Status != preflight.Passed {
			t.Errorf("%s:\n%s", id, text(r))
		}
	}
	if n := len(sim.Calls("iam:GetRole")); n != 1 {
		t.Errorf("the path was looked up %d times", n)
	}
}

func TestSimulatedMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*store.World, *store.Instance)
		check  string
	}{
		"untagged instance": {func(_ *store.World, i *store.Instance) { i.Tags = nil }, "instance-cluster-tag"},
		"no profile":        {func(_ *store.World, i *store.Instance) { i.InstanceProfile = "" }, "instance-profile"},
		"profile, no role": {
			func(w *store.World, _ *store.Instance) { w.InstanceProfiles[0].Role = "" }, "role-credentials",
		},
		"unusable role": {
			func(_ *store.World, i *store.Instance) { i.CredentialStatus = "AssumeRoleUnauthorizedAccess" },
			"role-credentials",
		},
		"metadata off": {
			func(_ *store.World, i *store.Instance) { i.Metadata.HTTPEndpoint = "disabled" }, "metadata-service",
		},
		"clock": {
			func(w *store.World, _ *store.Instance) { w.Settings.ClockOffset = store.Duration(20 * time.Minute) },
			"clock",
		},
		"node subnet": {
			func(w *store.World, _ *store.Instance) { w.Subnets[0].Tags = nil }, "node-subnet-cluster-tag",
		},
		"public subnet": {
			func(w *store.World, _ *store.Instance) { w.Subnets[1].Tags = nil }, "public-subnet-cluster-tag",
		},
		"no internet": {
			func(w *store.World, _ *store.Instance) { w.RouteTables[1].Routes = nil }, "public-subnet-route",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				test.change(w, &i)
				w.Instances = []store.Instance{i}
			})
			r := sim.run(t, i, preflight.Control, nil)
			if got := result(r, test.check); got.Status != preflight.Failed {
				t.Errorf("%s is %q:\n%s", test.check, got.Status, text(r))
			}
		})
	}
}

// TestKeyFixes runs what storage-keys advises, with a key that EBS uses by default.
func TestKeyFixes(t *testing.T) {
	for name, key := range map[string]store.KMSKey{
		"disabled":             {State: store.KeyDisabled},
		"pending deletion":     {State: store.KeyPendingDeletion},
		"its policy excludes":  {ExcludesIAM: true},
		"for signatures":       {Spec: "RSA_2048"},
		"an alias, disabled":   {Alias: "alias/storage", State: store.KeyDisabled},
		"an alias, is allowed": {Alias: "alias/storage"},
	} {
		t.Run(name, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				key.ARN = testStorageKey
				w.KMSKeys = []store.KMSKey{key}
				if key.Alias == "" {
					w.Encryption = store.Encryption{ByDefault: true, DefaultKey: testStorageKey}
				}
				generated(t, w)
			})
			check := func(want preflight.Status) [][]preflight.Fix {
				r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) {
					c.Storage = true
					if key.Alias != "" {
						c.StorageKeys = []string{key.Alias}
					}
				})
				if got := result(r, "storage-keys"); got.Status != want {
					t.Fatalf("%s, want %s:\n%s", got.Status, want, text(r))
				}
				return fixesOf(r)
			}
			if name == "an alias, is allowed" {
				check(preflight.Passed)
				return
			}
			fixes := check(preflight.Failed)
			if err := paste(t, os.Getenv("AWS_ENDPOINT_URL"), sim.Simulator, fixes[0]); err != nil {
				t.Fatal(err)
			}
			check(preflight.Passed)
		})
	}
}

// TestLimitsOfVolumes: with a policy of before, in which the EBS CSI driver may not ask for limits, storage-permissions
// warns; its fix replaces the policy.
func TestLimitsOfVolumes(t *testing.T) {
	for _, without := range []string{"Ec2AskForLimits", "Ec2TagForLimits"} {
		t.Run(without, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				generated(t, w)
				for r := range w.Roles {
					for name, p := range w.Roles[r].Policies {
						p.Statement = slices.DeleteFunc(
							p.Statement, func(s iam.Statement) bool { return s.Sid == without },
						)
						w.Roles[r].Policies[name] = p
					}
				}
			})
			run := func() *preflight.Report {
				return sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) { c.Storage = true })
			}
			r := run()
			if got := result(r, "storage-permissions"); r.Result != preflight.RunPassed ||
				got.Status != preflight.Warned || len(got.Findings) != 1 {
				t.Fatalf("want one warning:\n%s", text(r))
			}
			if err := paste(t, os.Getenv("AWS_ENDPOINT_URL"), sim.Simulator, fixesOf(r)[0]); err != nil {
				t.Fatal(err)
			}
			if r := run(); r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
				t.Errorf("want no findings after the fix:\n%s", text(r))
			}
		})
	}
}

// TestPolicyBeforeChangesOfTags: with a policy of before, by which volumes cannot be deleted after BOSH has changed
// their tags, storage-permissions warns; its fix replaces the policy.
func TestPolicyBeforeChangesOfTags(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		generated(t, w)
		before := iam.Strings{"owned"}
		for _, p := range w.Roles[0].Policies {
			for n, s := range p.Statement {
				if s.Sid != "Ec2ChangeDrivers" {
					continue
				}
				p.Statement[n].Condition = iam.Conditions{
					"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/prod": before},
				}
			}
		}
	})
	run := func() *preflight.Report {
		return sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) { c.Storage = true })
	}
	r := run()
	if got := result(r, "storage-permissions"); r.Result != preflight.RunPassed || got.Status != preflight.Warned ||
		len(got.Findings) != 1 || !strings.Contains(got.Findings[0].Resource, "ec2:DeleteVolume") {
		t.Fatalf("want one warning:\n%s", text(r))
	}
	if err := paste(t, os.Getenv("AWS_ENDPOINT_URL"), sim.Simulator, fixesOf(r)[0]); err != nil {
		t.Fatal(err)
	}
	if r := run(); r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
		t.Errorf("want no findings after the fix:\n%s", text(r))
	}
}

// TestForeignGroupIsNotTagged: nothing is tried on the only group of an instance if it is another cluster's, so no fix
// gives it this cluster's tag. What IAM answers takes the place.
func TestForeignGroupIsNotTagged(t *testing.T) {
	for _, without := range []string{"", "ec2:AuthorizeSecurityGroupIngress", "ec2:DescribeSecurityGroups"} {
		i := simulatedInstance(1, preflight.Control)
		sim := simulate(t, func(w *store.World) {
			w.SecurityGroups[0].Tags = store.Tags{"kubernetes.io/cluster/staging": "shared"}
			w.Instances = []store.Instance{i}
			generated(t, w, without)
		})
		r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) {
			c.ConfigureCloudRoutes, c.PodNetwork = true, accounts.PodNetwork
		})
		if got := result(r, "pod-network-ingress").Findings; len(got) > 0 && len(got[0].Fix[0].Commands) > 0 &&
			without != "ec2:DescribeSecurityGroups" {
			t.Errorf("without %q: %s", without, got[0].Fix[0].Commands)
		}
		for _, fix := range fixesOf(r) {
			for _, command := range fix[0].Commands {
				if strings.Contains(command, "create-tags") && strings.Contains(command, awssim.LabSecurityGroup) {
					t.Errorf("without %q: %s", without, command)
				}
			}
		}
		if got := result(r, "security-group-permissions"); without == "" && got.Status == preflight.Failed {
			t.Errorf("the right policy lacks permissions:\n%s", text(r))
		}
		if names := fmt.Sprint(r.Results); without == "ec2:AuthorizeSecurityGroupIngress" &&
			!strings.Contains(names, without) {
			t.Errorf("%s is not named:\n%s", without, text(r))
		}
	}
}

// TestProbesTheTaggedGroup: permissions are tested on the group that the cloud controller uses, regardless of the order
// of the instance's groups.
func TestProbesTheTaggedGroup(t *testing.T) {
	i := simulatedInstance(1, preflight.Control)
	i.SecurityGroups = []string{"sg-00000000000000001", awssim.LabSecurityGroup}
	sim := simulate(t, func(w *store.World) {
		other := w.SecurityGroups[0]
		other.ID, other.Name, other.Tags = i.SecurityGroups[0], "other", nil
		w.SecurityGroups = append(w.SecurityGroups, other)
		w.Instances = []store.Instance{i}
		generated(t, w)
	})
	r := sim.run(t, i, preflight.Control, nil)
	if got := result(r, "security-group-permissions"); got.Status != preflight.Passed {
		t.Errorf("the permissions are %s:\n%s", got.Status, text(r))
	}
	for _, c := range sim.Calls("ec2:AuthorizeSecurityGroupIngress") {
		if c.Params["GroupId"] != awssim.LabSecurityGroup {
			t.Errorf("tested on %s", c.Params["GroupId"])
		}
	}
}

const testStorageKey = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"

var both = []preflight.Role{preflight.Control, preflight.Worker}

func quick() *preflight.Backoff {
	return &preflight.Backoff{First: time.Millisecond, Limit: 5 * time.Millisecond}
}

func setenv(t testing.TB, key, value string) {
	if s, ok := t.(interface{ Setenv(key, value string) }); ok {
		s.Setenv(key, value)
	}
}

func text(r *preflight.Report) string {
	var b bytes.Buffer
	preflight.Printer{}.Table(&b, r)
	preflight.Printer{}.Findings(&b, r)
	return b.String()
}

func result(r *preflight.Report, id string) preflight.Result {
	for _, result := range r.Results {
		if result.Check == id {
			return result
		}
	}
	return preflight.Result{}
}
