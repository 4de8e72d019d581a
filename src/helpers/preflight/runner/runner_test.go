package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/internal/metadata"
	"kubernetes-release/internal/poll"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// machine is the identity that the provider of these tests determines.
var machine = node.Identity{Name: "ip-10-0-0-7", ProviderID: "simulated:///i-7", Address: "10.0.0.7"}

// simulated is a provider with one check, which takes a while and fails.
type simulated struct {
	clock *clocktesting.FakePassiveClock
}

const took = 1500 * time.Millisecond

func (simulated) About() cloud.About { return cloud.About{Name: "simulated"} }

func (simulated) Checks() []preflight.Check {
	return []preflight.Check{{ID: "clock", Title: "the clock is right", Severity: preflight.Fail}}
}

func (p simulated) Preflight(_ context.Context, request cloud.Request) (*cloud.Outcome, error) {
	p.clock.SetTime(p.clock.Now().Add(took))
	finding := preflight.Finding{Resource: "i-7", Wanted: "now", Found: "what a-secret-token tells"}
	result, _ := request.Config.Grade(p.Checks()[0], preflight.Outcome{Findings: []preflight.Finding{finding}})
	return &cloud.Outcome{
		Identity: &machine, Machine: "i-7", Results: []preflight.Result{result}, Secrets: []string{"a-secret-token"},
	}, nil
}

func TestRunPublishesTheReport(t *testing.T) {
	dir := t.TempDir()
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	passive := clocktesting.NewFakePassiveClock(started)
	var stdout, stderr bytes.Buffer
	options := Options{
		Config:       configFile(t, `{"provider": "simulated", "cluster": "prod", "role": "worker"}`),
		NodeIdentity: filepath.Join(dir, "node.json"), Log: filepath.Join(dir, "preflight.log"),
		Output: Output{
			JSON: true, Report: filepath.Join(dir, "report.json"), Metrics: filepath.Join(dir, "preflight.prom"),
			Stdout: &stdout, Stderr: &stderr,
		},
		Timeout: time.Minute, Clock: passive,
	}
	report, err := Run(t.Context(), cloud.NewRegistry(simulated{passive}), options)
	if err != nil {
		t.Fatal(err)
	}
	if report.Result != preflight.RunFailed || !report.Started.Equal(started) ||
		report.Milliseconds != took.Milliseconds() || report.Machine != "i-7" {
		t.Errorf("report is %+v", report)
	}
	if id, err := node.Read(options.NodeIdentity); err != nil || id != machine {
		t.Errorf("identity is %+v, %v", id, err)
	}
	if file := read(t, options.Report); file != stdout.String() || !json.Valid(stdout.Bytes()) {
		t.Errorf("standard output and the report differ:\n%s\n%s", stdout.String(), file)
	}
	if metrics := read(t, options.Metrics); !strings.Contains(metrics, `check="clock",status="fail"`) {
		t.Errorf("metrics are\n%s", metrics)
	}
	log := read(t, options.Log)
	for _, want := range []string{`"check":"clock","status":"fail"`, `"failed":1,"warned":0,"duration_ms":1500`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if !strings.Contains(stderr.String(), "FAIL clock") || strings.Contains(stderr.String(), `"duration_ms"`) {
		t.Errorf("standard error is\n%s", stderr.String())
	}
	if all := stdout.String() + stderr.String() + log; strings.Contains(all, "a-secret-token") {
		t.Errorf("a secret was published:\n%s", all)
	}
}

// TestRunReportsThatTheIdentityWasNotWritten: the report of the checks is published all the same.
func TestRunReportsThatTheIdentityWasNotWritten(t *testing.T) {
	passive := clocktesting.NewFakePassiveClock(time.Now())
	options := Options{
		Config: configFile(t, `{"provider": "simulated", "cluster": "prod", "role": "worker", "mode": "warn",
			"retry_window": "0s"}`),
		NodeIdentity: filepath.Join(configFile(t, "a file"), "node.json"),
		Output:       Output{Stdout: io.Discard, Stderr: io.Discard}, Timeout: time.Minute, Clock: passive,
	}
	report, err := Run(t.Context(), cloud.NewRegistry(simulated{passive}), options)
	if err == nil || !strings.Contains(err.Error(), "node identity") || report.Result != preflight.RunError ||
		len(report.Results) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// waiting is a provider that repeats its check for as long as it may, as others do.
type waiting struct{ simulated }

func (p waiting) Preflight(ctx context.Context, request cloud.Request) (*cloud.Outcome, error) {
	if err := poll.Sleep(ctx, request.Config.RetryWindow.Std()); err != nil {
		return nil, err
	}
	return p.simulated.Preflight(ctx, request)
}

// TestTheWindowEndsBeforeTheTimeout: without a report, mode warn would stop the deployment, and nobody would know why.
func TestTheWindowEndsBeforeTheTimeout(t *testing.T) {
	passive := clocktesting.NewFakePassiveClock(time.Now())
	options := Options{
		Config: configFile(t, `{"provider": "simulated", "cluster": "prod", "role": "worker", "mode": "warn",
			"retry_window": "10m"}`),
		Output: Output{Stdout: io.Discard, Stderr: io.Discard}, Timeout: 2 * time.Second, Clock: passive,
	}
	report, err := Run(t.Context(), cloud.NewRegistry(waiting{simulated{passive}}), options)
	if err != nil || report.Result == preflight.RunFailed || report.Results[0].Status != preflight.Warned {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestNodeNamesOfOtherProviders: where the release does not know the cloud's names, nodes have BOSH's.
func TestNodeNamesOfOtherProviders(t *testing.T) {
	const vm = `"vm": {"instance_group": "worker", "instance_id": "1a2b3c4d-0000-4000-8000-000000000000",
		"address": "10.0.0.7"}, `
	const config = `"provider": "cloudstack", "cluster": "prod", "role": "control"}`
	var stderr bytes.Buffer
	options := Options{
		Config: configFile(t, "{"+vm+config), NodeIdentity: filepath.Join(t.TempDir(), "node.json"),
		Output: Output{Stdout: io.Discard, Stderr: &stderr}, Clock: clock.RealClock{},
	}
	_, err := Run(t.Context(), providers.All(), options)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	id, err := node.Read(options.NodeIdentity)
	if err != nil || id.Name != "worker-1a2b3c4d" || id.Address != "10.0.0.7" || id.ProviderID != "" {
		t.Errorf("%+v, %v\n%s", id, err, stderr.String())
	}
	options.Config = configFile(t, "{"+config)
	if report, err := Run(t.Context(), providers.All(), options); report != nil || err == nil ||
		!strings.Contains(err.Error(), "vm is incomplete") {
		t.Errorf("without the VM: %+v, %v", report, err)
	}
}

// named is a provider without checks that knows the cloud's names. It answers when it was asked some times.
type named struct {
	failures *int
	err      error
}

func (named) About() cloud.About { return cloud.About{Name: "named", Title: "Named Cloud"} }

func (p named) Identify(_ context.Context, vm node.VM) (node.Identity, error) {
	if *p.failures--; *p.failures >= 0 {
		return node.Identity{}, p.err
	}
	return node.Identity{Name: "vm-1", ProviderID: "named:///vm-1", Address: vm.Address}, nil
}

// TestNodeNamesOfTheCloud: without checks too, nodes have the names by which the cloud's controller finds their VMs.
func TestNodeNamesOfTheCloud(t *testing.T) {
	temporary := fmt.Errorf("starting: %w", metadata.ErrTemporary)
	for name, test := range map[string]struct {
		failures int
		err      error
		window   string
		want     string
	}{
		"at once":              {0, nil, "0s", ""},
		"when it has started":  {1, temporary, "10s", ""},
		"not in time":          {100, temporary, "0s", "timed out after 5s: starting"},
		"never":                {100, errors.New("unknown"), "10m", "Named Cloud does not identify this VM"},
		"never, and it is off": {100, errors.New("unknown"), `10m", "mode": "off`, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{
				Config: configFile(t, `{"vm": {"instance_group": "worker", "instance_id": "1a2b3c4d",
					"address": "10.0.0.7"}, "provider": "named", "cluster": "prod", "role": "worker",
					"retry_window": "`+test.window+`"}`),
				NodeIdentity: filepath.Join(t.TempDir(), "node.json"),
				Output:       Output{Stdout: io.Discard, Stderr: io.Discard}, Clock: clock.RealClock{},
			}
			failures := test.failures
			_, err := Run(t.Context(), cloud.NewRegistry(named{&failures, test.err}), options)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatal(err)
			}
			id, err := node.Read(options.NodeIdentity)
			if test.want == "" && (err != nil || id.Name != "vm-1" || id.ProviderID != "named:///vm-1") ||
				test.want != "" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%+v, %v", id, err)
			}
		})
	}
}

// configFile writes a configuration and returns its path.
func configFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "preflight.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
