package vsphere

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

const vmUUID = "422e4956-ad22-1139-6d72-59cc8f26bc90"

// vm returns a provider on a VM of vSphere whose program is a shell script.
func vm(t *testing.T, script string) *Provider {
	t.Helper()
	p := &Provider{Root: t.TempDir(), BOSH: bosh.Root(t.TempDir())}
	write(
		t,
		filepath.Join(p.Root, "sys/class/dmi/id/product_serial"),
		"VMware-42 2e 49 56 ad 22 11 39-6d 72 59 cc 8f 26 bc 90\n",
	)
	write(t, filepath.Join(p.Root, "sys/class/dmi/id/product_uuid"), "56492e42-22ad-3911-6d72-59cc8f26bc90\n")
	if script != "" {
		write(t, p.BOSH.Package("vcenter", "bin", "vcenter"), "#!/bin/sh\n"+script)
	}
	return p
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func request(role preflight.Role) cloud.Request {
	return cloud.Request{Config: preflight.Config{
		Provider: "vsphere", Cluster: "prod", Role: role, Mode: preflight.ModeEnforce,
		VM: node.VM{InstanceGroup: "worker", InstanceID: "0a1b2c3d-4e5f", Address: "10.0.0.4"},
	}}
}

// TestWorkersAskNobody: no worker has the password of vCenter, so a cluster of 1,000 makes no more calls than one of 1.
func TestWorkersAskNobody(t *testing.T) {
	p := vm(t, "echo called >&2; exit 1")
	for range 1000 {
		outcome, err := p.Preflight(t.Context(), request(preflight.Worker))
		if err != nil {
			t.Fatal(err)
		}
		want := node.Identity{Name: "worker-0a1b2c3d", ProviderID: "vsphere://" + vmUUID, Address: "10.0.0.4"}
		if *outcome.Identity != want || outcome.Machine != vmUUID {
			t.Fatalf("%+v", outcome)
		}
		if len(outcome.Calls) != 0 || len(outcome.Results) != 1 || outcome.Results[0].Status != preflight.Passed {
			t.Fatalf("%+v", outcome)
		}
	}
}

func TestControlVMsAskTheProgram(t *testing.T) {
	answer, err := json.Marshal(cloud.Outcome{
		Results: []preflight.Result{{Check: "vm-known", Status: preflight.Passed}},
		Calls:   []preflight.Calls{{Service: "vcenter", Action: "Login", Count: 1}}, Secrets: []string{"secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := vm(t, `cat > "${0%/*}/question"; echo '`+string(answer)+`'`)
	r := request(preflight.Control)
	r.Config.CloudConfigFile = "cloud.conf"
	outcome, err := p.Preflight(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Results) != 2 || outcome.Results[1].Check != "vm-known" || len(outcome.Calls) != 1 ||
		!slices.Equal(outcome.Secrets, []string{"secret"}) {
		t.Errorf("%+v", outcome)
	}
	content, err := os.ReadFile(p.BOSH.Package("vcenter", "bin", "question"))
	if err != nil {
		t.Fatal(err)
	}
	var asked Question
	if err := json.Unmarshal(content, &asked); err != nil || asked.Machine.UUID != vmUUID ||
		asked.File != "cloud.conf" {
		t.Errorf("asked %s, %v", content, err)
	}

	broken := vm(t, "echo 'no memory' >&2; exit 1")
	if _, err := broken.Preflight(t.Context(), request(preflight.Control)); err == nil ||
		!strings.Contains(err.Error(), "no memory") {
		t.Errorf("%v, want the program's error", err)
	}
}

// TestWithoutTheProgram: without the job, vCenter is not asked, which the report says.
func TestWithoutTheProgram(t *testing.T) {
	p := vm(t, "")
	outcome, err := p.Preflight(t.Context(), request(preflight.Control))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range outcome.Results[1:] {
		if r.Status != preflight.Skipped || !strings.Contains(r.Note, "the job vcenter") {
			t.Errorf("%+v", r)
		}
	}
	if len(outcome.Results) != len(p.Checks()) {
		t.Errorf("%d results of %d checks", len(outcome.Results), len(p.Checks()))
	}
}

// TestOtherMachine: nodes have BOSH's names anyway, and the cloud controller sets the provider ID.
func TestOtherMachine(t *testing.T) {
	p := vm(t, "")
	write(t, filepath.Join(p.Root, "sys/class/dmi/id/product_serial"), "ec2-1\n")
	outcome, err := p.Preflight(t.Context(), request(preflight.Worker))
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Identity.ProviderID != "" || outcome.Identity.Name != "worker-0a1b2c3d" {
		t.Errorf("%+v", outcome.Identity)
	}
	if r := outcome.Results[0]; r.Check != "vm-uuid" || r.Status != preflight.Failed ||
		!strings.Contains(r.Findings[0].Found, `"ec2-1"`) {
		t.Errorf("%+v", r)
	}
	write(
		t,
		filepath.Join(p.Root, "sys/class/dmi/id/product_serial"),
		"VMware-00 2e 49 56 ad 22 11 39-6d 72 59 cc 8f 26 bc 90",
	)
	if outcome, err := p.Preflight(t.Context(), request(preflight.Worker)); err != nil ||
		outcome.Results[0].Status != preflight.Failed {
		t.Errorf("%+v, %v: want a finding that the files differ", outcome, err)
	}
	off := request(preflight.Worker)
	off.Config.Mode = preflight.ModeOff
	if outcome, err := p.Preflight(
		t.Context(),
		off,
	); err != nil || outcome.Results != nil ||
		outcome.Identity == nil {
		t.Errorf("%+v, %v", outcome, err)
	}
	off.Config.VM.InstanceID = ""
	if _, err := p.Preflight(t.Context(), off); err == nil || !strings.Contains(err.Error(), "vm is incomplete") {
		t.Errorf("%v", err)
	}
}
