package preflight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"

	cloudaws "kubernetes-release/cloud/aws"
	awsaccount "kubernetes-release/cloud/aws/account"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/accounts/results"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// operator runs the commands of cloud-preflight account in this process.
type operator struct {
	t    *testing.T
	sim  *awssim.Simulator
	url  string
	file string
	// lost is the action of which one answer is lost.
	lost string
	// after ends the command once AWS has done this action.
	after string
	kill  context.CancelFunc
	// asked is how often AWS was asked for an action.
	asked map[string]int
}

// newOperator is one with an account, and with the variables of the cluster prod.
func newOperator(t *testing.T, world *store.World) *operator {
	t.Helper()
	sim, err := awssim.New(world, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	o := &operator{t: t, sim: sim, file: variablesFile(t), asked: map[string]int{}}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := new(bytes.Buffer)
		_, _ = body.ReadFrom(r.Body)
		r.Body = readCloser{bytes.NewReader(body.Bytes())}
		if form, err := url.ParseQuery(body.String()); err == nil {
			o.asked[form.Get("Action")]++
		}
		if o.lost != "" && strings.Contains(body.String(), "Action="+o.lost+"&") {
			o.lost = ""
			sim.Handler().ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		sim.Handler().ServeHTTP(w, r)
		if o.after != "" && strings.Contains(body.String(), "Action="+o.after+"&") && o.kill != nil {
			o.kill()
		}
	}))
	t.Cleanup(api.Close)
	o.url = api.URL
	return o
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// account is a new one, as each command has it.
func (o *operator) account(out *bytes.Buffer, adopt ...string) *awsaccount.Account {
	o.t.Helper()
	settings, err := awsaccount.ReadSettings(o.file, "prod")
	if err != nil {
		o.t.Fatal(err)
	}
	config := aws.Config{
		Region: awssim.LabRegion, BaseEndpoint: &o.url,
		Credentials: awscredentials.NewStaticCredentialsProvider(
			awssim.LabAccessKeyID, awssim.LabSecretAccessKey, "",
		),
	}
	a := awsaccount.New(config, settings, cloudaws.PolicyOptions{Storage: true}, out)
	a.Adopt = adopt
	return a
}

func (o *operator) context() context.Context {
	ctx, cancel := context.WithCancel(o.t.Context())
	o.kill = cancel
	return ctx
}

func (o *operator) prepare(adopt ...string) (string, error) {
	var out bytes.Buffer
	err := o.account(&out, adopt...).Prepare(o.context(), false)
	return out.String(), err
}

func (o *operator) dryRun() (string, error) {
	var out bytes.Buffer
	err := o.account(&out).Prepare(o.context(), true)
	return out.String(), err
}

func (o *operator) delete() (string, error) {
	var out bytes.Buffer
	err := o.account(&out).Delete(o.context(), false)
	return out.String(), err
}

func (o *operator) dryDelete() (string, error) {
	var out bytes.Buffer
	err := o.account(&out).Delete(o.context(), true)
	return out.String(), err
}

// check is the result, and the text of what was found. Commands to prepare the account must not be refused, unless the
// text in front of them says what to correct first.
func (o *operator) check() (result, text string) {
	o.t.Helper()
	report, err := o.account(new(bytes.Buffer)).Check(o.context())
	if err != nil {
		return "error", err.Error()
	}
	seen := map[string]bool{}
	for _, r := range report.Results {
		for _, f := range r.Findings {
			for _, fix := range f.Fix {
				if key := fmt.Sprint(fix); !seen[key] {
					seen[key] = true
					o.checkAdvice(fix)
				}
			}
		}
	}
	return string(report.Result), fmt.Sprintf("%+v", report.Results)
}

// correctFirst begins the text of a fix whose command is refused as long as nothing is corrected.
const correctFirst = "First correct what stops prepare"

// adopted are what options of prepare adopt.
func adopted(options string) (objects []string) {
	for _, option := range strings.Split(options, " --adopt ")[1:] {
		objects = append(objects, strings.Fields(option)[0])
	}
	return objects
}

func (o *operator) checkAdvice(fix preflight.Fix) {
	o.t.Helper()
	for _, command := range fix.Commands {
		_, options, ok := strings.Cut(command, "cloud-preflight account prepare ")
		if !ok {
			continue
		}
		err := o.account(new(bytes.Buffer), adopted(options)...).Prepare(o.context(), true)
		if first := strings.HasPrefix(fix.Text, correctFirst); first != (err != nil) {
			o.t.Errorf("the fix is %q %q, and prepare says: %v", fix.Text, command, err)
		}
	}
}

func (o *operator) update(change func(*store.World)) {
	o.t.Helper()
	if err := o.sim.Update(func(w *store.World) error { change(w); return nil }); err != nil {
		o.t.Fatal(err)
	}
}

// fault has AWS fail in this way only.
func (o *operator) fault(f awssim.Fault) {
	o.t.Helper()
	o.sim.ClearFaults()
	if err := o.sim.InjectFault(f); err != nil {
		o.t.Fatal(err)
	}
}

// edit replaces a part of the file.
func (o *operator) edit(old, replacement string) {
	o.t.Helper()
	text, err := os.ReadFile(o.file)
	if err != nil {
		o.t.Fatal(err)
	}
	edited := strings.Replace(string(text), old, replacement, 1)
	if edited == string(text) {
		o.t.Fatalf("%q is not in the file", old)
	}
	if err := os.WriteFile(o.file, []byte(edited), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// mustPrepare prepares the account without an error.
func (o *operator) mustPrepare() {
	o.t.Helper()
	if out, err := o.prepare(); err != nil {
		o.t.Fatalf("%v\n%s", err, out)
	}
}

const (
	markKey        = "cloud-preflight/prod"
	passRoleOfProd = "kubernetes-pass-role-prod"
)

// nodeSubnet is the first subnet of nodes in an empty account.
func nodeSubnet(w *store.World) *store.Subnet { return store.Find(w.Subnets, awssim.LabNodeSubnet(1)) }

func groupOf(w *store.World) *store.SecurityGroup {
	for i := range w.SecurityGroups {
		if w.SecurityGroups[i].Name == "kubernetes-prod" {
			return &w.SecurityGroups[i]
		}
	}
	return nil
}

var someStatement = iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
	Effect: "Allow", Action: iam.Strings{"s3:GetObject"}, Resource: iam.Strings{"*"},
}}}

// withStatement adds a statement to a policy.
func withStatement(p iam.Policy) iam.Policy {
	p.Statement = append(iam.Statements{}, append(p.Statement, someStatement.Statement...)...)
	return p
}

// handmade is what somebody has done in an account, and what the commands make of it.
type handmade struct {
	change func(*store.World)
	// stops is what prepare says when it stops, empty if it goes on; adopt are the options with which it goes on too.
	stops string
	adopt []string
	// left is whether Delete leaves the object as it is.
	left bool
	// fails is what Delete says when it fails.
	fails string
	// listed is the group whose id is in the file; empty: that of the file's example.
	listed string
	// differs is whether account fails after an edit.
	differs bool
}

// object is a kind of what prepare creates. Where a map is nil, a comment says where the cases are, or why there are
// none.
type object struct {
	what             string // of its step
	get              func(*store.World) any
	create, remove   string              // actions; remove is empty if Delete leaves the object
	read             string              // action
	limit            string              // code of AWS
	foreign, another map[string]handmade // before prepare: of the same name, and tagged for another cluster
	edited           map[string]handmade // after prepare
}

var staging = store.Tags{"kubernetes.io/cluster/staging": "shared"}

const stagingToo = "tagged for another cluster too"

var objects = map[string]object{
	"role": {
		what: "IAM role kubernetes-worker", create: "CreateRole", remove: "DeleteRole", read: "GetRole",
		limit: "LimitExceeded",
		get:   roleWithoutPolicies,
		foreign: map[string]handmade{
			"without tags": {
				change: func(w *store.World) { w.Roles = []store.Role{{Name: "kubernetes-worker"}} },
				stops:  "--adopt role/kubernetes-worker", adopt: []string{"role/kubernetes-worker"}, left: true,
			},
			"with the cluster's tag": {
				change: func(w *store.World) {
					w.Roles = []store.Role{{
						Name: "kubernetes-worker", Tags: store.Tags{"kubernetes.io/cluster/prod": "shared"},
					}}
				},
				stops: "--adopt role/kubernetes-worker", adopt: []string{"role/kubernetes-worker"}, left: true,
			},
		},
		another: map[string]handmade{
			"tagged": {
				change: func(w *store.World) { w.Roles = []store.Role{{Name: "kubernetes-worker", Tags: staging}} },
				stops:  "it has the tag of the cluster staging", left: true,
			},
			"created by prepare": {
				change: func(w *store.World) {
					w.Roles = []store.Role{{
						Name: "kubernetes-worker", Tags: store.Tags{"cloud-preflight/staging": "created"},
					}}
				},
				stops: "it has the tag of the cluster staging", left: true,
			},
		},
		edited: map[string]handmade{
			"another trust policy": {
				change: func(w *store.World) { store.Find(w.Roles, "kubernetes-worker").Untrusted = true },
				stops:  "its trust policy does not let EC2 assume it", differs: true,
			},
			"another policy": {
				change: func(w *store.World) {
					store.Find(w.Roles, "kubernetes-worker").Policies["mine"] = someStatement
				},
				fails: "DeleteConflict",
			},
			"another tag": {
				change: func(w *store.World) { store.Find(w.Roles, "kubernetes-worker").Tags["team"] = "a" },
			},
			stagingToo: {
				change: func(w *store.World) {
					maps.Copy(store.Find(w.Roles, "kubernetes-worker").Tags, staging)
				},
				stops: "it has the tag of the cluster staging", left: true,
			},
		},
	},
	"tag on role": {
		what: "IAM role kubernetes-worker", create: "CreateRole", remove: "DeleteRole", read: "GetRole",
		limit: "LimitExceeded", // of tags; a role of its own has two
		get:   func(w *store.World) any { return value(store.Find(w.Roles, "kubernetes-worker")) },
		// Foreign tags are the cases of the role.
		edited: map[string]handmade{
			"removed": {
				change: func(w *store.World) { delete(store.Find(w.Roles, "kubernetes-worker").Tags, markKey) },
				stops:  "--adopt role/kubernetes-worker", adopt: []string{"role/kubernetes-worker"},
			},
		},
	},
	"role policy": {
		what:   "inline policy kubernetes of the role kubernetes-worker, or others",
		create: "PutRolePolicy", remove: "DeleteRolePolicy", read: "GetRolePolicy", limit: "LimitExceeded",
		get: func(w *store.World) any {
			if role := store.Find(w.Roles, "kubernetes-worker"); role != nil {
				return role.Policies["kubernetes"]
			}
			return nil
		},
		foreign: map[string]handmade{
			"in a role of somebody else": { // only such a role can have one
				change: func(w *store.World) {
					w.Roles = []store.Role{{
						Name: "kubernetes-worker", Policies: map[string]iam.Policy{"kubernetes": someStatement},
					}}
				},
				stops: "a statement without a Sid, of s3:GetObject", left: true,
			},
		},
		another: map[string]handmade{
			"in its conditions": {
				change: func(w *store.World) {
					p := iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
						Effect: "Allow", Action: iam.Strings{"ec2:DeleteVolume"}, Resource: iam.Strings{"*"},
						Condition: iam.Conditions{
							"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/staging": {"owned"}},
						},
					}}}
					w.Roles = []store.Role{{
						Name: "kubernetes-worker", Policies: map[string]iam.Policy{"kubernetes": p},
					}}
				},
				stops: "it has the tag of the cluster staging", left: true,
			},
		},
		edited: map[string]handmade{
			"in a role " + stagingToo: {
				change: func(w *store.World) {
					maps.Copy(store.Find(w.Roles, "kubernetes-worker").Tags, staging)
				},
				stops: "it has the tag of the cluster staging", left: true,
			},
			"a statement more": { // it goes with the role
				change: func(w *store.World) {
					role := store.Find(w.Roles, "kubernetes-worker")
					role.Policies["kubernetes"] = withStatement(role.Policies["kubernetes"])
				},
				stops: "--replace",
			},
			"another statement instead": {
				change: func(w *store.World) {
					store.Find(w.Roles, "kubernetes-worker").Policies["kubernetes"] = someStatement
				},
				stops: "a statement without a Sid, of s3:GetObject", differs: true,
			},
			"a statement less": {
				change: func(w *store.World) {
					role := store.Find(w.Roles, "kubernetes-worker")
					policy := role.Policies["kubernetes"]
					policy.Statement = policy.Statement[1:]
					role.Policies["kubernetes"] = policy
				},
				differs: true,
			},
		},
	},
	"inline policy of the Director": {
		what:   "the Director may pass both roles: inline policy kubernetes-pass-role-prod of the user bosh, or others",
		create: "PutUserPolicy", remove: "DeleteUserPolicy", read: "GetUserPolicy", limit: "LimitExceeded",
		get: func(w *store.World) any { return w.StaticKeys[1].Inline[passRoleOfProd] },
		foreign: map[string]handmade{
			"other statements": {
				change: func(w *store.World) {
					w.StaticKeys[1].Inline = map[string]iam.Policy{passRoleOfProd: someStatement}
				},
				stops: "--replace", left: true,
			},
			"sufficient": {
				change: func(w *store.World) {
					w.StaticKeys[1].Inline = map[string]iam.Policy{passRoleOfProd: passRole}
				},
				left: true,
			},
		},
		// Its name is the cluster's.
		edited: map[string]handmade{
			"a statement more": {
				change: func(w *store.World) {
					inline := w.StaticKeys[1].Inline
					inline[passRoleOfProd] = withStatement(inline[passRoleOfProd])
				},
				left: true, // and the Director may still pass the roles
			},
			"other roles": {
				change: func(w *store.World) {
					inline := w.StaticKeys[1].Inline
					inline[passRoleOfProd].Statement[0].Resource = iam.Strings{"arn:aws:iam::123456789012:role/other"}
				},
				differs: true,
			},
			"another statement instead": {
				change: func(w *store.World) { w.StaticKeys[1].Inline[passRoleOfProd] = someStatement },
				stops:  "a statement without a Sid, of s3:GetObject", left: true, differs: true,
			},
		},
	},
	"instance profile": {
		what:   "instance profile kubernetes-worker",
		create: "CreateInstanceProfile", remove: "DeleteInstanceProfile", read: "GetInstanceProfile",
		limit: "LimitExceeded",
		get:   func(w *store.World) any { return value(store.Find(w.InstanceProfiles, "kubernetes-worker")) },
		foreign: map[string]handmade{
			"empty": {
				change: func(w *store.World) {
					w.InstanceProfiles = []store.InstanceProfile{{Name: "kubernetes-worker"}}
				},
				stops: "--adopt instance-profile/kubernetes-worker", left: true,
				adopt: []string{"instance-profile/kubernetes-worker"},
			},
			"with another role": {
				change: func(w *store.World) {
					w.Roles = []store.Role{{Name: "other"}}
					w.InstanceProfiles = []store.InstanceProfile{{Name: "kubernetes-worker", Role: "other"}}
				},
				stops: "the instance profile has the role other", left: true,
			},
		},
		another: map[string]handmade{
			"tagged": {
				change: func(w *store.World) {
					w.InstanceProfiles = []store.InstanceProfile{{Name: "kubernetes-worker", Tags: staging}}
				},
				stops: "it has the tag of the cluster staging", left: true,
			},
		},
		edited: map[string]handmade{
			"with another role": {
				change: func(w *store.World) {
					w.Roles = append(w.Roles, store.Role{Name: "other"})
					store.Find(w.InstanceProfiles, "kubernetes-worker").Role = "other"
				},
				stops: "the instance profile has the role other", left: true, differs: true,
			},
			stagingToo: {
				change: func(w *store.World) {
					maps.Copy(store.Find(w.InstanceProfiles, "kubernetes-worker").Tags, staging)
				},
				stops: "it has the tag of the cluster staging", left: true,
			},
			"without the mark": {
				change: func(w *store.World) {
					delete(store.Find(w.InstanceProfiles, "kubernetes-worker").Tags, markKey)
				},
				stops: "--adopt instance-profile/kubernetes-worker",
				adopt: []string{"instance-profile/kubernetes-worker"},
			},
		},
	},
	"role in an instance profile": {
		what:   "role kubernetes-worker in its instance profile",
		create: "AddRoleToInstanceProfile", remove: "RemoveRoleFromInstanceProfile", read: "GetInstanceProfile",
		limit: "LimitExceeded",
		get: func(w *store.World) any {
			if profile := store.Find(w.InstanceProfiles, "kubernetes-worker"); profile != nil && profile.Role != "" {
				return profile.Role
			}
			return nil
		},
		// Foreign ones are the cases of the profile, and so is another role.
		edited: map[string]handmade{
			"removed": {
				change:  func(w *store.World) { store.Find(w.InstanceProfiles, "kubernetes-worker").Role = "" },
				differs: true,
			},
		},
	},
	"security group": {
		what:   "security group of the nodes",
		create: "CreateSecurityGroup", remove: "DeleteSecurityGroup", read: "DescribeSecurityGroups",
		limit: "SecurityGroupLimitExceeded",
		get:   groupWithoutRules,
		foreign: map[string]handmade{
			"with rules": {
				change: func(w *store.World) { handmadeGroup(w, store.Tags{}) }, stops: handmadeGroupID, left: true,
			},
			"with the cluster's tag": {
				change: func(w *store.World) { handmadeGroup(w, store.Tags{"kubernetes.io/cluster/prod": "shared"}) },
				stops:  handmadeGroupID, left: true,
			},
		},
		another: map[string]handmade{
			"tagged": {
				change: func(w *store.World) { handmadeGroup(w, staging) },
				stops:  "has the tag of the cluster staging", left: true,
			},
		},
		edited: map[string]handmade{
			"another rule": {change: func(w *store.World) {
				g := groupOf(w)
				g.Ingress = append(g.Ingress, store.Rule{Protocol: "tcp", FromPort: 80, ToPort: 80, CIDR: "0.0.0.0/0"})
			}},
			stagingToo: {
				change: func(w *store.World) { maps.Copy(groupOf(w).Tags, staging) },
				stops:  "has the tag of the cluster staging", left: true, differs: true,
			},
			"without the mark": {change: func(w *store.World) { delete(groupOf(w).Tags, markKey) }, left: true},
			"without the cluster's tag": {
				change:  func(w *store.World) { delete(groupOf(w).Tags, "kubernetes.io/cluster/prod") },
				differs: true,
			},
		},
	},
	"rule": {
		what:   "rule: agents reach the Director's NATS",
		create: "AuthorizeSecurityGroupIngress", remove: "RevokeSecurityGroupIngress", read: "DescribeSecurityGroups",
		limit: "RulesPerSecurityGroupLimitExceeded",
		get:   natsRule,
		// Before prepare there is a group that a rule can name only if the file has its id.
		foreign: map[string]handmade{
			"made by hand": {
				change: func(w *store.World) { handmadeRules(w, "NATS") }, left: true, listed: handmadeGroupID,
			},
		},
		another: map[string]handmade{
			"created by prepare": {
				change: func(w *store.World) { handmadeRules(w, "Created by cloud-preflight for the cluster staging") },
				left:   true, listed: handmadeGroupID,
			},
		},
		edited: map[string]handmade{
			"made by hand": {
				change: func(w *store.World) { w.SecurityGroups[0].Ingress[0].Description = "NATS" },
				left:   true, fails: "aws ec2 revoke-security-group-ingress",
			},
			"removed": {change: func(w *store.World) { w.SecurityGroups[0].Ingress = nil }, differs: true},
		},
	},
	"tag on subnet": {
		what:   "tag kubernetes.io/cluster/prod of the subnet " + awssim.LabNodeSubnet(1),
		create: "CreateTags", remove: "DeleteTags", read: "DescribeTags", limit: "TagLimitExceeded",
		get: func(w *store.World) any {
			tags := store.Tags{}
			for key, value := range nodeSubnet(w).Tags {
				if strings.HasPrefix(key, "kubernetes.io/cluster/") || strings.HasPrefix(key, "cloud-preflight/") {
					tags[key] = value
				}
			}
			return tags
		},
		foreign: map[string]handmade{
			"shared": {
				change: func(w *store.World) { setTag(w, "kubernetes.io/cluster/prod", "shared") }, left: true,
			},
			"another value": {
				change: func(w *store.World) { setTag(w, "kubernetes.io/cluster/prod", "yes") },
				stops:  `it has the value "yes"`, left: true,
			},
		},
		another: map[string]handmade{
			"tagged": {
				change: func(w *store.World) { setTag(w, "kubernetes.io/cluster/staging", "shared") }, left: true,
			},
		},
		edited: map[string]handmade{
			"another value": {
				change: func(w *store.World) { setTag(w, "kubernetes.io/cluster/prod", "yes") }, differs: true,
			},
			"removed": {
				change:  func(w *store.World) { delete(nodeSubnet(w).Tags, "kubernetes.io/cluster/prod") },
				differs: true,
			},
		},
	},
	"tag role/elb":          roleTag(awssim.LabPublicSubnet(1), "kubernetes.io/role/elb"),
	"tag role/internal-elb": roleTag(awssim.LabNodeSubnet(1), "kubernetes.io/role/internal-elb"),
}

// roleTag is the tag by which load balancers choose a subnet.
func roleTag(subnet, key string) object {
	set := func(w *store.World, value string) { store.Find(w.Subnets, subnet).Tags[key] = value }
	return object{
		what:   "tag " + key + " of the subnet " + subnet,
		create: "CreateTags", read: "DescribeTags", limit: "TagLimitExceeded",
		get: func(w *store.World) any { return store.Find(w.Subnets, subnet).Tags[key] },
		foreign: map[string]handmade{
			"made by hand": {change: func(w *store.World) { set(w, "yes") }, left: true},
		},
		another: map[string]handmade{
			"tagged": {
				change: func(w *store.World) {
					set(w, "1")
					maps.Copy(store.Find(w.Subnets, subnet).Tags, staging)
				},
				left: true,
			},
		},
		edited: map[string]handmade{
			"another value": {change: func(w *store.World) { set(w, "") }, left: true},
			"removed": {
				change: func(w *store.World) { delete(store.Find(w.Subnets, subnet).Tags, key) }, differs: true,
			},
		},
	}
}

// roleWithoutPolicies is the worker's role; prepare gives one that it adopts a policy.
func roleWithoutPolicies(w *store.World) any {
	role := store.Find(w.Roles, "kubernetes-worker")
	if role == nil {
		return nil
	}
	without := *role
	without.Policies = nil
	return without
}

// groupWithoutRules is the nodes' group, without what prepare adds to one that it did not create.
func groupWithoutRules(w *store.World) any {
	g := groupOf(w)
	if g == nil {
		return nil
	}
	without := *g
	without.Ingress, without.Tags = nil, nil
	return without
}

// value is a copy of what a pointer leads to, nil if it is nil.
func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

const handmadeGroupID = "sg-0c0c0c0c0c0c0c0c0"

func handmadeGroup(w *store.World, tags store.Tags) {
	w.SecurityGroups = append(w.SecurityGroups, store.SecurityGroup{
		ID: handmadeGroupID, Name: "kubernetes-prod", Description: "mine", VPC: awssim.LabVPC, Tags: tags,
		Ingress: []store.Rule{{Protocol: "tcp", FromPort: 443, ToPort: 443, CIDR: "192.0.2.0/24"}},
		Egress:  []store.Rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}},
	})
}

// handmadeRules are those of the Director's group for a group that prepare did not create.
func handmadeRules(w *store.World, description string) {
	handmadeGroup(w, store.Tags{})
	for _, port := range []int{4222, 25250} {
		w.SecurityGroups[0].Ingress = append(w.SecurityGroups[0].Ingress, store.Rule{
			Protocol: "tcp", FromPort: port, ToPort: port, Group: handmadeGroupID, Description: description,
		})
	}
}

func natsRule(w *store.World) any {
	for _, r := range w.SecurityGroups[0].Ingress {
		if r.FromPort == 4222 {
			return r
		}
	}
	return nil
}

func setTag(w *store.World, key, value string) {
	s := nodeSubnet(w)
	if s.Tags == nil {
		s.Tags = store.Tags{}
	}
	s.Tags[key] = value
}

func ownershipWorld() *store.World { return awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16")) }

// TestOwnership: what prepare did not create it neither changes nor deletes, and what it did create it finds again.
func TestOwnership(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes with the race detector")
	}
	for name, o := range objects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("absent", func(t *testing.T) { testAbsent(t, o) })
			t.Run("ours", func(t *testing.T) { testOurs(t, o) })
			for name, c := range o.foreign {
				t.Run("foreign/"+name, func(t *testing.T) { testForeign(t, o, c) })
			}
			for name, c := range o.another {
				t.Run("another cluster/"+name, func(t *testing.T) { testForeign(t, o, c) })
			}
			for name, c := range o.edited {
				t.Run("edited/"+name, func(t *testing.T) { testEdited(t, o, c) })
			}
			t.Run("at a limit", func(t *testing.T) { testError(t, o, o.limit) })
			t.Run("denied", func(t *testing.T) { testError(t, o, "AccessDenied") })
			t.Run("unseen", func(t *testing.T) { testUnseen(t, o) })
			t.Run("answer lost", func(t *testing.T) { testLost(t, o) })
			t.Run("answer to a read lost", func(t *testing.T) { testLostReads(t, o) })
			t.Run("killed", func(t *testing.T) { testKilled(t, o) })
		})
	}
}

func testAbsent(t *testing.T, o object) {
	op := newOperator(t, ownershipWorld())
	before := worldText(t, op.sim)
	if out, err := op.dryRun(); err != nil || !strings.Contains(out, "would create  "+o.what) {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	if result, text := op.check(); result != string(preflight.RunFailed) || !strings.Contains(text, o.what) {
		t.Errorf("account: %s\n%s", result, text)
	}
	if out, err := op.delete(); err != nil || !strings.Contains(out, "is gone       "+o.what) {
		t.Errorf("delete: %v\n%s", err, out)
	}
	if worldText(t, op.sim) != before {
		t.Error("the account has changed")
	}
	if out, err := op.prepare(); err != nil || !strings.Contains(out, "created       "+o.what) {
		t.Errorf("prepare: %v\n%s", err, out)
	}
}

func testOurs(t *testing.T, o object) {
	op := newOperator(t, ownershipWorld())
	absent := o.get(op.sim.World())
	op.mustPrepare()
	prepared := worldText(t, op.sim)
	for name, run := range map[string]func() (string, error){
		"dry run": op.dryRun, "prepare": func() (string, error) { return op.prepare() },
	} {
		if out, err := run(); err != nil || !strings.Contains(out, "exists        "+o.what) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if result, text := op.check(); result != string(preflight.RunPassed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	would, did := "would delete  ", "deleted       "
	if o.remove == "" {
		would, did = "would leave   ", "left          "
	}
	out, err := op.dryDelete()
	if err != nil || !strings.Contains(out, would+o.what) || strings.Contains(out, "\ndeleted") ||
		!strings.Contains(out, "would leave   tag kubernetes.io/role/elb") {
		t.Errorf("delete --dry-run: %v\n%s", err, out)
	}
	if worldText(t, op.sim) != prepared {
		t.Error("the account has changed")
	}
	out, err = op.delete()
	if err != nil || !strings.Contains(out, did+o.what) ||
		!strings.Contains(out, "left          tag kubernetes.io/role/internal-elb") ||
		!strings.Contains(out, "left          tag kubernetes.io/role/elb") {
		t.Errorf("delete: %v\n%s", err, out)
	}
	if got := o.get(op.sim.World()); reflect.DeepEqual(got, absent) == (o.remove == "") {
		t.Errorf("delete has left %v", got)
	}
}

// testForeign runs the commands in an account where somebody has made something before.
func testForeign(t *testing.T, o object, c handmade) {
	world := ownershipWorld()
	c.change(world)
	op := newOperator(t, world)
	if c.listed != "" {
		op.edit("security_group: sg-0aaaaaaaaaaaaaaaa", "security_group: "+c.listed)
	}
	made := o.get(op.sim.World())
	before := worldText(t, op.sim)
	if c.stops == "" {
		if out, err := op.dryRun(); err != nil || worldText(t, op.sim) != before {
			t.Errorf("dry run: %v\n%s", err, out)
		}
	}
	if c.stops != "" {
		out, err := op.dryRun()
		if err == nil || !strings.Contains(err.Error(), c.stops) || !strings.Contains(out, "would stop    ") ||
			strings.Contains(out, "create") {
			t.Errorf("dry run: %v, want %q\n%s", err, c.stops, out)
		}
		if out, err = op.prepare(); err == nil || !strings.Contains(err.Error(), c.stops) || out != "" {
			t.Errorf("prepare: %v, want %q\n%s", err, c.stops, out)
		}
		if result, text := op.check(); result != string(preflight.RunFailed) || !strings.Contains(text, c.stops) {
			t.Errorf("account: %s, want %q\n%s", result, c.stops, text)
		}
		if out, err := op.delete(); err != nil || c.left && !strings.Contains(out, "left ") {
			t.Errorf("delete: %v\n%s", err, out)
		}
		if worldText(t, op.sim) != before {
			t.Error("the account has changed")
		}
	}
	if c.stops != "" && c.adopt == nil {
		return
	}
	if out, err := op.prepare(c.adopt...); err != nil {
		t.Fatalf("prepare: %v\n%s", err, out)
	}
	if result, text := op.check(); result != string(preflight.RunPassed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	if out, err := op.delete(); err != nil {
		t.Errorf("delete: %v\n%s", err, out)
	}
	if got := o.get(op.sim.World()); c.left && !reflect.DeepEqual(got, made) {
		t.Errorf("it is %v, and was %v", got, made)
	}
}

// testEdited runs the commands after somebody has changed what prepare created.
func testEdited(t *testing.T, o object, c handmade) {
	op := newOperator(t, ownershipWorld())
	absent := o.get(op.sim.World())
	op.mustPrepare()
	op.update(c.change)
	edited, before := o.get(op.sim.World()), worldText(t, op.sim)
	good, err := op.sim.World().Clone()
	if err != nil {
		t.Fatal(err)
	}
	wanted := func(err error) bool {
		return c.stops == "" && err == nil || c.stops != "" && err != nil && strings.Contains(err.Error(), c.stops)
	}
	if out, err := op.dryRun(); !wanted(err) {
		t.Errorf("dry run: %v, want %q\n%s", err, c.stops, out)
	}
	result, text := op.check()
	if (result == string(preflight.RunFailed)) != c.differs || c.differs && !strings.Contains(text, c.stops) {
		t.Errorf("account: %s, want %q\n%s", result, c.stops, text)
	}
	if worldText(t, op.sim) != before {
		t.Error("the account has changed")
	}
	out, err := op.prepare()
	if !wanted(err) || c.stops != "" && worldText(t, op.sim) != before {
		t.Errorf("prepare: %v, want %q\n%s", err, c.stops, out)
	}
	if c.adopt != nil {
		if out, err := op.prepare(c.adopt...); err != nil {
			t.Errorf("prepare with %v: %v\n%s", c.adopt, err, out)
		}
	}
	op.update(func(w *store.World) { *w = *good })
	out, err = op.delete()
	switch {
	case c.fails == "" && err != nil:
		t.Errorf("delete: %v\n%s", err, out)
	case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
		t.Errorf("delete: %v, want %q\n%s", err, c.fails, out)
	}
	got := o.get(op.sim.World())
	switch {
	case c.left && !reflect.DeepEqual(got, edited):
		t.Errorf("it is %v, and was %v", got, edited)
	case !c.left && c.fails == "" && c.adopt == nil && !reflect.DeepEqual(got, absent):
		t.Errorf("delete has left %v", got)
	}
}

// testError has AWS refuse to create, and to delete.
func testError(t *testing.T, o object, code string) {
	op := newOperator(t, ownershipWorld())
	refuse := func(action string) {
		op.fault(awssim.Fault{
			Action: "*:" + action, Kind: awssim.FaultError, Code: code, Message: "refused", Status: 403,
		})
	}
	refuse(o.create)
	out, err := op.prepare()
	if err == nil || !strings.Contains(err.Error(), code) {
		t.Errorf("prepare: %v\n%s", err, out)
	}
	if out, err := op.dryRun(); err != nil || !strings.Contains(out, "would create  "+o.what) {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	if result, text := op.check(); result != string(preflight.RunFailed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	op.sim.ClearFaults()
	op.mustPrepare()
	if o.remove == "" {
		return
	}
	refuse(o.remove)
	if out, err := op.delete(); err == nil || !strings.Contains(err.Error(), code) {
		t.Errorf("delete: %v\n%s", err, out)
	}
	op.sim.ClearFaults()
	if out, err := op.delete(); err != nil {
		t.Errorf("delete: %v\n%s", err, out)
	}
	mustBeEmpty(t, op)
}

// testUnseen has an operator who may not read the object.
func testUnseen(t *testing.T, o object) {
	op := newOperator(t, ownershipWorld())
	op.mustPrepare()
	before := worldText(t, op.sim)
	op.fault(awssim.Fault{
		Action: "*:" + o.read, Kind: awssim.FaultError, Code: "AccessDenied", Message: "refused", Status: 403,
	})
	if out, err := op.prepare(); err == nil || out != "" {
		t.Errorf("prepare: %v\n%s", err, out)
	}
	if out, err := op.dryRun(); err == nil {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	if result, text := op.check(); result == string(preflight.RunPassed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	if worldText(t, op.sim) != before {
		t.Error("the account has changed")
	}
	if out, err := op.delete(); err == nil {
		t.Errorf("delete: %v\n%s", err, out)
	}
}

// testLost has an answer get lost: the SDK repeats the call if the connection ends, and does not if it ends in the
// answer.
func testLost(t *testing.T, o object) {
	for name, lose := range map[string]func(op *operator, action string){
		"before the answer": func(op *operator, action string) { op.lost = action },
		"in the answer": func(op *operator, action string) {
			op.fault(awssim.Fault{Action: "*:" + action, Kind: awssim.FaultTruncate, Count: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			op := newOperator(t, ownershipWorld())
			lose(op, o.create)
			if out, err := op.prepare(); err != nil || !strings.Contains(out, "created       "+o.what) {
				t.Errorf("prepare: %v\n%s", err, out)
			}
			if o.remove == "" {
				return
			}
			lose(op, o.remove)
			if out, err := op.delete(); err != nil || !strings.Contains(out, "deleted       "+o.what) {
				t.Errorf("delete: %v\n%s", err, out)
			}
			mustBeEmpty(t, op)
		})
	}
}

// testLostReads has answers get lost that the commands read, which change nothing then.
func testLostReads(t *testing.T, o object) {
	op := newOperator(t, ownershipWorld())
	op.lost = o.read
	if out, err := op.dryRun(); err != nil || !strings.Contains(out, "would create  "+o.what) {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	op.mustPrepare()
	prepared := worldText(t, op.sim)
	op.lost = o.read
	if result, text := op.check(); result != string(preflight.RunPassed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	op.fault(awssim.Fault{Action: "*:" + o.read, Kind: awssim.FaultTruncate})
	if result, text := op.check(); result == string(preflight.RunPassed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	if out, err := op.dryRun(); err == nil {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	if worldText(t, op.sim) != prepared {
		t.Error("the account has changed")
	}
}

// testKilled ends the command after each call, and runs it again.
func testKilled(t *testing.T, o object) {
	op := newOperator(t, ownershipWorld())
	op.after = o.create
	if out, err := op.prepare(); !errors.Is(err, context.Canceled) {
		t.Errorf("prepare was not killed: %v\n%s", err, out)
	}
	op.after = ""
	if out, err := op.dryRun(); err != nil || !strings.Contains(out, "would create  ") {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	if result, text := op.check(); result != string(preflight.RunFailed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	op.mustPrepare()
	if result, text := op.check(); result != string(preflight.RunPassed) {
		t.Errorf("account: %s\n%s", result, text)
	}
	if o.remove == "" {
		return
	}
	op.after = o.remove
	if out, err := op.delete(); !errors.Is(err, context.Canceled) {
		t.Errorf("delete was not killed: %v\n%s", err, out)
	}
	op.after = ""
	if out, err := op.dryDelete(); err != nil || !strings.Contains(out, "would delete  ") {
		t.Errorf("delete --dry-run: %v\n%s", err, out)
	}
	if out, err := op.delete(); err != nil {
		t.Errorf("delete: %v\n%s", err, out)
	}
	mustBeEmpty(t, op)
}

// mustBeEmpty fails if something is left besides the tags that are documented to be left.
func mustBeEmpty(t *testing.T, op *operator) {
	t.Helper()
	w := op.sim.World()
	if len(w.Roles)+len(w.InstanceProfiles)+len(w.StaticKeys[1].Inline) > 0 || len(w.SecurityGroups) != 1 ||
		len(w.SecurityGroups[0].Ingress) > 0 {
		t.Errorf("left: %v, %v, %v, %v", w.Roles, w.InstanceProfiles, w.StaticKeys[1].Inline, w.SecurityGroups)
	}
	for _, key := range []string{"kubernetes.io/cluster/prod", "cloud-preflight/"} {
		if strings.Contains(worldText(t, op.sim), key) {
			t.Errorf("tags %s are left", key)
		}
	}
	text, err := os.ReadFile(op.file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "security_group: sg-0aaaaaaaaaaaaaaaa\n") {
		t.Errorf("the file does not have the example:\n%s", text)
	}
}

// TestVariables: what is wrong in the file is named, with the variable.
func TestVariables(t *testing.T) {
	op := newOperator(t, ownershipWorld())
	op.mustPrepare()
	text, err := os.ReadFile(op.file)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, replacement, want, without, result string }{
		"as they are":          {"", "", "", "subnet1_reserved", "passed"},
		"no DNS server":        {"dns_servers: [10.0.0.2]", "dns_servers: []", "dns_servers: [10.0.0.2]", "", "failed"},
		"no address":           {"[10.0.0.2]", "[a]", "dns_servers: [10.0.0.2]", "", "failed"},
		"another DNS server":   {"[10.0.0.2]", "[10.9.0.2]", "dns_servers: [10.0.0.2]", "", "passed"},
		"the resolver as well": {"[10.0.0.2]", "[10.9.0.2, 10.0.0.2]", "", "dns_servers", "passed"},
		"the fixed resolver":   {"[10.0.0.2]", "[169.254.169.253]", "", "dns_servers", "passed"},
		"another gateway":      {"10.0.32.1", "10.0.32.9", "subnet2_gateway: 10.0.32.1", "", "failed"},
		"nothing reserved": {
			"[10.0.48.2-10.0.48.3, 10.0.63.255]", "[]", "subnet3_reserved: [10.0.48.2-10.0.48.3", "", "failed",
		},
		"reserved as a network": {
			"[10.0.48.2-10.0.48.3, 10.0.63.255]", "[10.0.48.0/28]", "", "subnet3_reserved", "passed",
		},
		"one of two is reserved": {
			"[10.0.48.2-10.0.48.3, 10.0.63.255]", "[10.0.48.3]", "subnet3_reserved: [10.0.48.2-10.0.48.3", "", "failed",
		},
		"reserved in another subnet": {
			"10.0.63.255", "10.0.31.255", `"10.0.31.255"`, "", "failed",
		},
		"a node subnet that is public too": {
			"public_subnet_ids: [", "public_subnet_ids: [" + awssim.LabNodeSubnet(1) + ", ",
			"out of public_subnet_ids in", "--gateway-id", "failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			edited := strings.Replace(string(text), c.old, c.replacement, 1)
			if err := os.WriteFile(op.file, []byte(edited), 0o600); err != nil {
				t.Fatal(err)
			}
			result, found := op.check()
			if result != c.result || !strings.Contains(found, c.want) ||
				c.without != "" && strings.Contains(found, c.without) {
				t.Errorf("%s, want %s, with %q and without %q in\n%s", result, c.result, c.want, c.without, found)
			}
		})
	}
}

// TestZoneTwice: the preflight wants one subnet of a zone for load balancers, so prepare tags one. None of the commands
// wants back what another one has removed.
func TestZoneTwice(t *testing.T) {
	world := ownershipWorld()
	store.Find(world.Subnets, awssim.LabNodeSubnet(2)).AvailabilityZone = awssim.LabRegion + "a"
	store.Find(world.Subnets, awssim.LabPublicSubnet(2)).AvailabilityZone = awssim.LabRegion + "a"
	op := newOperator(t, world)
	file, err := os.ReadFile(op.file)
	if err != nil {
		t.Fatal(err)
	}
	file = bytes.Replace(file, []byte("az2: us-east-1b"), []byte("az2: us-east-1a"), 1)
	if err := os.WriteFile(op.file, file, 0o600); err != nil {
		t.Fatal(err)
	}
	op.mustPrepare()
	const internal, public = "kubernetes.io/role/internal-elb", "kubernetes.io/role/elb"
	count := func(key string) (n int) {
		for _, s := range op.sim.World().Subnets {
			if _, ok := s.Tags[key]; ok {
				n++
			}
		}
		return n
	}
	if count(internal) != 2 || count(public) != 2 {
		t.Errorf("%d and %d subnets have the tags of load balancers, want one per zone", count(internal), count(public))
	}
	op.update(func(w *store.World) { // the tag on the other subnet of the zone does as well
		delete(store.Find(w.Subnets, awssim.LabNodeSubnet(1)).Tags, internal)
		store.Find(w.Subnets, awssim.LabNodeSubnet(2)).Tags[internal] = "1"
	})
	if result, found := op.check(); result != string(preflight.RunPassed) {
		t.Errorf("%s\n%s", result, found)
	}
	i := simulatedInstance(1, preflight.Control)
	i.Address, i.SecurityGroups = netip.MustParseAddr("10.0.16.9"), []string{groupOf(op.sim.World()).ID}
	op.update(func(w *store.World) { w.Instances = []store.Instance{i} })
	checker := results.NewChecker()
	defer checker.Close()
	r, err := checker.PreflightIn(t.Context(), op.sim, &accounts.Account{
		World: op.sim.World(), Config: awstest.NewConfig(preflight.Control),
	})
	if err != nil || r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
		t.Errorf("preflight: %v\n%s", err, text(r))
	}
}

// TestMoreThanNeeded: a statement that somebody has added stops prepare, and no deploy.
func TestMoreThanNeeded(t *testing.T) {
	op := newOperator(t, ownershipWorld())
	op.mustPrepare()
	op.update(func(w *store.World) {
		role := store.Find(w.Roles, "kubernetes-worker")
		role.Policies["kubernetes"] = withStatement(role.Policies["kubernetes"])
	})
	result, found := op.check()
	passed := result == string(preflight.RunPassed)
	if !passed || !strings.Contains(found, "a statement without a Sid, of s3:GetObject") ||
		strings.Contains(found, "the first deploy fails") {
		t.Errorf("%s\n%s", result, found)
	}
}

// TestAccountRedacts: AWS repeats the request, with the session token in it, if a signature does not match.
func TestAccountRedacts(t *testing.T) {
	const token = "a-session-token-that-nobody-may-see"
	sim, _ := simulateAccount(t, ownershipWorld())
	t.Setenv("AWS_SESSION_TOKEN", token)
	inject := func(action, message string) {
		t.Helper()
		if err := sim.InjectFault(awssim.Fault{
			Action: action, Kind: awssim.FaultError, Code: "SignatureDoesNotMatch", Status: 403,
			Message: message,
		}); err != nil {
			t.Fatal(err)
		}
	}
	inject("*:*", "x-amz-security-token:"+token+" "+awssim.LabSecretAccessKey)
	file := variablesFile(t)
	run := func(args ...string) {
		t.Helper()
		code, stdout, stderr := account(t, append(args, "--vars", file, "--cluster", "prod")...)
		all := stdout + stderr
		if code == 0 || strings.Contains(all, token) || strings.Contains(all, awssim.LabSecretAccessKey) ||
			!strings.Contains(all, "SignatureDoesNotMatch") {
			t.Errorf("%v: exit code %d\n%s", args, code, all)
		}
	}
	for _, args := range [][]string{{}, {"prepare"}, {"prepare", "--dry-run"}, {"prepare", "--delete"}, {"terraform"}} {
		run(args...)
	}
	// What one check meets is in the report. The simulator knows no session.
	sim.ClearFaults()
	t.Setenv("AWS_SESSION_TOKEN", "")
	inject("ec2:DescribeNetworkAcls", awssim.LabSecretAccessKey)
	run()
	run("--output", "json")
	// Whatever a command writes is redacted, such as its own words.
	sim.ClearFaults()
	secret := filepath.Join(t.TempDir(), awssim.LabSecretAccessKey)
	if err := os.MkdirAll(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, secret); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := account(t, "terraform", "--vars", secret, "--cluster", "prod")
	if all := stdout + stderr; code != 0 || strings.Contains(all, awssim.LabSecretAccessKey) ||
		!strings.Contains(stdout, "[redacted]") {
		t.Errorf("terraform: exit code %d\n%s", code, all)
	}
}

// TestCheckAsksOnce: what does not change while the account is checked is asked once.
func TestCheckAsksOnce(t *testing.T) {
	op := newOperator(t, awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16"))) // that of aws-vars.yml
	op.mustPrepare()
	clear(op.asked)
	if result, text := op.check(); result != string(preflight.RunPassed) {
		t.Fatalf("%s: %s", result, text)
	}
	for _, action := range []string{"DescribeSubnets", "DescribeRouteTables", "DescribeNetworkAcls"} {
		if got := op.asked[action]; got != 1 {
			t.Errorf("%s: asked %d times", action, got)
		}
	}
}
