package templates

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// containerd finds HOST/hosts.toml at every pull; mirrors of an earlier deploy are gone.
func TestRegistryHostsAreWritten(t *testing.T) {
	given := values{"registry": values{"mirrors": values{
		"docker.io":             []any{"https://mirror.example", "https://harbor.example/v2/docker-hub"},
		"registry.example:5000": []any{"http://10.0.0.9"},
	}}}
	dir := t.TempDir()
	write := func(properties values) {
		t.Helper()
		files := mustRender(t, "containerd", inputFor(t, "containerd").with(properties))
		script := bytes.ReplaceAll(
			files["config/write-registry-hosts"], []byte("/var/vcap/jobs/containerd/config"), []byte(dir),
		)
		path := filepath.Join(t.TempDir(), "write")
		if err := os.WriteFile(path, script, 0o600); err != nil {
			t.Fatal(err)
		}
		if output, err := exec.Command("bash", path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}

	write(given)
	for host, want := range map[string]string{
		"docker.io": "[host.\"https://mirror.example\"]\n  capabilities = [\"pull\", \"resolve\"]\n\n" +
			"[host.\"https://harbor.example/v2/docker-hub\"]\n  capabilities = [\"pull\", \"resolve\"]\n  " +
			"override_path = true\n",
		"registry.example:5000": "[host.\"http://10.0.0.9\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "certs.d", host, "hosts.toml"))
		if err != nil || string(text) != want {
			t.Errorf("hosts.toml of %s is %q (%v), want %q", host, text, err, want)
		}
	}
	config := string(mustRender(t, "containerd", inputFor(t, "containerd").with(given))["config/config.toml"])
	if !strings.Contains(config, `config_path = "/var/vcap/jobs/containerd/config/certs.d"`) {
		t.Errorf("containerd reads other hosts: %s", config)
	}

	write(nil)
	if entries, err := os.ReadDir(filepath.Join(dir, "certs.d")); err != nil || len(entries) != 0 {
		t.Errorf("without mirrors, certs.d holds %v (%v)", entries, err)
	}
}
