package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/internal/cli"
	"kubernetes-release/preflight"
)

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
	command := newCommand(providers.All(), &preflight.Secrets{})
	command.SetOut(&out)
	command.SetErr(&errs)
	code = cli.Run(context.Background(), command, args, &errs)
	return code, out.String(), errs.String()
}

const good = `{"provider": "aws", "cluster": "prod", "role": "control", "mode": "enforce",
	"retry_window": "0s", "checks": {}, "cloud_config_file": ""}`

func TestMissingIdentityIsAnError(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	for _, mode := range []string{"warn", "off"} {
		dir := t.TempDir()
		identity, path := filepath.Join(dir, "node.json"), filepath.Join(dir, "report.json")
		code, stdout, stderr := invoke(
			t, strings.Replace(good, "enforce", mode, 1), "--node-identity", identity, "--report", path,
		)
		if code != exitCouldNotRun || !strings.Contains(stderr, identity) {
			t.Errorf("mode %s: exit code %d\n%s", mode, code, stderr)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var report struct{ Result preflight.RunResult }
		if err := json.Unmarshal(content, &report); err != nil || report.Result != preflight.RunError ||
			strings.Contains(stdout, "PASSED") {
			t.Errorf("mode %s: result %q, %v\n%s", mode, report.Result, err, stdout)
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
		"unknown check": {
			replace(`{}`, `{"instance-cluster-tags": "off", "clock": "no"}`), nil,
			`"instance-cluster-tags" is not a check (did you mean instance-cluster-tag?)`,
		},
		"unknown severity": {
			replace(`{}`, `{"clock": "no"}`), nil,
			`check "clock" is set to "no"; allowed are fail, warn and off. Known checks`[:50],
		},
		"unknown key": {replace(`"mode"`, `"modus"`), nil, `"modus"`},
		"unknown key of the provider": {
			replace(`{}`, `{}, "cloud": {"storage_zone": []}`), nil,
			`preflight.json: cloud: unknown field "storage_zone"; did you mean storage_zones?`,
		},
		"value of the provider": {
			replace(`{}`, `{}, "cloud": {"pod_network": "fd00::/64"}`), nil,
			`pod_network "fd00::/64" is not an IPv4 network such as 10.244.0.0/16`,
		},
		"provider that reads nothing": {
			replace(`"aws"`, `"gce", "cloud": {"storage": true}`), nil, `cloud: unknown field "storage"`,
		},
		"mode":   {replace("enforce", "on"), nil, `mode "on" is not one of`},
		"role":   {replace(`"control"`, `"master"`), nil, `role "master" is not one of control, worker`},
		"window": {replace("0s", "soon"), nil, `"soon" is not a duration`},
		"provider removed": {
			replace(`"aws"`, `"photon"`), nil,
			`cloud provider "photon" cannot be used: Kubernetes removed the built-in provider in 1.16`,
		},
		"provider":   {replace(`"aws"`, `"asw"`), nil, `cloud provider "asw" is unknown (did you mean "aws"?)`},
		"no cluster": {replace(`"prod"`, `""`), nil, "cluster.name"},
		"cloud.conf": {replace(`"cloud_config_file": ""`, `"cloud_config_file": "/absent"`), nil, "/absent"},
		"output":     {good, []string{"--output", "yaml"}, `--output "yaml" is not one of text, json`},
		"timeout":    {good, []string{"--timeout", "0s"}, "not a positive duration"},
		"argument":   {good, []string{"again"}, `"again"`},
		"flag":       {good, []string{"--color"}, "--color"},
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
	code, _, stderr := run("account", "--output", "yaml")
	if want := `--output "yaml" is not one of text, json`; code != exitCouldNotRun || !strings.Contains(stderr, want) {
		t.Errorf("account: exit code %d, want %q in\n%s", code, want, stderr)
	}
}

func TestOtherProviders(t *testing.T) {
	for name, want := range map[string]string{"": "there is nothing to check", "gce": "Kubernetes removed the " +
		"built-in provider in 1.31", "azure": "provide cloud-provider-azure"} {
		code, _, stderr := invoke(t, strings.Replace(good, `"aws"`, `"`+name+`"`, 1))
		if code != 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, want %q in\n%s", name, code, want, stderr)
		}
	}
}

func TestPolicyCommand(t *testing.T) {
	if code, stdout, stderr := run(
		"iam-policy", "--role", "worker", "--cluster", "prod", "--partition", "aws-cn",
	); code != 0 ||
		!json.Valid([]byte(stdout)) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, stdout, stderr := run(
		"iam-policy", "--role", "boss", "--cluster", "prod",
	); code != exitCouldNotRun || !strings.Contains(stderr, `role "boss"`) ||
		stdout != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// ops-files/aws.yml always deploys the EBS CSI driver, so the documented command must include its permissions.
	control := []string{"iam-policy", "--role", "control", "--cluster", "prod", "--vpc", "vpc-0123456789abcdef0"}
	if code, stdout, stderr := run(control...); code != 0 || !strings.Contains(stdout, "ec2:CreateVolume") {
		t.Errorf("exit code %d: no permission for volumes: %s", code, stderr)
	}
	if code, stdout, stderr := run(
		append(control, "--no-storage")...); code != 0 ||
		strings.Contains(stdout, "ec2:CreateVolume") {
		t.Errorf("exit code %d: --no-storage leaves volumes in: %s", code, stderr)
	}
	if code, _, stderr := run(
		append(
			control, "--no-storage", "--key", "arn:aws:kms:us-east-1:123456789012:key/x",
		)...); code != exitCouldNotRun ||
		!strings.Contains(stderr, "--no-storage") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, stdout, stderr := run(append(control, "--pod-roles", "prod-issuer/prod")...); code != 0 ||
		!strings.Contains(stdout, `"arn:aws:s3:::prod-issuer/prod/.well-known/openid-configuration"`) ||
		!strings.Contains(stdout, "iam:GetOpenIDConnectProvider") {
		t.Errorf("exit code %d: no permission to publish keys: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := run(append(control, "--pod-roles", "https://x/y")...); code != exitCouldNotRun ||
		!strings.Contains(stderr, `object "https:/x/y/.well-known/openid-configuration" of pod roles is not`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, stdout, _ := run("checks"); code != 0 || !strings.Contains(stdout, "instance-cluster-tag") {
		t.Errorf("exit code %d", code)
	}
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "iam-policy", "checks"} {
		if code, stdout, stderr := run(
			append(strings.Fields(command), "--help")...); code != 0 || !strings.Contains(stdout, "Usage:") ||
			stderr != "" {
			t.Errorf("%s --help: exit code %d, %q, %q", command, code, stdout, stderr)
		}
	}
}

// The entry of each check is complete, and the page of its provider has the section that it refers to.
func TestChecksAreComplete(t *testing.T) {
	for _, p := range providers.All().All() {
		checker, ok := p.(cloud.Checker)
		if !ok {
			continue
		}
		path := filepath.Join("../../../../docs", p.About().Page)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, table, _ := run("checks", "--markdown", "--provider", p.About().Name); table == "" ||
			!strings.Contains(string(content), table) {
			t.Errorf("%s does not have the table that checks --markdown prints: run make generate", path)
		}
		for _, c := range checker.Checks() {
			if c.Title == "" || c.Fix == "" || len(c.Roles) == 0 {
				t.Errorf("the entry of %s is incomplete: %+v", c.ID, c)
			}
			if !slices.Contains(sections(string(content)), c.Section) {
				t.Errorf("%s has no section %q, which %s refers to", path, c.Section, c.ID)
			}
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
