package firstcluster

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/instances"
	"kubernetes-release/testbed/lab/network"
)

// TestFirstClusterInLab runs the page with a cluster: its deployment runs in a lab, whose account was empty, the tunnel
// reaches the API server, kubectl is the real one, and curl gets the page through the load balancer from the volume.
// The machine has room for one VM, so single-vm.yml is added, as the page describes. VMs of the second cluster are
// only launched in the account.
func TestFirstClusterInLab(t *testing.T) {
	if os.Getenv("ACCEPTANCE") == "" {
		t.Skip("requires root and a built release; `make test-acceptance` runs it")
	}
	state, err := os.MkdirTemp("", "kubernetes-lab-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := inLab(context.Background(), state, "down").CombinedOutput(); err != nil {
			t.Errorf("lab down: %v\n%s", err, out)
		}
		_ = os.RemoveAll(state)
	})
	if out, err := inLab(t.Context(), state, "empty-account").CombinedOutput(); err != nil {
		t.Fatalf("lab empty-account: %v\n%s", err, out)
	}
	vpc := networkOf(t, state)
	first := strings.TrimSuffix(vpc.Prefix().Addr().String(), "0.0")

	page := readPage(t)
	edits := exampleToAccount + `;s/\b10\.0\./` + first + `/g;s/^(dns_servers: ).*/\1[` + vpc.Gateway().String() + "]/"
	script := page.script(edits, true)
	started := time.Now()
	out, err := page.run(t, script, "FIRST_CLUSTER_LAB="+state, "AWS_ENDPOINT_URL="+account.URL(vpc))
	t.Logf("%s\nthe page took %s", out, time.Since(started).Round(time.Second))
	if err != nil {
		deployLog, _ := tail.File(filepath.Join(state, "log", "lab.log"), 0, 16<<10, 40)
		t.Fatalf("%v\n%s", err, deployLog)
	}
	for _, want := range []string{
		"created       IAM role kubernetes-control\n", "Errand 'smoke-tests' succeeded",
		"deployment.apps/hello condition met", "kubernetes-staging: 6 VMs",
		"deleted       IAM role kubernetes-worker\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in the output", want)
		}
	}
	// The first pod wrote a line, which curl gets from it, and from its successor with another one.
	starts := regexp.MustCompile(`(?m)^started at .*$`).FindAllString(out, -1)
	if len(starts) != 3 || starts[0] != starts[1] || starts[1] == starts[2] {
		t.Errorf("curl printed %q", starts)
	}
	checkNothingLeft(t, vpc)
}

// inLab is a command of bin/lab.
func inLab(ctx context.Context, state string, args ...string) *exec.Cmd {
	return exec.CommandContext(
		ctx, filepath.Join(repository(), "bin", "lab"), append([]string{args[0], "--state", state}, args[1:]...)...,
	)
}

func networkOf(t *testing.T, state string) network.Network {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(state, "lab.json"))
	if err != nil {
		t.Fatal(err)
	}
	var settings struct{ Network int }
	if err := json.Unmarshal(text, &settings); err != nil {
		t.Fatal(err)
	}
	return network.Network{Number: settings.Network}
}

// checkNothingLeft expects an account as empty as before the page.
func checkNothingLeft(t *testing.T, vpc network.Network) {
	t.Helper()
	w, err := readWorld(t.Context(), account.URL(vpc))
	if err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, w)
	for _, i := range w.Instances {
		if i.State != store.Terminated {
			t.Errorf("the page leaves the instance %s", i.ID)
		}
	}
	if len(w.Volumes)+len(w.ClassicLoadBalancers)+len(w.LoadBalancers) > 0 {
		t.Errorf("the page leaves %v, %v, %v", w.Volumes, w.ClassicLoadBalancers, w.LoadBalancers)
	}
}

// readWorld returns everything that is in the simulated account.
func readWorld(ctx context.Context, api string) (*store.World, error) {
	out, err := exec.CommandContext(ctx, "/usr/bin/curl", "-sS", "--fail", api+"/_sim/world").Output()
	if err != nil {
		return nil, fmt.Errorf("reading the simulated account: %w", err)
	}
	w := &store.World{}
	return w, json.Unmarshal(out, w)
}

// labState is the folder of the lab, empty if there is none.
func labState() string { return os.Getenv("FIRST_CLUSTER_LAB") }

// runsInLab reports whether the lab runs a deployment: that of the page's first cluster. A lab has one deployment.
func runsInLab(deployment string) bool { return labState() != "" && deployment == "kubernetes" }

// runLab runs a command of bin/lab in place of the program that the page names.
func runLab(args ...string) error {
	command := inLab(context.Background(), labState(), args...)
	command.Dir = repository()
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("lab %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// deployInLab deploys what the CLI sends to a Director: an interpolated manifest. The Director merges cloud configs.
func deployInLab(manifest []byte) error {
	file, err := filepath.Abs(filepath.Join("director", "manifest.yml"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, manifest, 0o600); err != nil {
		return err
	}
	configs, err := cloudConfigFiles()
	if err != nil {
		return err
	}
	tarball, err := filepath.Abs("kubernetes.tgz")
	if err != nil {
		return err
	}
	args := []string{
		"up", "--manifest", file, "-o", "ops-files/single-vm.yml", "-o", "ops-files/lab.yml",
		"-o", "ops-files/lab-aws.yml", "--release", tarball,
	}
	for _, config := range configs {
		args = append(args, "--cloud-config", config)
	}
	if err := runLab(args...); err != nil {
		return err
	}
	return importImage()
}

// tunnel forwards a port of this machine's loopback to the same one of the instance, as ssh does, until it is ended.
func tunnel(instance string, port int) error {
	l, err := lab.Open(labState(), false)
	if err != nil {
		return err
	}
	_, machine, err := instances.Find(l, instance)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := machine.DialContext(context.Background(), "tcp", address)
			if err != nil {
				fmt.Fprintln(os.Stderr, "tunnel:", err)
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, client) // an error ends the connection, as the client's end does
				_ = server.Close()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}

// importImage puts the image of docs/first-cluster.yml on the VM, as no registry can be reached.
func importImage() error {
	text, err := os.ReadFile("docs/first-cluster.yml")
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`(?m)^ +image: (\S+)$`).FindSubmatch(text)
	if found == nil {
		return errors.New("docs/first-cluster.yml names no image")
	}
	reference, err := name.NewTag(string(found[1]))
	if err != nil {
		return err
	}
	image, err := busyboxImage()
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := tarball.Write(reference, image, &archive); err != nil {
		return err
	}
	command := inLab(
		context.Background(), labState(), "ssh", "control/0", "/var/vcap/packages/containerd/bin/ctr",
		"--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", "-",
	)
	command.Stdin = &archive
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("import %s: %w\n%s", reference, err, out)
	}
	return nil
}

// busyboxImage has Debian's busybox with the commands that the page's pod calls.
func busyboxImage() (v1.Image, error) {
	const busybox = "/usr/bin/busybox"
	content, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("%w: install busybox-static", err)
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755, Size: int64(len(content))})
	if err == nil {
		_, err = w.Write(content)
	}
	for _, command := range []string{"sh", "date", "httpd"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeSymlink, Name: "bin/" + command, Linkname: "busybox", Mode: 0o777,
		}))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = "amd64", "linux"
	config.Config.Env = []string{"PATH=/bin"}
	return mutate.ConfigFile(image, config)
}
