package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/helpers/cloud/aws"
	"kubernetes-release/helpers/node"
	"kubernetes-release/helpers/preflight"
	"kubernetes-release/internal/cli"
	"kubernetes-release/lab/awssim"
)

// simulate starts the AWS simulator with one instance, which this test process acts as.
func simulate(t *testing.T, change func(*awssim.Instance)) {
	t.Helper()
	// Connections to loopback come from 127.0.0.1, so that must be the instance's address.
	world := awssim.NewLabWorld(awssim.LabOptions{Network: netip.MustParsePrefix("127.0.0.0/16"), Cluster: "prod"})
	world.Subnets[0].CIDR = netip.MustParsePrefix("127.0.0.0/20")
	i := awssim.Instance{ID: "i-0123456789abcdef0", Subnet: world.Subnets[0].ID, Address: netip.MustParseAddr("127.0.0.1"),
		SecurityGroups: []string{awssim.LabSecurityGroup}, InstanceProfile: "kubernetes-control", Tags: awssim.Tags{"kubernetes.io/cluster/prod": "shared"}}
	change(&i)
	world.Instances = []awssim.Instance{i}
	sim, err := awssim.New(world, awssim.Options{})
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
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("AWS_ENDPOINT_URL", api.URL)
	t.Setenv("AWS_CA_BUNDLE", "") // every client would read it
}

// invoke runs the program with a configuration and returns its exit code and outputs.
func invoke(t *testing.T, config string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "preflight.json")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return run(append([]string{"--config", path}, args...)...)
}

// run runs the program with arguments and returns its exit code and outputs.
func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	command := newCommand(&aws.Provider{})
	command.SetOut(&out)
	command.SetErr(&errs)
	code = cli.Run(context.Background(), command, args, &errs)
	return code, out.String(), errs.String()
}

const good = `{"provider": "aws", "cluster": "prod", "role": "control", "mode": "enforce", "retry_window": "0s", "checks": {}, "cloud_config_file": ""}`

func TestPasses(t *testing.T) {
	simulate(t, func(*awssim.Instance) {})
	dir := t.TempDir()
	identity, report, log := filepath.Join(dir, "node.json"), filepath.Join(dir, "report.json"), filepath.Join(dir, "log")
	code, stdout, stderr := invoke(t, good, "--node-identity", identity, "--report", report, "--log", log)
	if code != 0 || !strings.Contains(stdout, "PASSED: 0 checks failed") || !strings.Contains(stdout, "An internet-facing load balancer would get:") {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	id, err := node.Read(identity)
	if want := (node.Identity{Name: "ip-127-0-0-1.ec2.internal", ProviderID: "aws:///us-east-1a/i-0123456789abcdef0", Address: "127.0.0.1", Region: "us-east-1", Zone: "us-east-1a"}); err != nil || id != want {
		t.Errorf("identity %+v, %v", id, err)
	}
	content, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		SchemaVersion int    `json:"schema_version"`
		Verdict       string `json:"verdict"`
		Results       []any  `json:"results"`
	}
	if err := json.Unmarshal(content, &decoded); err != nil || decoded.SchemaVersion != 3 || decoded.Verdict != "passed" || len(decoded.Results) < 30 {
		t.Errorf("report %+v, %v", decoded, err)
	}
	lines, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(lines), `"msg":"verdict"`) || !strings.Contains(string(lines), `"check":"instance-cluster-tag"`) {
		t.Errorf("log: %v\n%s", err, lines)
	}
}

func TestFails(t *testing.T) {
	simulate(t, func(i *awssim.Instance) { i.Tags = awssim.Tags{"Name": "control/0"} })
	identity := filepath.Join(t.TempDir(), "node.json")
	code, stdout, stderr := invoke(t, good, "--node-identity", identity, "--output", "json")
	if code != exitFailed || !json.Valid([]byte(stdout)) {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	tail := strings.Join(lines[max(0, len(lines)-7):], "\n")
	for _, want := range []string{"FAIL instance-cluster-tag: i-0123456789abcdef0", "wanted: tag kubernetes.io/cluster/prod", "found: ", "fix: ",
		"aws ec2 create-tags --region us-east-1 --resources i-0123456789abcdef0 --tags Key=kubernetes.io/cluster/prod,Value=shared"} {
		if !strings.Contains(tail, want) {
			t.Errorf("the end of stderr lacks %q:\n%s", want, stderr)
		}
	}
	if _, err := node.Read(identity); err != nil {
		t.Errorf("the identity was not written: %v", err)
	}
	if code, _, stderr := invoke(t, strings.Replace(good, "enforce", "warn", 1)); code != 0 || !strings.Contains(stderr, "WARN instance-cluster-tag") {
		t.Errorf("mode warn: exit code %d\n%s", code, stderr)
	}
	if code, _, stderr := invoke(t, strings.Replace(good, `"checks": {}`, `"checks": {"instance-cluster-tag": "off"}`, 1)); code != 0 || strings.Contains(stderr, "instance-cluster-tag") {
		t.Errorf("check off: exit code %d\n%s", code, stderr)
	}
}

func TestMissingIdentityIsAnError(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	for _, mode := range []string{"warn", "off"} {
		dir := t.TempDir()
		identity, path := filepath.Join(dir, "node.json"), filepath.Join(dir, "report.json")
		code, stdout, stderr := invoke(t, strings.Replace(good, "enforce", mode, 1), "--node-identity", identity, "--report", path)
		if code != exitCouldNotRun || !strings.Contains(stderr, identity) {
			t.Errorf("mode %s: exit code %d\n%s", mode, code, stderr)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var report struct{ Verdict preflight.Verdict }
		if err := json.Unmarshal(content, &report); err != nil || report.Verdict != preflight.VerdictError || strings.Contains(stdout, "PASSED") {
			t.Errorf("mode %s: verdict %q, %v\n%s", mode, report.Verdict, err, stdout)
		}
	}
	if code, _, stderr := invoke(t, good); code != exitFailed || !strings.Contains(stderr, "FAIL metadata-service") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

func TestCouldNotRun(t *testing.T) {
	replace := func(before, after string) string { return strings.Replace(good, before, after, 1) }
	for name, test := range map[string]struct {
		config string
		args   []string
		want   string
	}{
		"unknown check":    {replace(`{}`, `{"instance-cluster-tags": "off", "clock": "no"}`), nil, `"instance-cluster-tags" is not a check (did you mean instance-cluster-tag?)`},
		"unknown severity": {replace(`{}`, `{"clock": "no"}`), nil, `check "clock" is set to "no"; allowed are fail, warn and off. Known checks`[:50]},
		"unknown key":      {replace(`"mode"`, `"modus"`), nil, `"modus"`},
		"mode":             {replace("enforce", "on"), nil, `mode "on" is not one of`},
		"role":             {replace(`"control"`, `"master"`), nil, `role "master" is not one of control, worker`},
		"window":           {replace("0s", "soon"), nil, `"soon" is not a duration`},
		"provider removed": {replace(`"aws"`, `"photon"`), nil, `cloud provider "photon" cannot be used: Kubernetes removed the built-in provider in 1.16`},
		"provider":         {replace(`"aws"`, `"asw"`), nil, `cloud provider "asw" is unknown (did you mean "aws"?)`},
		"no cluster":       {replace(`"prod"`, `""`), nil, "cluster.name"},
		"cloud.conf":       {replace(`"cloud_config_file": ""`, `"cloud_config_file": "/absent"`), nil, "/absent"},
		"output":           {good, []string{"--output", "yaml"}, `--output "yaml" is not one of text, json`},
		"timeout":          {good, []string{"--timeout", "0s"}, "not a positive duration"},
		"argument":         {good, []string{"again"}, `"again"`},
		"flag":             {good, []string{"--color"}, "--color"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := invoke(t, test.config, test.args...)
			if code != exitCouldNotRun || !strings.Contains(stderr, test.want) || stdout != "" {
				t.Errorf("exit code %d, want %q in\n%s", code, test.want, stderr)
			}
		})
	}
	if code, _, stderr := run(); code != exitCouldNotRun || !strings.Contains(stderr, "--config") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestOtherProviders(t *testing.T) {
	for name, want := range map[string]string{"": "there is nothing to check", "openstack": "Kubernetes removed the built-in provider in 1.26", "azure": "successor cloud-provider-azure"} {
		code, _, stderr := invoke(t, strings.Replace(good, `"aws"`, `"`+name+`"`, 1))
		if code != 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, want %q in\n%s", name, code, want, stderr)
		}
	}
}

func TestPolicyCommand(t *testing.T) {
	if code, stdout, stderr := run("iam-policy", "--role", "worker", "--cluster", "prod", "--partition", "aws-cn"); code != 0 || !json.Valid([]byte(stdout)) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, stdout, stderr := run("iam-policy", "--role", "boss", "--cluster", "prod"); code != exitCouldNotRun || !strings.Contains(stderr, `role "boss"`) || stdout != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// ops-files/aws.yml always deploys the EBS CSI driver, so the documented command must include its permissions.
	control := []string{"iam-policy", "--role", "control", "--cluster", "prod", "--vpc", "vpc-0123456789abcdef0"}
	if code, stdout, stderr := run(control...); code != 0 || !strings.Contains(stdout, "ec2:CreateVolume") {
		t.Errorf("exit code %d: no permission for volumes: %s", code, stderr)
	}
	if code, stdout, stderr := run(append(control, "--no-storage")...); code != 0 || strings.Contains(stdout, "ec2:CreateVolume") {
		t.Errorf("exit code %d: --no-storage leaves volumes in: %s", code, stderr)
	}
	if code, _, stderr := run(append(control, "--no-storage", "--key", "arn:aws:kms:us-east-1:123456789012:key/x")...); code != exitCouldNotRun || !strings.Contains(stderr, "--no-storage") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, stdout, _ := run("checks"); code != 0 || !strings.Contains(stdout, "instance-cluster-tag") {
		t.Errorf("exit code %d", code)
	}
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "iam-policy", "checks"} {
		if code, stdout, stderr := run(append(strings.Fields(command), "--help")...); code != 0 || !strings.Contains(stdout, "Usage:") || stderr != "" {
			t.Errorf("%s --help: exit code %d, %q, %q", command, code, stdout, stderr)
		}
	}
}

// TestOutputContainsNoCredentials searches everything that a run writes for the role's credentials, with and without failures.
func TestOutputContainsNoCredentials(t *testing.T) {
	for _, tags := range []awssim.Tags{{"kubernetes.io/cluster/prod": "shared"}, nil} {
		simulate(t, func(i *awssim.Instance) { i.Tags = tags })
		dir := t.TempDir()
		_, stdout, stderr := invoke(t, good, "--thorough", "--node-identity", filepath.Join(dir, "node.json"), "--report", filepath.Join(dir, "report.json"), "--log", filepath.Join(dir, "log"))
		written := map[string]string{"stdout": stdout, "stderr": stderr}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 3 {
			t.Fatalf("%d files: %v", len(files), err)
		}
		for _, f := range files {
			content, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			written[f.Name()] = string(content)
		}
		secrets := credentials(t)
		if again := credentials(t); !slices.Equal(again, secrets) {
			t.Fatal("each request returns other credentials, so these are not the program's")
		}
		for where, content := range written {
			for _, secret := range secrets {
				if strings.Contains(content, secret) {
					t.Errorf("%s has %s…", where, secret[:4])
				}
			}
		}
	}
}

// credentials reads the role's credentials from instance metadata, as the program does.
func credentials(t *testing.T) []string {
	t.Helper()
	ask := func(method, path, header, value string) []byte {
		request, err := http.NewRequestWithContext(t.Context(), method, os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")+"/latest/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(header, value)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", path, response.Status, err)
		}
		return body
	}
	token := string(ask(http.MethodPut, "api/token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60"))
	var document struct{ AccessKeyID, SecretAccessKey, Token string }
	if err := json.Unmarshal(ask(http.MethodGet, "meta-data/iam/security-credentials/kubernetes-control", "X-Aws-Ec2-Metadata-Token", token), &document); err != nil {
		t.Fatal(err)
	}
	return []string{document.AccessKeyID, document.SecretAccessKey, document.Token}
}

// compareGenerated compares the text between two markers in a file with what the code generates. UPDATE_DOCS=1 updates the file.
func compareGenerated(t *testing.T, path, begin, end, want string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks %q or %q", path, begin, end)
	}
	if old == want {
		return
	}
	if os.Getenv("UPDATE_DOCS") == "" {
		t.Fatalf("%s is out of date; update it: UPDATE_DOCS=1 go test ./cmd/cloud-preflight", path)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTemplateListsTheChecks: the job's template rejects every other id, before there is a VM.
func TestTemplateListsTheChecks(t *testing.T) {
	var ids []string
	for _, c := range (&aws.Provider{}).Checks() {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	const indent, width = "    ", 110
	list, line := "\n", indent
	for _, id := range ids {
		if len(line)+len(id) > width {
			list, line = list+strings.TrimRight(line, " ")+"\n", indent
		}
		line += id + " "
	}
	list += strings.TrimRight(line, " ") + "\n  "
	compareGenerated(t, "../../../jobs/cloud-provider/templates/preflight.json.erb", "checks = %w[", "]", list)
}

func TestDocumentedChecks(t *testing.T) {
	const path = "../../../docs/aws.md"
	_, table, _ := run("checks", "--markdown")
	compareGenerated(t, path, "<!-- checks: written by UPDATE_DOCS=1 go test ./cmd/cloud-preflight -run TestDocumentedChecks -->\n", "<!-- end of checks -->\n", table)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range (&aws.Provider{}).Checks() {
		if c.Title == "" || c.Fix == "" || len(c.Roles) == 0 {
			t.Errorf("the entry of %s is incomplete: %+v", c.ID, c)
		}
		if !slices.Contains(sections(string(content)), c.Section) {
			t.Errorf("%s has no section %q, which %s refers to", path, c.Section, c.ID)
		}
	}
}

// sections are the headings of a Markdown page as URL fragments.
func sections(page string) []string {
	var fragments []string
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			fragments = append(fragments, strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-"))
		}
	}
	return fragments
}
