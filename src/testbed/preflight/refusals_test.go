package preflight_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	awsaccount "kubernetes-release/cloud/aws/account"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// TestRefusedAdvice: what account says of mistakes that prepare refuses or cannot correct. That it advises to prepare
// the account only after a correction is what check looks at.
func TestRefusedAdvice(t *testing.T) {
	const gone, elsewhere = "sg-0123456789abcdef0", "sg-0e0e0e0e0e0e0e0e0"
	for name, c := range map[string]struct {
		change  func(*operator)
		want    string
		refused bool
	}{
		"the trust policy of another service": {
			func(o *operator) {
				o.update(func(w *store.World) { store.Find(w.Roles, "kubernetes-control").Untrusted = true })
			},
			"First correct what stops prepare. IAM role kubernetes-control: its trust policy does not let EC2", true,
		},
		"statements of one's own in the policy": {
			func(o *operator) {
				o.update(func(w *store.World) {
					store.Find(w.Roles, "kubernetes-control").Policies["kubernetes"] = someStatement
				})
			},
			"it would lose a statement without a Sid, of s3:GetObject", true,
		},
		"the group is gone": {
			func(o *operator) {
				group := groupOf(o.sim.World()).ID
				o.update(func(w *store.World) {
					w.SecurityGroups = w.SecurityGroups[:1]
					w.SecurityGroups[0].Ingress = nil
				})
				o.edit(group, gone)
			},
			"security_group " + gone + " is not in the VPC " + awssim.LabVPC, true,
		},
		"the group of another VPC": {
			func(o *operator) {
				group := groupOf(o.sim.World()).ID
				o.update(func(w *store.World) {
					w.VPCs = append(w.VPCs, store.VPC{
						ID: "vpc-0e0e0e0e0e0e0e0e0", CIDR: netip.MustParsePrefix("10.9.0.0/16"),
					})
					w.SecurityGroups = append(w.SecurityGroups, store.SecurityGroup{
						ID: elsewhere, Name: "nodes", Description: "of another VPC", VPC: "vpc-0e0e0e0e0e0e0e0e0",
						Tags: store.Tags{},
					})
				})
				o.edit(group, elsewhere)
			},
			"security_group " + elsewhere + " is not in the VPC " + awssim.LabVPC, true,
		},
		"another policy denies PassRole": {
			func(o *operator) {
				o.update(func(w *store.World) {
					director := &w.StaticKeys[1]
					director.Policies = append(director.Policies, iam.Policy{
						Version: "2012-10-17", Statement: iam.Statements{{
							Effect: "Deny", Action: iam.Strings{"iam:PassRole"}, Resource: iam.Strings{"*"},
						}},
					})
				})
			},
			"aws iam list-attached-user-policies --region us-east-1 --user-name bosh", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := newOperator(t, ownershipWorld())
			op.mustPrepare()
			c.change(op)
			result, text := op.check()
			if result != string(preflight.RunFailed) || !strings.Contains(text, c.want) {
				t.Errorf("%s, want %q in\n%s", result, c.want, text)
			}
			if strings.Contains(text, "Prepare the account:") {
				t.Errorf("account advises to prepare the account, without a correction:\n%s", text)
			}
			if out, err := op.prepare(); (err != nil) != c.refused {
				t.Errorf("prepare: %v\n%s", err, out)
			}
		})
	}
}

// TestDeniedReads: what may not be read is named, hides nothing else, and keeps the check from passing.
func TestDeniedReads(t *testing.T) {
	const (
		member = "role kubernetes-worker in its instance profile"
		nats   = "rule: agents reach the Director's NATS"
		tag    = "tag kubernetes.io/cluster/prod of the subnet "
		wrong  = " Wanted:it exists, as docs/aws.md describes it Found:it "
	)
	for action, unseen := range map[string]string{
		"ec2:DescribeTags":       tag + awssim.LabNodeSubnet(1),
		"iam:GetUserPolicy":      "the Director may pass both roles: ",
		"iam:GetRolePolicy":      "inline policy kubernetes of the role kubernetes-worker",
		"iam:GetInstanceProfile": member,
		"iam:GetRole":            "IAM role kubernetes-worker",
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			op := newOperator(t, ownershipWorld())
			op.mustPrepare()
			op.fault(awssim.Fault{
				Action: action, Kind: awssim.FaultError, Code: "AccessDenied", Message: "refused", Status: 403,
			})
			result, text := op.check()
			if result != string(preflight.RunError) || !strings.Contains(text, "{Resource:"+unseen) ||
				!strings.Contains(text, "Allow your own user or role the action that is denied.") {
				t.Errorf("%s, want %q in\n%s", result, unseen, text)
			}
			op.update(func(w *store.World) {
				w.Roles = append(w.Roles, store.Role{Name: "other"})
				store.Find(w.InstanceProfiles, "kubernetes-worker").Role = "other"
				w.SecurityGroups[0].Ingress = nil
				for i := range w.Subnets {
					w.Subnets[i].Tags = store.Tags{}
				}
			})
			result, text = op.check()
			if result != string(preflight.RunFailed) {
				t.Errorf("with mistakes: %s\n%s", result, text)
			}
			for _, mistake := range []string{member, nats, tag + awssim.LabNodeSubnet(1)} {
				if mistake != unseen && !strings.Contains(text, "{Resource:"+mistake+wrong) {
					t.Errorf("%q is missing in\n%s", mistake, text)
				}
			}
		})
	}
}

// TestUnseenExitCode: the command does not end as if the account were right, or wrong, and names what is unseen.
func TestUnseenExitCode(t *testing.T) {
	sim, _ := simulateAccount(t, ownershipWorld())
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, action := range []string{
		"ec2:DescribeTags", "ec2:DescribeSubnets", "ec2:DescribeSecurityGroups", "sts:GetCallerIdentity",
	} {
		sim.ClearFaults()
		if err := sim.InjectFault(awssim.Fault{
			Action: action, Kind: awssim.FaultError, Code: "UnauthorizedOperation", Message: "no", Status: 403,
		}); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := account(t, "--vars", file, "--cluster", "prod")
		_, operation, _ := strings.Cut(action, ":")
		if code != 2 || !strings.Contains(stdout, "ERROR: 0 checks failed") || !strings.Contains(stderr, operation) ||
			!strings.Contains(stderr, "not everything could be checked") {
			t.Errorf("%s: exit code %d\n%s%s", action, code, stdout, stderr)
		}
	}
}

// TestWrongNames: names of the Director, and the place of the group's id, are looked up before anything is created.
func TestWrongNames(t *testing.T) {
	for name, c := range map[string]struct{ old, replacement, want, denied string }{
		"user": {"user/bosh", "user/bsoh", "IAM has no user bsoh: correct director_iam in", ""},
		"role": {"user/bosh", "role/bosh", "IAM has no role bosh: correct director_iam in", ""},
		"user, without GetUser": {
			"user/bosh", "user/bsoh", "IAM has no user bsoh: correct director_iam in", "iam:GetUser",
		},
		"group": {
			awssim.DirectorSecurityGroup, "sg-0123456789abcdef0", "there is no security group sg-0123456789abcdef0", "",
		},
		"a file that cannot be edited": {
			"security_group: sg-0aaaaaaaaaaaaaaaa", "group: &g sg-0aaaaaaaaaaaaaaaa\nsecurity_group: *g",
			"security_group cannot be replaced there: its value is an alias", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := newOperator(t, ownershipWorld())
			op.edit(c.old, c.replacement)
			if c.denied != "" {
				op.fault(awssim.Fault{
					Action: c.denied, Kind: awssim.FaultError, Code: "AccessDenied", Message: "refused", Status: 403,
				})
			}
			before := worldText(t, op.sim)
			for command, run := range map[string]func() (string, error){
				"dry run": op.dryRun, "prepare": func() (string, error) { return op.prepare() },
			} {
				out, err := run()
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(out, "create") {
					t.Errorf("%s: %v, want %q\n%s", command, err, c.want, out)
				}
			}
			if result, text := op.check(); result != string(preflight.RunFailed) || !strings.Contains(text, c.want) {
				t.Errorf("account: %s, want %q\n%s", result, c.want, text)
			}
			if worldText(t, op.sim) != before {
				t.Error("something was created")
			}
		})
	}
}

// TestShownLate: AWS may not know at once what a call before has created.
func TestShownLate(t *testing.T) {
	for action, code := range map[string]string{
		"AuthorizeSecurityGroupIngress": "InvalidGroup.NotFound",
		"PutRolePolicy":                 "NoSuchEntity",
		"AddRoleToInstanceProfile":      "NoSuchEntity",
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			op := newOperator(t, ownershipWorld())
			op.fault(awssim.Fault{
				Action: "*:" + action, Kind: awssim.FaultError, Code: code, Message: "not yet", Status: 400, Count: 2,
			})
			op.mustPrepare()
			if result, text := op.check(); result != string(preflight.RunPassed) {
				t.Errorf("%s\n%s", result, text)
			}
		})
	}
}

// TestGroupInUse: who keeps EC2 from deleting the group is named, and the file keeps its id.
func TestGroupInUse(t *testing.T) {
	op := newOperator(t, ownershipWorld())
	op.mustPrepare()
	group := groupOf(op.sim.World()).ID
	op.update(func(w *store.World) {
		w.LoadBalancers = append(w.LoadBalancers, store.LoadBalancer{
			ARN:  "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/web/0123456789abcdef",
			Name: "web", DNSName: "web.elb.us-east-1.amazonaws.com", Scheme: "internal", VPC: awssim.LabVPC,
			Addresses:      map[string]netip.Addr{awssim.LabNodeSubnet(1): netip.MustParseAddr("10.0.16.77")},
			SecurityGroups: []string{group}, IPAddressType: "ipv4", Tags: store.Tags{},
		})
	})
	out, err := op.delete()
	if err == nil || !strings.Contains(err.Error(), "(ELB net/web/0123456789abcdef) is in it") {
		t.Errorf("%v\n%s", err, out)
	}
	if settings, err := awsaccount.ReadSettings(op.file, "prod"); err != nil || settings.SecurityGroup != group {
		t.Errorf("the file does not have %s: %+v, %v", group, settings, err)
	}
	op.update(func(w *store.World) { w.LoadBalancers = nil })
	if out, err := op.delete(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	mustBeEmpty(t, op)
}

// TestCallsOfPrepare: an empty account needs this many calls that change something, and a prepared one none.
func TestCallsOfPrepare(t *testing.T) {
	op := newOperator(t, ownershipWorld())
	changes := func() (n int) {
		for _, c := range op.sim.Calls("") {
			if !slices.ContainsFunc([]string{"Describe", "Get", "Simulate"}, func(prefix string) bool {
				return strings.HasPrefix(c.Action, prefix)
			}) {
				n++
			}
		}
		return n
	}
	for _, want := range []int{26, 26} {
		op.mustPrepare()
		if n := changes(); n != want {
			t.Errorf("%d calls have changed something, want %d", n, want)
		}
	}
}
