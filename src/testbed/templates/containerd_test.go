package templates

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestContainerdSettings gives settings of the property config to a real containerd, as pre-start does.
func TestContainerdSettings(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real containerd")
	}
	bin, err := filepath.Abs(filepath.Join(components, "containerd", "bin", "containerd"))
	if err != nil {
		t.Fatal(err)
	}
	const runtime = "io.containerd.cri.v1.runtime"
	for name, test := range map[string]struct {
		config values
		want   []string // of the message, nil if there is none
	}{
		"none": {},
		"all kinds of values": {config: values{
			runtime: values{
				"device_ownership_from_security_context": true, "max_container_log_line_size": 8192,
				"ignore_deprecation_warnings": []any{"CVE-\"1\""}, "stream_idle_timeout": nil,
				"containerd": values{"runtimes": values{"kata": values{
					"runtime_type": "io.containerd.kata.v2", "options": values{"ConfigPath": "/opt/kata.toml"},
				}}},
			},
			"io.containerd.nri.v1.nri": values{"disable": false},
		}},
		"an unknown field": {
			config: values{runtime: values{"devce_ownership": true}},
			want: []string{
				"property config of job containerd", "unknown key", "key=devce_ownership plugin=" + runtime,
			},
		},
		"a value of another type": {
			config: values{runtime: values{"device_ownership_from_security_context": "yes"}},
			want:   []string{"property config of job containerd", "DeviceOwnershipFromSecurityContext of type bool"},
		},
		"an unknown plugin": {
			config: values{"io.containerd.cri.v1.run": values{"a": 1}},
			want:   []string{"containerd has no plugin io.containerd.cri.v1.run"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			properties := values{}
			if test.config != nil {
				properties["config"] = test.config
			}
			files := mustRender(t, "containerd", inputFor(t, "containerd").with(properties))
			dir := t.TempDir()
			script := string(files["bin/check-config"])
			for from, to := range map[string]string{
				"/var/vcap/jobs/containerd/config": dir, "/var/vcap/packages/containerd/bin/containerd": bin,
			} {
				script = strings.ReplaceAll(script, from, to)
			}
			for name, content := range map[string]string{
				"config.toml": string(files["config/config.toml"]), "check-config": script,
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "check-config")).CombinedOutput()
			if (err != nil) != (test.want != nil) {
				t.Fatalf("%v\n%s\n%s", err, out, files["config/config.toml"])
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("the message lacks %q:\n%s", want, out)
				}
			}
		})
	}
}
