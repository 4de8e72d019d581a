package node

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/rootfile"
)

func writeConfig(t *testing.T, content map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadDerivesTheNameFromTheInstance(t *testing.T) {
	for _, test := range []struct{ group, id, want string }{
		{"worker", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "worker-0a1b2c3d"},
		{"Worker_Pool A", "0A1B2C3D-4e5f-6071-8293-a4b5c6d7e8f9", "worker-pool-a-0a1b2c3d"},
		{"worker__gpu", "0", "worker--gpu-0"},
		{"z1.worker", "0", "z1.worker-0"},
	} {
		path := writeConfig(
			t, map[string]any{"instance_group": test.group, "instance_id": test.id, "address": "10.0.0.4"},
		)
		want := Identity{Name: test.want, Address: "10.0.0.4"}
		if got, err := Load(path); err != nil || got != want {
			t.Errorf("Load = %+v, %v; want %+v", got, err, want)
		}
		if got, detected, err := LoadForCheck(path); err != nil || got != want || !detected {
			t.Errorf("LoadForCheck = %+v, %v, %v; want %+v", got, detected, err, want)
		}
	}
}

// TestBOSHNameOfRecords: the VM computes the name from the manifest's name of the group, control VMs from the one in
// BOSH's records.
func TestBOSHNameOfRecords(t *testing.T) {
	for _, group := range []string{"worker", "Worker_GPU", "worker__gpu", "w-_-g", "w--_g"} {
		if own, recorded := BOSHName(group, "0"), BOSHName(boshdns.Canonical(group), "0"); own != recorded {
			t.Errorf("%s: the VM is node %s, and by BOSH's records %s", group, own, recorded)
		}
	}
}

func TestLoadReadsTheIdentityFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.json")
	path := writeConfig(
		t,
		map[string]any{
			"instance_group": "worker",
			"instance_id":    "0a1b2c3d-4e5f",
			"address":        "10.0.0.4",
			"identity_file":  file,
		},
	)

	_, err := Load(path)
	if err == nil || !strings.Contains(err.Error(), file) ||
		!strings.Contains(err.Error(), "cloud-provider/pre-start.stderr.log") {
		t.Errorf("error = %v, want the missing file and the log of the job that writes it", err)
	}
	provisional := Identity{Name: "worker-0a1b2c3d", Address: "10.0.0.4"}
	if got, detected, err := LoadForCheck(path); err != nil || got != provisional || detected {
		t.Errorf("LoadForCheck = %+v, %v, %v; want %+v, not detected", got, detected, err, provisional)
	}

	want := Identity{
		Name:       "ip-10-0-0-4.ec2.internal",
		ProviderID: "aws:///us-east-1a/i-0123456789abcdef0",
		Address:    "10.0.0.4",
	}
	if err := Write(file, want); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || got != want {
		t.Errorf("Load = %+v, %v; want %+v", got, err, want)
	}
	if got, detected, err := LoadForCheck(path); err != nil || got != want || !detected {
		t.Errorf("LoadForCheck = %+v, %v, %v; want %+v", got, detected, err, want)
	}

	if err := os.WriteFile(file, []byte(`{"name": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadForCheck(path); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error = %v, want the name of the broken file", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		content map[string]any
		want    []string
	}{
		"nothing":     {map[string]any{}, []string{"instance_group is empty", "instance_id is empty"}},
		"unknown key": {map[string]any{"instance_grup": "worker"}, []string{"instance_grup", "instance_group"}},
		"address": {
			map[string]any{"instance_group": "w", "instance_id": "0", "address": "x"},
			[]string{`address "x" is not an IP address`},
		},
		"name": {
			map[string]any{"instance_group": "_", "instance_id": "0", "address": "10.0.0.4"},
			[]string{"is not a DNS subdomain"},
		},
		"relative path": {
			map[string]any{"instance_group": "w", "instance_id": "0", "address": "10.0.0.4", "identity_file": "x"},
			[]string{"identity_file"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeConfig(t, test.content)
			_, err := Load(path)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range append(test.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want %q", err, want)
				}
			}
			if _, _, err := LoadForCheck(path); err == nil {
				t.Error("LoadForCheck accepts it")
			}
		})
	}
	absent := filepath.Join(t.TempDir(), "absent.json")
	if _, _, err := LoadForCheck(absent); err == nil || !strings.Contains(err.Error(), absent) {
		t.Errorf("error = %v, want the name of the missing file", err)
	}
}

// TestAnotherUserCannotNameTheNode: the agent creates the directory of the identity file so that vcap can write to it.
func TestAnotherUserCannotNameTheNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cloud-provider")
	file := filepath.Join(dir, "node.json")
	path := writeConfig(
		t,
		map[string]any{
			"instance_group": "worker",
			"instance_id":    "0a1b2c3d-4e5f",
			"address":        "10.0.0.4",
			"identity_file":  file,
		},
	)
	if err := errors.Join(
		os.Mkdir(dir, 0o770),
		os.Chmod(dir, 0o770),
		os.WriteFile(file, []byte(`{"name": "control-0", "address": "10.0.0.1"}`), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, rootfile.ErrUntrusted) ||
		!strings.Contains(err.Error(), "pre-start script of the job cloud-provider") {
		t.Errorf("error = %v", err)
	}
	// In pre-start, that of cloud-provider may not have taken the directory yet.
	if got, detected, err := LoadForCheck(path); err != nil || detected || got.Name != "worker-0a1b2c3d" {
		t.Errorf("LoadForCheck = %+v, %v, %v", got, detected, err)
	}
	want := Identity{Name: "ip-10-0-0-4.ec2.internal", Address: "10.0.0.4"}
	if err := Write(file, want); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || got != want {
		t.Errorf("Load = %+v, %v; want %+v", got, err, want)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("directory: %v (%v), want mode 0750", info.Mode(), err)
	}
}
