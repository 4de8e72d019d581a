package templates

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/registry"
)

// TestRegistryCredentials: kubelet reads them in its home directory, and Docker Hub has a key of its own there.
func TestRegistryCredentials(t *testing.T) {
	credentials := values{"username": "puller", "password": "secret"}
	files := mustRender(t, "kubelet", inputFor(t, "kubelet").with(values{
		"registry_credentials": values{"docker.io": credentials, "registry.example": credentials},
	}))
	want := values{"auths": values{"index.docker.io": credentials, "registry.example": credentials}}
	if got := decode[values](t, files["config/home/.docker/config.json"]); !reflect.DeepEqual(got, want) {
		t.Errorf("kubelet reads %v, want %v", got, want)
	}
	environment := decode[values](t, files["config/flags.json"])["environment"].(values)
	if got := environment["HOME"]; got != "/var/vcap/jobs/kubelet/config/home" {
		t.Errorf("kubelet's home directory is %v", got)
	}
}

// containerd finds HOST/hosts.toml at every pull; mirrors of an earlier deploy are gone.
func TestRegistryHostsAreWritten(t *testing.T) {
	given := values{"registry": values{"mirrors": values{
		"docker.io":             []any{"https://mirror.example", "https://harbor.example/v2/docker-hub"},
		"registry.example:5000": []any{"http://10.0.0.9"},
	}}}
	dir := t.TempDir()
	writeRegistryHosts(t, dir, given)
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

	writeRegistryHosts(t, dir, nil)
	if entries, err := os.ReadDir(filepath.Join(dir, "certs.d")); err != nil || len(entries) != 0 {
		t.Errorf("without mirrors, certs.d holds %v (%v)", entries, err)
	}
}

// writeRegistryHosts runs the script of the job with these properties; it writes to certs.d in the directory.
func writeRegistryHosts(t *testing.T, dir string, properties values) {
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

// TestMirrorsDoNotReplaceImagesOfTheRelease: who can push to a mirror for all registries cannot have a node pull
// another image by the name of one of the release. The real containerd asks the mirror for others.
func TestMirrorsDoNotReplaceImagesOfTheRelease(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real containerd")
	}
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	mirror := registry.New()
	for _, name := range []string{"pause", "team"} {
		if err := mirror.Add(name, "current", image); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(mirror)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	writeRegistryHosts(t, dir, values{"registry": values{"mirrors": values{"_default": []any{server.URL}}}})
	fetch := startContainerd(t, filepath.Join(components, "containerd", "bin"), filepath.Join(dir, "certs.d"))

	if output, err := fetch("other.example/team:current"); err != nil {
		t.Errorf("an image of a mirror: %v\n%s", err, output)
	}
	output, err := fetch("kubernetes.bosh.io/pause:current")
	if err == nil || !strings.Contains(output, "kubernetes.bosh.io.invalid") {
		t.Errorf("an image in place of the release's: %v\n%s", err, output)
	}
}

// startContainerd starts a containerd without pods, and returns what fetches an image by a directory of hosts.
func startContainerd(t *testing.T, bin, hosts string) func(image string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	config, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "containerd.sock")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.cri.v1.images\", "+
		"\"io.containerd.cri.v1.runtime\", \"io.containerd.grpc.v1.cri\", \"io.containerd.nri.v1.nri\"]\n"+
		"[grpc]\n  address = %q\n", filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(filepath.Join(bin, "containerd"), "--config", config)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = daemon.Process.Signal(syscall.SIGTERM), daemon.Wait() })
	ctr := func(arguments ...string) (string, error) {
		command := exec.CommandContext(
			t.Context(), filepath.Join(bin, "ctr"), append([]string{"--address", socket}, arguments...)...,
		)
		output, err := command.CombinedOutput()
		return string(output), err
	}
	eventually.Succeeds(t, 30*time.Second, "containerd", func() error {
		_, err := ctr("version")
		return err
	})
	return func(image string) (string, error) { return ctr("content", "fetch", "--hosts-dir", hosts, image) }
}
