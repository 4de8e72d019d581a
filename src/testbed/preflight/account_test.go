package preflight_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab/cpi"
)

// emptyAccount is an account with a VPC and a Director, where nobody has prepared anything for a cluster.
func emptyAccount() *store.World {
	world := awssim.EmptyWorld(netip.MustParsePrefix("127.0.0.0/16"))
	world.Subnets[0].CIDR = netip.MustParsePrefix("127.0.0.0/20") // so that 127.0.0.1 can be an instance
	return world
}

// variablesFile is a copy of aws-vars.yml with the ids of the empty account, except that of the nodes' security group.
func variablesFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../manifests/cloud-config/aws-vars.yml")
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.NewReplacer("sg-0bbbbbbbbbbbbbbbb", awssim.DirectorSecurityGroup).Replace(string(text))
	for i := 1; i <= 3; i++ {
		edited = strings.ReplaceAll(edited, fmt.Sprintf("subnet-0aaaaaaaaaaaaaaa%d", i), awssim.LabNodeSubnet(i))
		edited = strings.ReplaceAll(edited, fmt.Sprintf("subnet-0bbbbbbbbbbbbbbb%d", i), awssim.LabPublicSubnet(i))
	}
	file := filepath.Join(t.TempDir(), "aws-vars.yml")
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// simulateAccount starts the simulator for an operator.
func simulateAccount(t *testing.T, world *store.World) (*awssim.Simulator, string) {
	t.Helper()
	sim, err := awssim.New(world, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metadata := sim.MetadataServer()
	go func() { _ = metadata.Serve(listener) }()
	t.Cleanup(func() { _ = metadata.Close() })
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("AWS_ENDPOINT_URL", api.URL)
	t.Setenv("AWS_CA_BUNDLE", "")
	return sim, api.URL
}

// prepare runs cloud-preflight account prepare.
func prepare(t *testing.T, file string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return account(t, append([]string{"prepare", "--vars", file, "--cluster", "prod"}, args...)...)
}

// account runs cloud-preflight account with the credentials of an administrator. The region is that of the zones in the
// file.
func account(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	command := exec.CommandContext(
		t.Context(),
		filepath.Join(programs, "cloud-preflight"),
		append([]string{"account"}, args...)...)
	command.Env = append(
		os.Environ(), "AWS_ACCESS_KEY_ID="+awssim.LabAccessKeyID, "AWS_SECRET_ACCESS_KEY="+awssim.LabSecretAccessKey,
	)
	command.Stdout, command.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

func worldText(t *testing.T, sim *awssim.Simulator) string {
	t.Helper()
	text, err := json.MarshalIndent(sim.World(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// launch creates a VM as the Director's CPI does.
func launch(t *testing.T, url, profile, group string) (string, error) {
	t.Helper()
	return cpi.NewAWS(url, awssim.LabRegion, awssim.DirectorAccessKeyID, awssim.DirectorSecretAccessKey).
		Launch(t.Context(), cpi.Launch{
			Address:          "127.0.0.9",
			Subnet:           awssim.LabNodeSubnet(1),
			SecurityGroups:   []string{group},
			InstanceType:     "m6i.large",
			AvailabilityZone: awssim.LabRegion + "a",
			InstanceProfile:  profile,
			TokensRequired:   true,
			Tags:             map[string]string{"kubernetes.io/cluster/prod": "shared"},
		})
}

// TestPrepareAccount goes from an empty account to one in which the Director can create VMs, and all checks of the
// preflight pass.
func TestPrepareAccount(t *testing.T) {
	sim, url := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	empty := worldText(t, sim)

	code, stdout, stderr := prepare(t, file, "--dry-run")
	if code != 0 || strings.Contains(stdout, "\ncreated") ||
		!strings.Contains(stdout, "would create  IAM role kubernetes-control") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if worldText(t, sim) != empty {
		t.Error("a dry run changed the account")
	}

	if code, stdout, stderr = prepare(t, file); code != 0 || !strings.Contains(stdout, "created") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	group := regexp.MustCompile(`(?m)^security_group: (sg-\S+)$`).FindStringSubmatch(string(text))
	if group == nil || group[1] == "sg-0aaaaaaaaaaaaaaaa" ||
		!strings.Contains(string(text), "# The private subnets of the VMs") {
		t.Fatalf("the id of the security group is not in the file:\n%s", text)
	}
	prepared := worldText(t, sim)
	code, stdout, stderr = prepare(t, file)
	if code != 0 || strings.Contains(stdout, "created") || worldText(t, sim) != prepared {
		t.Errorf("the second run is not without changes: exit code %d\n%s%s", code, stdout, stderr)
	}

	for _, profile := range []string{"kubernetes-control", "kubernetes-worker"} {
		id, err := launch(t, url, profile, group[1])
		if err != nil {
			t.Errorf("the Director cannot create a VM with %s: %v", profile, err)
			continue
		}
		if err := sim.Update(func(w *store.World) error {
			for i := range w.Instances {
				if w.Instances[i].ID == id {
					w.Instances[i].Address = netip.MustParseAddr("127.0.0.1") // where the calls of this test come from
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		role := strings.TrimPrefix(profile, "kubernetes-")
		config := strings.Replace(good, `"role": "control"`, `"cloud": {"storage": true}, "role": "`+role+`"`, 1)
		if code, stdout, stderr := invoke(t, config); code != 0 ||
			!strings.Contains(stdout, "PASSED: 0 checks failed, 0 warnings") {
			t.Errorf("preflight of %s: exit code %d\n%s\n%s", role, code, stdout, stderr)
		}
		if err := sim.Update(func(w *store.World) error { w.Instances = nil; return nil }); err != nil {
			t.Fatal(err)
		}
	}

	if code, stdout, stderr = prepare(t, file, "--delete"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	w := sim.World()
	if len(w.Roles)+len(w.InstanceProfiles) > 0 || len(w.SecurityGroups) != 1 || len(w.SecurityGroups[0].Ingress) > 0 {
		t.Errorf("--delete has left %v, %v, %v", w.Roles, w.InstanceProfiles, w.SecurityGroups)
	}
	if strings.Contains(worldText(t, sim), "kubernetes.io/cluster/prod") {
		t.Error("--delete has left tags")
	}
	if code, stdout, _ = prepare(t, file, "--delete"); code != 0 || strings.Contains(stdout, "\ndeleted") {
		t.Errorf("the second --delete: exit code %d\n%s", code, stdout)
	}
}

// TestPrepareWithVariablesInJSON: the file is of a tool that writes JSON.
func TestPrepareWithVariablesInJSON(t *testing.T) {
	sim, _ := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	read := func() map[string]any {
		text, err := os.ReadFile(file)
		var variables map[string]any
		if err = errors.Join(err, yaml.Unmarshal(text, &variables)); err != nil {
			t.Fatal(err)
		}
		return variables
	}
	want := read()
	text, err := json.MarshalIndent(want, "", "\t")
	if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, says string
		args       []string
	}{{"prepare", "\ncreated ", nil}, {"repeat", "", nil}, {"delete", "\ndeleted ", []string{"--delete"}}} {
		code, stdout, stderr := prepare(t, file, step.args...)
		if code != 0 || !strings.Contains(stdout, step.says) || step.says == "" && strings.Contains(stdout, "created") {
			t.Fatalf("%s: exit code %d\n%s%s", step.name, code, stdout, stderr)
		}
		want["security_group"] = "sg-0aaaaaaaaaaaaaaaa" // the example
		if groups := sim.World().SecurityGroups; len(groups) > 1 {
			want["security_group"] = groups[1].ID
		}
		if text, err := os.ReadFile(file); err != nil || !json.Valid(text) || !reflect.DeepEqual(read(), want) {
			t.Errorf("%s: the file has\n%s\nwant %v (%v)", step.name, text, want, err)
		}
	}
	if w := sim.World(); len(w.Roles) > 0 || len(w.SecurityGroups) != 1 {
		t.Errorf("--delete has left %v, %v", w.Roles, w.SecurityGroups)
	}
}

// TestDeleteRefusesWithVMs: without rules, tags and roles the nodes of a cluster that still runs would be cut off.
func TestDeleteRefusesWithVMs(t *testing.T) {
	sim, url := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	id, err := launch(t, url, "kubernetes-control", sim.World().SecurityGroups[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	other := awssim.DirectorSecurityGroup
	for name, change := range map[string]func(*store.Instance){
		"with tag and group": func(*store.Instance) {},
		"stopped":            func(i *store.Instance) { i.State = "stopped" },
		"with the tag":       func(i *store.Instance) { i.SecurityGroups = []string{other} },
		"in the group":       func(i *store.Instance) { i.Tags = store.Tags{} },
	} {
		t.Run(name, func(t *testing.T) {
			good := sim.World()
			if err := sim.Update(func(w *store.World) error { change(&w.Instances[0]); return nil }); err != nil {
				t.Fatal(err)
			}
			before := worldText(t, sim)
			for _, args := range [][]string{{"--delete"}, {"--delete", "--dry-run"}} {
				code, stdout, stderr := prepare(t, file, args...)
				if code != 1 || !strings.Contains(stderr, "instances in the VPC "+awssim.LabVPC+": "+id+";") ||
					worldText(t, sim) != before {
					t.Errorf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
				}
			}
			if err := sim.Update(func(w *store.World) error { *w = *good; return nil }); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDeleteLeavesRulesOfForeignGroups: the VMs of a Director share the security group bosh-vms, whose rules they need
// after the cluster is gone.
func TestDeleteLeavesRulesOfForeignGroups(t *testing.T) {
	const shared = "sg-0e0e0e0e0e0e0e0e0"
	world := emptyAccount()
	world.SecurityGroups = append(world.SecurityGroups, store.SecurityGroup{
		ID: shared, Name: "bosh-vms", Description: "VMs of the Director", VPC: awssim.LabVPC, Tags: store.Tags{},
		Ingress: []store.Rule{
			{Protocol: "-1", Group: shared},
			{Protocol: "tcp", FromPort: 22, ToPort: 22, Group: awssim.DirectorSecurityGroup},
		},
		Egress: []store.Rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}},
	})
	for _, port := range []int{4222, 25250} {
		director := &world.SecurityGroups[0]
		director.Ingress = append(
			director.Ingress, store.Rule{Protocol: "tcp", FromPort: port, ToPort: port, Group: shared},
		)
	}
	sim, _ := simulateAccount(t, world)
	before := sim.World().SecurityGroups
	file := variablesFile(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("sg-0aaaaaaaaaaaaaaaa"), []byte(shared))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := prepare(t, file, "--delete"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if after := sim.World().SecurityGroups; !reflect.DeepEqual(after, before) {
		t.Errorf("the security groups are\n%v\nand were\n%v", after, before)
	}
	if strings.Contains(worldText(t, sim), "kubernetes.io/cluster/prod") {
		t.Error("--delete has left tags")
	}
}

// TestRulesForNetworks: rules between the nodes and the Director may be for networks, and one with another blobstore
// needs no rule for its own.
func TestRulesForNetworks(t *testing.T) {
	world := awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16")) // the network of aws-vars.yml
	sim, _ := simulateAccount(t, world)
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := sim.Update(func(w *store.World) error {
		director, nodes := &w.SecurityGroups[0], &w.SecurityGroups[1]
		director.Ingress = []store.Rule{{Protocol: "tcp", FromPort: 4222, ToPort: 4222, CIDR: "10.0.0.0/16"}}
		nodes.Ingress = append(
			nodes.Ingress[:1], store.Rule{Protocol: "tcp", FromPort: 22, ToPort: 22, CIDR: "192.0.2.1/32"},
		)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := account(t, "--vars", file, "--cluster", "prod")
	if code != 0 || !strings.Contains(stdout, "0 checks failed, 1 warning,") ||
		!strings.Contains(stderr, "unless the Director has another blobstore") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// adoptWorker has prepare use the worker's role and profile that somebody else has created.
var adoptWorker = []string{"--adopt", "role/kubernetes-worker", "--adopt", "instance-profile/kubernetes-worker"}

// TestDeleteLeavesForeignRoles: roles and profiles that prepare has adopted are somebody else's.
func TestDeleteLeavesForeignRoles(t *testing.T) {
	world := emptyAccount()
	world.Roles = []store.Role{{Name: "kubernetes-worker"}}
	world.InstanceProfiles = []store.InstanceProfile{{Name: "kubernetes-worker", Role: "kubernetes-worker"}}
	sim, _ := simulateAccount(t, world)
	file := variablesFile(t)
	for _, args := range [][]string{adoptWorker, {"--delete"}} {
		if code, stdout, stderr := prepare(t, file, args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	w := sim.World()
	if len(w.Roles) != 1 || w.Roles[0].Name != "kubernetes-worker" || len(w.InstanceProfiles) != 1 ||
		w.InstanceProfiles[0].Role != "kubernetes-worker" {
		t.Errorf("--delete has left the roles %v and the profiles %v", w.Roles, w.InstanceProfiles)
	}
}

// TestDeleteNeedsNoOptions: a policy with other permissions than the options of --delete say is deleted with its role.
func TestDeleteNeedsNoOptions(t *testing.T) {
	sim, _ := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file, "--load-balancer-controller"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr := prepare(t, file, "--delete")
	if code != 0 || !strings.Contains(stdout, "deleted       inline policy kubernetes of the role kubernetes-control") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if roles := sim.World().Roles; len(roles) > 0 {
		t.Errorf("--delete has left %v", roles)
	}
}

// printedPolicy is what cloud-preflight iam-policy prints for control VMs of the cluster prod.
func printedPolicy(t *testing.T, args ...string) iam.Policy {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"iam-policy", "--role", "control", "--cluster", "prod", "--vpc", awssim.LabVPC}, args...)
	text, err := exec.CommandContext(t.Context(), filepath.Join(programs, "cloud-preflight"), args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var policy iam.Policy
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	return policy
}

// TestPrepareKeepsPermissions: the documented place of a policy with options of iam-policy is that of prepare's own.
func TestPrepareKeepsPermissions(t *testing.T) {
	const key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	sim, _ := simulateAccount(t, awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16"))) // that of aws-vars.yml
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	conf := filepath.Join(t.TempDir(), "cloud.conf")
	role := "[Global]\nRoleARN = arn:aws:iam::123456789012:role/controller\n"
	if err := os.WriteFile(conf, []byte(role), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options []string
		sid     string
	}{
		{[]string{"--encryption-key", key}, "KmsEncryptSecrets"},
		{[]string{"--pod-roles", "prod-issuer/prod"}, "S3PublishIssuer"},
		{[]string{"--cloud-config", conf}, "StsAssumeCloudControllersRole"},
	} {
		t.Run(c.options[0], func(t *testing.T) {
			if err := sim.Update(func(w *store.World) error {
				store.Find(w.Roles, "kubernetes-control").Policies["kubernetes"] = printedPolicy(t, c.options...)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			before := worldText(t, sim)
			check := append([]string{"--vars", file, "--cluster", "prod"}, c.options...)
			if code, stdout, stderr := account(t, check...); code != 0 {
				t.Errorf("check with the options: exit code %d\n%s%s", code, stdout, stderr)
			}
			for _, args := range [][]string{nil, {"--dry-run"}} {
				code, stdout, stderr := prepare(t, file, args...)
				if code != 1 || !strings.Contains(stderr, "the statement "+c.sid) || worldText(t, sim) != before {
					t.Errorf("prepare %v without the options: exit code %d\n%s%s", args, code, stdout, stderr)
				}
			}
			if code, stdout, stderr := prepare(t, file, c.options...); code != 0 || worldText(t, sim) != before {
				t.Errorf("prepare with the options: exit code %d\n%s%s", code, stdout, stderr)
			}
			code, text, stderr := account(t, append([]string{"terraform"}, check...)...)
			if code != 0 || !strings.Contains(text, `"Sid": "`+c.sid+`"`) ||
				!strings.Contains(text, "account terraform "+strings.Join(check, " ")+"\n") {
				t.Errorf("terraform: exit code %d\n%s%s", code, text, stderr)
			}
		})
	}
	if err := sim.Update(func(w *store.World) error {
		store.Find(w.Roles, "kubernetes-control").Policies["kubernetes"] = printedPolicy(t, "--encryption-key", key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(key, "1234abcd", "5678abcd", 1)
	if code, _, stderr := prepare(t, file, "--encryption-key", other); code != 1 ||
		!strings.Contains(stderr, key+" in the statement KmsEncryptSecrets") {
		t.Errorf("another key: exit code %d\n%s", code, stderr)
	}
	if code, stdout, stderr := prepare(t, file, "--replace"); code != 0 ||
		strings.Contains(worldText(t, sim), "KmsEncryptSecrets") {
		t.Errorf("--replace: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestFixesRepeatOptions: the command of a fix creates what was checked.
func TestFixesRepeatOptions(t *testing.T) {
	const key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	code, _, stderr := account(
		t, "--vars", file, "--cluster", "prod", "--load-balancer-controller", "--encryption-key", key,
	)
	want := "cloud-preflight account prepare --vars " + file + " --cluster prod --encryption-key " + key +
		" --load-balancer-controller\n"
	if code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, want %s in\n%s", code, want, stderr)
	}
}

// TestPrepareLeavesRolesOfOtherClusters: the file of a second cluster still has the roles of the first.
func TestPrepareLeavesRolesOfOtherClusters(t *testing.T) {
	sim, _ := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	second, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := os.WriteFile(file, second, 0o600); err != nil { // without the group of the first cluster
		t.Fatal(err)
	}
	before := worldText(t, sim)
	code, stdout, stderr := prepare(t, file, "--cluster", "staging")
	if code != 1 || !strings.Contains(stderr, "it has the tag of the cluster prod") || stdout != "" ||
		worldText(t, sim) != before {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = prepare(t, file, "--cluster", "staging", "--delete")
	if code != 0 || strings.Contains(stdout, "\ndeleted") || worldText(t, sim) != before {
		t.Errorf("--delete: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestPrepareWithoutPassRole: what the Director could not do before.
func TestPrepareWithoutPassRole(t *testing.T) {
	sim, url := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := sim.Update(func(w *store.World) error { w.StaticKeys[1].Inline = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := launch(t, url, "kubernetes-control", awssim.DirectorSecurityGroup); err == nil ||
		!strings.Contains(err.Error(), "UnauthorizedOperation") {
		t.Errorf("got %v; want UnauthorizedOperation", err)
	}
	code, stdout, stderr := prepare(t, file)
	if code != 0 || strings.Count(stdout, "created") != 1 ||
		!strings.Contains(stdout, "the Director may pass both roles") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestPrepareRefusesAnUnknownGroup: only the example in the file asks for a new security group.
func TestPrepareRefusesAnUnknownGroup(t *testing.T) {
	const unknown = "sg-0123456789abcdef0"
	sim, _ := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	write := func(group string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`(?m)^security_group: .*`).ReplaceAll(text, []byte("security_group: "+group))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(unknown)
	before := worldText(t, sim)
	want := "security_group " + unknown + " is not in the VPC " + awssim.LabVPC
	code, stdout, stderr := prepare(t, file)
	if code != 1 || !strings.Contains(stderr, want) || worldText(t, sim) != before {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = account(t, "--vars", file, "--cluster", "prod"); code != 1 ||
		!strings.Contains(stderr, want) {
		t.Errorf("check: exit code %d\n%s%s", code, stdout, stderr)
	}
	write("sg-0aaaaaaaaaaaaaaaa")
	for _, args := range [][]string{nil, {"--delete"}, nil} { // the example is in the file again
		if code, stdout, stderr := prepare(t, file, args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	group := sim.World().SecurityGroups[1].ID
	write(unknown)
	before = worldText(t, sim)
	code, stdout, stderr = prepare(t, file, "--replace")
	if code != 1 || !strings.Contains(stderr, "set it to "+group) || worldText(t, sim) != before {
		t.Errorf("with a group of that name: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestPrepareRefusesAnUntrustedRole: what --replace replaces is policies.
func TestPrepareRefusesAnUntrustedRole(t *testing.T) {
	sim, _ := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := sim.Update(func(w *store.World) error {
		store.Find(w.Roles, "kubernetes-control").Untrusted = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	before := worldText(t, sim)
	for _, args := range [][]string{nil, {"--replace"}, {"--replace", "--dry-run"}} {
		code, stdout, stderr := prepare(t, file, args...)
		if code != 1 || !strings.Contains(stderr, "its trust policy does not let EC2 assume it") ||
			strings.Contains(stdout, "create") || worldText(t, sim) != before {
			t.Errorf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// TestDeleteWithoutTheGroupsID: the file that --delete is given is a new copy.
func TestDeleteWithoutTheGroupsID(t *testing.T) {
	sim, _ := simulateAccount(t, emptyAccount())
	file := variablesFile(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := prepare(t, file, "--delete")
	if groups := sim.World().SecurityGroups; code != 0 || len(groups) != 1 ||
		!strings.Contains(stdout, "deleted       security group of the nodes") {
		t.Errorf("exit code %d, security groups %v\n%s%s", code, groups, stdout, stderr)
	}
}

// TestPassRolesWithPath: a path is part of the ARN of a role, but not of its name.
func TestPassRolesWithPath(t *testing.T) {
	for director, owner := range map[string]string{
		"user/bosh": "user bosh", "role/director": "role director",
	} {
		t.Run(director, func(t *testing.T) {
			world := emptyAccount()
			world.Roles = []store.Role{{Name: "kubernetes-worker", Path: "/team/"}, {Name: "director", Path: "/team/"}}
			world.InstanceProfiles = []store.InstanceProfile{{Name: "kubernetes-worker", Role: "kubernetes-worker"}}
			sim, url := simulateAccount(t, world)
			file := variablesFile(t)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte("director_iam: user/bosh"), []byte("director_iam: "+director))
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := prepare(t, file, adoptWorker...)
			if code != 0 || !strings.Contains(stdout, "inline policy kubernetes-pass-role-prod of the "+owner) {
				t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
			}
			_, stdout, stderr = account(t, "--vars", file, "--cluster", "prod")
			for _, check := range []string{"account-prepared", "account-role-permissions", "account-pass-role"} {
				if !strings.Contains(stdout, "pass  "+check) {
					t.Errorf("%s did not pass:\n%s%s", check, stdout, stderr)
				}
			}
			if director != "user/bosh" {
				return
			}
			if _, err := launch(t, url, "kubernetes-worker", sim.World().SecurityGroups[1].ID); err != nil {
				t.Errorf("the Director cannot create a VM: %v", err)
			}
		})
	}
}

// passRole lets a Director pass the roles of all clusters.
var passRole = iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
	Effect: "Allow", Action: iam.Strings{"iam:PassRole"}, Resource: iam.Strings{"arn:aws:iam::*:role/kubernetes-*"},
}}}

// TestDirectorWithAnotherPolicy: a Director that may pass roles needs no policy for it, and keeps its own.
func TestDirectorWithAnotherPolicy(t *testing.T) {
	world := emptyAccount()
	world.StaticKeys[1].Policies = append(world.StaticKeys[1].Policies, passRole)
	sim, _ := simulateAccount(t, world)
	before := sim.World().StaticKeys
	file := variablesFile(t)
	for _, args := range [][]string{nil, {"--delete"}} {
		if code, stdout, stderr := prepare(t, file, args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
		if after := sim.World().StaticKeys; !reflect.DeepEqual(after, before) {
			t.Errorf("%v: the policies are\n%v\nand were\n%v", args, after, before)
		}
	}
}

// iamCommand is a command of the AWS CLI with its first option.
const iamCommand = "aws iam %s --region us-east-1 --%s"

// TestDirectorWithLongPolicies: IAM allows 2,048 characters to the inline policies of a user.
func TestDirectorWithLongPolicies(t *testing.T) {
	world := emptyAccount()
	world.StaticKeys[1].Inline = map[string]iam.Policy{"cpi": {Version: "2012-10-17", Statement: iam.Statements{{
		Effect: "Allow", Action: iam.Strings{"s3:GetObject"},
		Resource: iam.Strings{"arn:aws:s3:::" + strings.Repeat("b", 1900)},
	}}}}
	sim, _ := simulateAccount(t, world)
	file := variablesFile(t)
	code, stdout, stderr := prepare(t, file)
	create := fmt.Sprintf(iamCommand, "create-policy", "policy-name kubernetes-pass-role-prod")
	attach := fmt.Sprintf(iamCommand, "attach-user-policy", "user-name bosh --policy-arn arn:aws:iam::")
	if code != 1 || !strings.Contains(stderr, create) || !strings.Contains(stderr, attach) {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := sim.Update(func(w *store.World) error {
		w.StaticKeys[1].Policies = append(w.StaticKeys[1].Policies, passRole)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Errorf("with a managed policy: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestRoleWithLongPolicies: IAM allows 10,240 characters to the inline policies of a role. One with the permissions in
// other policies needs no policy of that name.
func TestRoleWithLongPolicies(t *testing.T) {
	sim, _ := simulateAccount(t, awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16"))) // that of aws-vars.yml
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	update := func(change func(policies map[string]iam.Policy)) {
		t.Helper()
		if err := sim.Update(func(w *store.World) error {
			change(store.Find(w.Roles, "kubernetes-control").Policies)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	var generated iam.Policy
	update(func(policies map[string]iam.Policy) {
		generated = policies["kubernetes"]
		delete(policies, "kubernetes")
		policies["others"] = iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
			Effect: "Allow", Action: iam.Strings{"s3:GetObject"},
			Resource: iam.Strings{"arn:aws:s3:::" + strings.Repeat("b", 9000)},
		}}}
	})
	code, stdout, stderr := prepare(t, file)
	create := fmt.Sprintf(iamCommand, "create-policy", "policy-name kubernetes-control")
	attach := fmt.Sprintf(iamCommand, "attach-role-policy", "role-name kubernetes-control --policy-arn arn:")
	if code != 1 || !strings.Contains(stderr, create) || !strings.Contains(stderr, attach) {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	update(func(policies map[string]iam.Policy) { policies["managed"] = generated })
	if code, stdout, stderr := account(t, "--vars", file, "--cluster", "prod"); code != 0 {
		t.Errorf("check with managed policies: exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := prepare(t, file); code != 0 || strings.Contains(stdout, "created") {
		t.Errorf("with managed policies: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// TestPrepareRefusesPlaceholders: the file as it is in the repository names nothing that exists.
func TestPrepareRefusesPlaceholders(t *testing.T) {
	sim, _ := simulateAccount(t, emptyAccount())
	empty := worldText(t, sim)
	code, stdout, stderr := prepare(t, "../../../manifests/cloud-config/aws-vars.yml")
	if code != 1 || !strings.Contains(stderr, "InvalidSubnetID.NotFound") || stdout != "" ||
		worldText(t, sim) != empty {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	shared := variablesFile(t)
	if code, stdout, stderr := prepare(t, shared); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	before := worldText(t, sim)
	code, _, stderr = prepare(t, shared, "--cluster", "staging")
	if code != 1 || !strings.Contains(stderr, "has the tag of the cluster prod") || worldText(t, sim) != before {
		t.Errorf("the security group of another cluster: exit code %d\n%s", code, stderr)
	}
	broken := filepath.Join(t.TempDir(), "vars.yml")
	if err := os.WriteFile(broken, []byte("subnet1_id: mine\ndirector_iam: bosh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, stderr = prepare(t, broken)
	for _, want := range []string{`subnet1_id is "mine"`, `subnet3_id is ""`, `director_iam is "bosh"`, "user/bosh"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%s is missing in %s", want, stderr)
		}
	}
}

// TestRefusesAnotherRegion: the region of the shell is not that of the zones.
func TestRefusesAnotherRegion(t *testing.T) {
	simulateAccount(t, emptyAccount())
	t.Setenv("AWS_REGION", "eu-central-1")
	file := variablesFile(t)
	for _, args := range [][]string{{}, {"prepare"}, {"terraform"}} {
		code, stdout, stderr := account(t, append(args, "--vars", file, "--cluster", "prod")...)
		want := "region is eu-central-1, but az1 is us-east-1a in " + file + ": set AWS_REGION=us-east-1"
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %s in\n%s%s", args, code, want, stdout, stderr)
		}
	}
}

// TestCheckAccount: before the account is prepared everything is missing, afterwards nothing, and then each mistake is
// found.
func TestCheckAccount(t *testing.T) {
	world := awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16")) // the network of aws-vars.yml
	sim, _ := simulateAccount(t, world)
	file := variablesFile(t)
	check := func() (int, string, string) { return account(t, "--vars", file, "--cluster", "prod") }
	code, stdout, stderr := check()
	if code != 1 || !strings.Contains(stderr, "cloud-preflight account prepare --vars "+file+" --cluster prod") ||
		!strings.Contains(stdout, "FAILED") {
		t.Fatalf("empty account: exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = check(); code != 0 ||
		!strings.Contains(stdout, "PASSED: 0 checks failed, 0 warnings, 0 skipped, 8 passed") {
		t.Fatalf("prepared account: exit code %d\n%s%s", code, stdout, stderr)
	}
	good := sim.World()
	deny := iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
		Effect: "Deny", Action: iam.Strings{"ec2:AttachVolume"}, Resource: iam.Strings{"*"},
	}}}
	for name, c := range map[string]struct {
		change func(*store.World)
		want   string
	}{
		"another policy denies": {
			func(w *store.World) { w.Roles[0].Policies["guard"] = deny }, "IAM allows ec2:AttachVolume",
		},
		"another policy denies, and the role may use keys": {
			func(w *store.World) {
				const key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
				w.Roles[0].Policies["kubernetes"] = printedPolicy(t, "--key", key, "--encryption-key", key)
				w.Roles[0].Policies["guard"] = deny
			}, "IAM allows ec2:AttachVolume",
		},
		"a role that EC2 may not assume": {
			func(w *store.World) { w.Roles[0].Untrusted = true }, "its trust policy does not let EC2 assume it",
		},
		"no PassRole": {func(w *store.World) { w.StaticKeys[1].Inline = nil }, "iam:PassRole on the role " +
			"kubernetes-worker"},
		"a tag is missing": {
			func(w *store.World) { delete(w.Subnets[3].Tags, "kubernetes.io/cluster/prod") },
			"of the subnet " + world.Subnets[3].ID,
		},
		"another zone": {func(w *store.World) { w.Subnets[2].AvailabilityZone = "us-east-1a" }, "az2: us-east-1a in"},
		"another CIDR": {
			func(w *store.World) { w.Subnets[2].CIDR = netip.MustParsePrefix("10.0.128.0/20") },
			"subnet2_cidr: 10.0.128.0/20 in",
		},
		"a full subnet": {
			func(w *store.World) { w.Subnets[1].CIDR = netip.MustParsePrefix("10.0.200.0/29") },
			"at least 8 free addresses",
		},
		"no outgoing traffic": {func(w *store.World) { w.SecurityGroups[1].Egress = nil }, "outgoing traffic to TCP " +
			"443"},
		"a closed port": {func(w *store.World) { w.SecurityGroups[0].Ingress = nil }, "agents reach the " +
			"Director's NATS"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := good.Clone()
			if err != nil {
				t.Fatal(err)
			}
			c.change(w)
			simulateAccount(t, w)
			if code, stdout, stderr := check(); code != 1 || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, want %q in\n%s%s", code, c.want, stdout, stderr)
			}
		})
	}
}

// TestCheckAccountSeverities: an operator can accept what a check finds.
func TestCheckAccountSeverities(t *testing.T) {
	simulateAccount(t, awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16"))) // that of aws-vars.yml
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("\naz2: us-east-1b"), []byte("\naz2: us-east-1a"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for argument, want := range map[string]struct {
		code int
		text string
	}{
		"--check=account-egress=off":   {1, "FAIL account-subnets"},
		"--check=account-subnets=warn": {0, "WARN account-subnets"},
		"--check=account-subnets=off":  {0, "0 warnings, 0 skipped, 7 passed"},
		"--check=account-subnet=off":   {1, `"account-subnet" is not a check`},
	} {
		code, stdout, stderr := account(t, "--vars", file, "--cluster", "prod", argument)
		if code != want.code || !strings.Contains(stdout+stderr, want.text) {
			t.Errorf("%s: exit code %d, want %q in\n%s%s", argument, code, want.text, stdout, stderr)
		}
	}
}

// TestCheckAccountInOneRegion: policies that deny all other regions deny nothing that a cluster needs.
func TestCheckAccountInOneRegion(t *testing.T) {
	sim, _ := simulateAccount(t, awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16"))) // that of aws-vars.yml
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if err := sim.Update(func(w *store.World) error {
		guard := iam.Policy{Version: "2012-10-17", Statement: iam.Statements{{
			Effect: "Deny", Action: iam.Strings{"*"}, Resource: iam.Strings{"*"},
			Condition: iam.Conditions{"StringNotEquals": {"aws:RequestedRegion": {awssim.LabRegion}}},
		}}}
		for i := range w.Roles {
			w.Roles[i].Policies["guard"] = guard
		}
		w.StaticKeys[1].Policies = append(w.StaticKeys[1].Policies, guard)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := account(t, "--vars", file, "--cluster", "prod")
	if code != 0 || !strings.Contains(stdout, "PASSED: 0 checks failed, 0 warnings, 0 skipped, 8 passed") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

var (
	terraformResource  = regexp.MustCompile(`(?ms)^resource "(\w+)" "\w+" \{\n(.*?)^\}`)
	terraformAttribute = regexp.MustCompile(`(?m)^  (\w+) += "?(.*?)"?$`)
)

// declared are rules, tags and trust policies in Terraform's text.
func declared(text string) (all []string) {
	forms := map[string]string{
		"aws_vpc_security_group_ingress_rule": "$security_group_id admits $referenced_security_group_id at " +
			"$ip_protocol $from_port-$to_port",
		"aws_vpc_security_group_egress_rule": "egress $ip_protocol $cidr_ipv4",
		"aws_security_group":                 "$name, $description, $vpc_id, $tags",
		"aws_ec2_tag":                        "$resource_id $key=$value",
		"aws_iam_role":                       "$name $assume_role_policy",
	}
	for _, r := range terraformResource.FindAllStringSubmatch(text, -1) {
		values := map[string]string{}
		for _, attribute := range terraformAttribute.FindAllStringSubmatch(r[2], -1) {
			values[attribute[1]] = attribute[2]
		}
		if form := forms[r[1]]; form != "" {
			all = append(all, os.Expand(form, func(name string) string { return values[name] }))
		}
	}
	slices.Sort(all)
	return all
}

// created are those that prepare has made.
func created(sim *awssim.Simulator) (all []string) {
	add := func(form string, values ...any) { all = append(all, fmt.Sprintf(form, values...)) }
	w := sim.World()
	for _, g := range w.SecurityGroups {
		for _, r := range g.Ingress {
			ports := strings.Replace(fmt.Sprintf("%d-%d", r.FromPort, r.ToPort), "0-0", "-", 1)
			add("%s admits %s at %s %s", g.ID, r.Group, r.Protocol, ports)
		}
	}
	const tag = "kubernetes.io/cluster/prod"
	nodes := groupOf(w)
	add("%s, %s, %s, { %q = %q }", nodes.Name, nodes.Description, nodes.VPC, tag, nodes.Tags[tag])
	for _, r := range nodes.Egress {
		add("egress %s %s", r.Protocol, r.CIDR)
	}
	for _, s := range w.Subnets {
		for key, value := range s.Tags {
			if strings.HasPrefix(key, "kubernetes.io/") {
				add("%s %s=%s", s.ID, key, value)
			}
		}
	}
	for _, c := range sim.Calls("iam:CreateRole") {
		add("%s jsonencode(%s)", c.Params["RoleName"], c.Params["AssumeRolePolicyDocument"])
	}
	slices.Sort(all)
	return all
}

// TestTerraform: the text has what prepare creates, and the policies in it are those that prepare attaches. Prepare
// does not take it for its own.
func TestTerraform(t *testing.T) {
	sim, _ := simulateAccount(t, ownershipWorld())
	file := variablesFile(t)
	empty := worldText(t, sim)
	code, text, stderr := account(t, "terraform", "--vars", file, "--cluster", "prod")
	if code != 0 || worldText(t, sim) != empty {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for resource, want := range map[string]int{
		"aws_iam_role_policy": 2, "aws_iam_instance_profile": 2, "aws_iam_user_policy": 1,
	} {
		if got := strings.Count(text, `resource "`+resource+`" `); got != want {
			t.Errorf("%d of %s, want %d", got, resource, want)
		}
	}
	if strings.Contains(text, "<no value>") || strings.Count(text, "{") != strings.Count(text, "}") {
		t.Errorf("the text is not complete:\n%s", text)
	}
	if code, _, stderr := prepare(t, file); code != 0 {
		t.Fatal(stderr)
	}
	w := sim.World()
	text = strings.NewReplacer(
		"aws_security_group.nodes.id", groupOf(w).ID, "${aws_iam_role.control.arn}", w.RoleARN(w.Roles[0]),
		"${aws_iam_role.worker.arn}", w.RoleARN(w.Roles[1]),
	).Replace(text)
	if got, want := declared(text), created(sim); !slices.Equal(got, want) {
		t.Errorf("Terraform declares\n%s\nand prepare creates\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	documents := regexp.MustCompile(`(?s)policy = <<EOT\n(.*?)\nEOT`).FindAllStringSubmatch(text, -1)
	for i, name := range []string{"kubernetes-control", "kubernetes-worker"} {
		var policy iam.Policy
		if err := json.Unmarshal([]byte(documents[i][1]), &policy); err != nil {
			t.Fatal(err)
		}
		for _, role := range sim.World().Roles {
			if role.Name == name && !reflect.DeepEqual(role.Policies["kubernetes"], policy) {
				t.Errorf("the policy of %s differs", name)
			}
		}
	}
	var director iam.Policy
	if err := json.Unmarshal([]byte(documents[2][1]), &director); err != nil {
		t.Fatal(err)
	}
	made := w.StaticKeys[1].Inline[passRoleOfProd]
	if director.Statement[0].Sid == made.Statement[0].Sid || director.Statement[0].Effect != "Allow" ||
		!slices.Equal(director.Statement[0].Action, made.Statement[0].Action) ||
		!slices.Equal(director.Statement[0].Resource, made.Statement[0].Resource) {
		t.Errorf("the Director's policy is %+v, that of prepare %+v", director, made)
	}
	if err := sim.Update(func(w *store.World) error {
		w.StaticKeys[1].Inline[passRoleOfProd] = director
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := account(t, "--vars", file, "--cluster", "prod"); code != 0 {
		t.Errorf("account: exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, args := range [][]string{nil, {"--delete"}} {
		code, stdout, stderr := prepare(t, file, args...)
		if code != 0 || !reflect.DeepEqual(sim.World().StaticKeys[1].Inline[passRoleOfProd], director) {
			t.Errorf("prepare %v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// TestCheckNetwork: each mistake in route tables, network ACLs and rules between nodes is found, and its commands
// remove it. Repeated they change nothing.
func aclEntry(number int, egress, allow bool, protocol, cidr string, from, to int) store.ACLEntry {
	return store.ACLEntry{
		Number: number, Egress: egress, Allow: allow, Protocol: protocol, CIDR: netip.MustParsePrefix(cidr),
		FromPort: from, ToPort: to,
	}
}

// withOwnACL gives the first node subnet, 10.0.16.0/20, an ACL of its own: entries in front of those that allow all.
func withOwnACL(entries ...store.ACLEntry) func(*store.World) {
	return func(w *store.World) {
		w.NetworkACLs = append(w.NetworkACLs, store.NetworkACL{
			ID: "acl-0a0b0c0d0e0f00002", VPC: awssim.LabVPC, Subnets: []string{awssim.LabNodeSubnet(1)},
			Entries: append(entries, store.AllowAll()...),
		})
	}
}

func withEndpoints(w *store.World) {
	w.RouteTables[0].Routes = w.RouteTables[0].Routes[:1]
	for i, service := range []string{"ec2", "elasticloadbalancing", "sts"} {
		w.VPCEndpoints = append(w.VPCEndpoints, store.VPCEndpoint{
			ID: fmt.Sprintf("vpce-%d", i), VPC: awssim.LabVPC, Type: "Interface",
			Service: "com.amazonaws.us-east-1." + service, PrivateDNS: true,
			Subnets: []string{awssim.LabNodeSubnet(1)},
		})
	}
}

func membersOf(w *store.World) *store.SecurityGroup { return &w.SecurityGroups[1] }

func tcpWithin(from, to int, group string) store.Rule {
	return store.Rule{Protocol: "tcp", FromPort: from, ToPort: to, Group: group}
}

// networks are changes of an account that the command prepared, and what it finds then.
var networks = map[string]struct {
	change func(*store.World)
	want   []string // nothing is wrong if it is empty
}{
	"no way out": {
		func(w *store.World) { w.RouteTables[0].Routes = w.RouteTables[0].Routes[:1] },
		[]string{"no default route, and no VPC endpoint of ec2, elasticloadbalancing, sts", "aws ec2 create-route"},
	},
	"endpoints": {withEndpoints, nil},
	"endpoints, and an ACL for the VPC only": {
		func(w *store.World) {
			withEndpoints(w)
			withOwnACL()(w)
			w.NetworkACLs[1].Entries = []store.ACLEntry{
				aclEntry(10, false, true, "-1", "10.0.0.0/16", 0, 0),
				aclEntry(10, true, true, "-1", "10.0.0.0/16", 0, 0),
			}
		}, nil,
	},
	"only one endpoint is missing": {
		func(w *store.World) {
			withEndpoints(w)
			w.VPCEndpoints = w.VPCEndpoints[:2]
		},
		[]string{"no VPC endpoint of sts\n", "nodes do not reach sts", "aws ec2 create-vpc-endpoint"},
	},
	"a route to another VPC": {
		func(w *store.World) {
			w.RouteTables[0].Routes[1] = store.Route{Destination: "10.1.0.0/16", Gateway: "vgw-0a0b0c0d0e0f00001"}
		},
		[]string{"no default route", "unless by other routes of the table"},
	},
	"a default route in two halves": {
		func(w *store.World) {
			first, second := w.RouteTables[0].Routes[1], w.RouteTables[0].Routes[1]
			first.Destination, second.Destination = "0.0.0.0/1", "128.0.0.0/1"
			w.RouteTables[0].Routes = append(w.RouteTables[0].Routes[:1], first, second)
		}, nil,
	},
	"one table": {
		func(w *store.World) {
			w.RouteTables[0].Subnets = append(w.RouteTables[0].Subnets, w.RouteTables[1].Subnets...)
			w.RouteTables = w.RouteTables[:1]
		},
		[]string{"aws ec2 create-route-table", "aws ec2 replace-route-table-association"},
	},
	"a deleted NAT gateway": {
		func(w *store.World) { w.RouteTables[0].Routes[1].Blackhole = true },
		[]string{"state blackhole", "aws ec2 replace-route"},
	},
	"nodes at the internet gateway": {
		func(w *store.World) {
			w.RouteTables[0].Routes[1] = store.Route{Destination: "0.0.0.0/0", Gateway: awssim.LabInternetGateway}
		},
		[]string{"auto_assign_public_ip", "replace-route"},
	},
	"public subnets behind NAT": {
		func(w *store.World) { w.RouteTables[1].Routes[1] = w.RouteTables[0].Routes[1] },
		[]string{"a default route to the VPC's internet gateway", "a default route to nat-"},
	},
	"ephemeral ports": {
		withOwnACL(
			aclEntry(90, false, true, "6", "10.0.0.0/16", 0, 65535),
			aclEntry(95, false, false, "6", "0.0.0.0/0", 40000, 50000),
		),
		[]string{"tcp 1024-65535 (answers to nodes and pods) from 0.0.0.0/0", "rule 95 denies it"},
	},
	"remote desktop": {
		withOwnACL(aclEntry(90, false, false, "6", "0.0.0.0/0", 3389, 3389)),
		[]string{"ingress rule 90 denies a few of these ports", "Delete the rule, or keep it"},
	},
	"only the ephemeral ports of Linux": {
		withOwnACL(
			aclEntry(90, false, true, "6", "10.0.0.0/16", 0, 65535),
			aclEntry(95, false, true, "6", "0.0.0.0/0", 32768, 65535),
			aclEntry(99, false, false, "6", "0.0.0.0/0", 0, 65535),
		),
		[]string{"tcp 1024-65535 (answers to nodes and pods) from 0.0.0.0/0", "rule 99 denies it"},
	},
	"ports of Services between node subnets": {
		withOwnACL(aclEntry(95, false, false, "6", "10.0.32.0/20", 30000, 32767)),
		[]string{"tcp 1024-65535 (answers to nodes and pods) from 10.0.32.0/20", "rule 95 denies it"},
	},
	"443 outward": {
		withOwnACL(aclEntry(9, true, false, "6", "0.0.0.0/0", 443, 443)),
		[]string{"tcp 443 (AWS and registries) to 0.0.0.0/0", "--rule-number 8 "},
	},
	"VXLAN between subnets": {
		withOwnACL(aclEntry(50, false, false, "17", "10.0.32.0/20", 8000, 9000)),
		[]string{"udp 8472 (VXLAN: packets between pods) from 10.0.32.0/20"},
	},
	"a blocked address of the internet": {withOwnACL(aclEntry(1, false, false, "-1", "203.0.113.7/32", 0, 0)), nil},
	"another protocol":                  {withOwnACL(aclEntry(1, false, false, "17", "0.0.0.0/0", 40000, 50000)), nil},
	"no rule for ports of Services": {
		func(w *store.World) {
			withOwnACL()(w)
			w.NetworkACLs[1].Entries = append(
				w.NetworkACLs[1].Entries[1:], aclEntry(10, false, true, "6", "0.0.0.0/0", 0, 29999),
				aclEntry(11, false, true, "6", "0.0.0.0/0", 32768, 65535),
				aclEntry(12, false, true, "17", "0.0.0.0/0", 0, 65535),
			)
		},
		[]string{
			"tcp 1024-65535 (answers to nodes and pods) from 0.0.0.0/0", "no rule allows it", "--rule-number 32766",
		},
	},
	"single ports": {func(w *store.World) {
		g := membersOf(w)
		g.Ingress = append(
			g.Ingress[1:], tcpWithin(6443, 6444, g.ID), tcpWithin(2379, 2379, g.ID), tcpWithin(2380, 2380, g.ID),
			tcpWithin(10250, 10250, g.ID), tcpWithin(8853, 8853, g.ID),
			store.Rule{Protocol: "udp", FromPort: 8472, ToPort: 8472, CIDR: "10.0.0.0/16"},
		)
	}, nil},
	"no kubelets": {func(w *store.World) {
		g := membersOf(w)
		g.Ingress = append(g.Ingress[1:], tcpWithin(0, 10249, g.ID), tcpWithin(10251, 65535, g.ID),
			store.Rule{Protocol: "udp", FromPort: 8472, ToPort: 8472, CIDR: "10.0.0.0/19"})
	}, []string{
		"incoming traffic between nodes at tcp 10250", "API to kubelets",
		"incoming traffic between nodes at udp 8472",
	}},
	"outgoing traffic to the group only": {func(w *store.World) {
		membersOf(w).Egress = []store.Rule{{Protocol: "-1", Group: membersOf(w).ID}}
	}, []string{"outgoing traffic to TCP 443"}},
	"outgoing traffic to the VPC only": {func(w *store.World) {
		membersOf(w).Egress = []store.Rule{{Protocol: "-1", CIDR: "10.0.0.0/16"}}
	}, []string{"outgoing traffic to TCP 443"}},
	"outgoing traffic to the VPC only, with endpoints": {func(w *store.World) {
		withEndpoints(w)
		membersOf(w).Egress = []store.Rule{{Protocol: "-1", CIDR: "10.0.0.0/16"}}
	}, nil},
	"outgoing traffic to the group only, with endpoints": {func(w *store.World) {
		withEndpoints(w)
		membersOf(w).Egress = []store.Rule{{Protocol: "-1", Group: membersOf(w).ID}}
	}, []string{"outgoing traffic to TCP 443"}},
	"outgoing traffic to the group only, with endpoints in it": {func(w *store.World) {
		withEndpoints(w)
		for i := range w.VPCEndpoints {
			w.VPCEndpoints[i].SecurityGroups = []string{membersOf(w).ID}
		}
		membersOf(w).Egress = []store.Rule{{Protocol: "-1", Group: membersOf(w).ID}}
	}, nil},
	"public subnets, and no gateway": {func(w *store.World) {
		w.RouteTables[1].Routes = w.RouteTables[1].Routes[:1]
		w.InternetGateways[0].VPC = ""
	}, []string{"aws ec2 attach-internet-gateway"}},
	"only HTTPS leaves": {func(w *store.World) {
		membersOf(w).Egress = []store.Rule{{Protocol: "tcp", FromPort: 443, ToPort: 443, CIDR: "0.0.0.0/0"}}
	}, []string{"outgoing traffic between nodes at tcp 2380"}},
}

func TestCheckNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the AWS CLI a hundred times")
	}
	sim, _ := simulateAccount(t, awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16")))
	file := variablesFile(t)
	if code, stdout, stderr := prepare(t, file); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	good := sim.World()
	warnings := []string{"nodes at the internet gateway", "a route to another VPC", "remote desktop"}
	for name, c := range networks {
		t.Run(name, func(t *testing.T) {
			w, err := good.Clone()
			if err != nil {
				t.Fatal(err)
			}
			c.change(w)
			sim, _ := simulateAccount(t, w)
			check := func() (int, string, string) { return account(t, "--vars", file, "--cluster", "prod") }
			code, stdout, stderr := check()
			if warns := slices.Contains(warnings, name); (code == 1) != (len(c.want) > 0 && !warns) {
				t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is missing in\n%s", want, stderr)
				}
			}
			if code == 0 {
				return
			}
			commands := pastedCommands(stderr)
			runCommands(t, commands)
			if code, stdout, stderr := check(); code != 0 {
				t.Fatalf("after the commands\n%s\nexit code %d\n%s%s", commands, code, stdout, stderr)
			}
			if strings.Contains(commands, "create-route-table") { // each time
				return
			}
			fixed := worldText(t, sim)
			runCommands(t, commands)
			if worldText(t, sim) != fixed {
				t.Errorf("the commands change something when they are repeated:\n%s", commands)
			}
		})
	}
}

var commandLine = regexp.MustCompile(`(?m)^ +((?:aws ec2 |test |(?:nat|gateway|table|service|endpoints)=).*)$`)

// pastedCommands are the commands of a report but those that prepare the account, with a value for the placeholder.
func pastedCommands(report string) string {
	var lines []string
	for _, line := range commandLine.FindAllStringSubmatch(report, -1) {
		lines = append(lines, strings.Replace(line[1], "NAT_GATEWAY_ID", "nat-0a0b0c0d0e0f00001", 1))
	}
	return strings.Join(lines, "\n")
}

// runCommands runs them as they are pasted into a shell, which goes on after an error.
func runCommands(t *testing.T, commands string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-c", commands)
	command.Env = append(
		os.Environ(), "AWS_ACCESS_KEY_ID="+awssim.LabAccessKeyID, "AWS_SECRET_ACCESS_KEY="+awssim.LabSecretAccessKey,
	)
	if out, _ := command.CombinedOutput(); len(out) > 0 { // repeated commands are refused
		t.Logf("%s", out)
	}
}
