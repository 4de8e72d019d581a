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
	"slices"
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
		t.Skip("requires root and a built release; `make test-first-cluster` runs it")
	}
	out := runInLab(t)
	for _, want := range []string{"Errand 'smoke-tests' succeeded", "kubernetes-staging: 6 VMs"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in the output", want)
		}
	}
}

// TestSoakBothClustersInLab runs the page with both clusters side by side, each on a single VM. The second one creates
// a load balancer and a volume beside those of the first one, which keeps all that it has in the account, and whose
// preflight still passes. The preflight of the second one passed, or it would not have started.
func TestSoakBothClustersInLab(t *testing.T) {
	if os.Getenv("ACCEPTANCE") == "" || os.Getenv("SOAK") == "" {
		t.Skip("requires root and a built release, and takes several minutes; `make soak` runs it")
	}
	out := runInLab(t, bothVariable+"=1")
	for _, want := range []string{"the first cluster has what it had", "Errand 'cloud-preflight' succeeded"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in the output", want)
		}
	}
	if n := strings.Count(out, "Errand 'smoke-tests' succeeded"); n != 2 {
		t.Errorf("the smoke tests of %d clusters succeeded, want 2", n)
	}
}

// runInLab runs the page in a lab, and returns its output.
func runInLab(t *testing.T, env ...string) string {
	t.Helper()
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
	env = append(env, "FIRST_CLUSTER_LAB="+state, "AWS_ENDPOINT_URL="+account.URL(vpc))
	out, err := page.run(t, script, env...)
	t.Logf("%s\nthe page took %s", out, time.Since(started).Round(time.Second))
	if err != nil {
		deployLog, _ := tail.File(filepath.Join(state, "log", "lab.log"), 0, 16<<10, 40)
		t.Fatalf("%v\n%s", err, deployLog)
	}
	for _, want := range []string{
		"created       IAM role kubernetes-control\n", "deployment.apps/hello condition met",
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
	return out
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

// bothVariable is set if the lab runs the second cluster too.
const bothVariable = "FIRST_CLUSTER_BOTH"

// runsInLab reports whether the lab runs a deployment, if there is a lab.
func runsInLab(deployment string) bool {
	return labState() != "" && (deployment == firstDeployment || os.Getenv(bothVariable) != "")
}

// firstDeployment is the page's first deployment, which is also the lab's, and firstCluster its cluster.
const (
	firstDeployment = "kubernetes"
	firstCluster    = "prod"
)

// runLab runs a command of bin/lab on a deployment in place of the program that the page names.
func runLab(deployment string, args ...string) error {
	if deployment != firstDeployment {
		args = append([]string{args[0], "--deployment", deployment}, args[1:]...)
	}
	command := inLab(context.Background(), labState(), args...)
	command.Dir = repository()
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("lab %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// belongings is what has the tag of a cluster in the account, but for subnets, which clusters share.
func belongings(cluster string) ([]any, error) {
	w, err := readWorld(context.Background(), os.Getenv("AWS_ENDPOINT_URL"))
	if err != nil {
		return nil, err
	}
	var own []any
	add := func(tags store.Tags, resource any) {
		if _, ok := tags[clusterTag+cluster]; ok {
			own = append(own, resource)
		}
	}
	for _, i := range w.Instances {
		if i.State != store.Terminated {
			add(i.Tags, i)
		}
	}
	for _, g := range w.SecurityGroups {
		add(g.Tags, g)
	}
	for _, v := range w.Volumes {
		if v.State != store.VolumeDeleting {
			add(v.Tags, v)
		}
	}
	for _, b := range w.ClassicLoadBalancers {
		add(b.Tags, b)
	}
	for _, b := range w.LoadBalancers {
		add(b.Tags, b)
	}
	return own, nil
}

func belongingsAsText(cluster string) ([]byte, error) {
	own, err := belongings(cluster)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(own, "", "  ")
}

// noteFirst notes what the first cluster has in the account, before another one is deployed beside it.
func noteFirst() error {
	text, err := belongingsAsText(firstCluster)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("director", "first-before.json"), text, 0o600)
}

// checkFirst expects that the first cluster has what it had in the account, and that its preflight passes, while
// another one runs beside it.
func checkFirst() error {
	before, err := os.ReadFile(filepath.Join("director", "first-before.json"))
	if err != nil {
		return err
	}
	now, err := belongingsAsText(firstCluster)
	if err != nil {
		return err
	}
	if !bytes.Equal(before, now) {
		return fmt.Errorf("the second cluster changed what the first one has:\n%s\nbefore:\n%s", now, before)
	}
	fmt.Println("the first cluster has what it had")
	return runLab(firstDeployment, "errand", "cloud-preflight")
}

// deleteInLab deletes a deployment, after what only its cluster can delete.
func deleteInLab(name string) error {
	if name != firstDeployment {
		if err := checkFirst(); err != nil {
			return err
		}
		return runLab(name, "down", "--orderly")
	}
	w, err := readWorld(context.Background(), os.Getenv("AWS_ENDPOINT_URL"))
	if err != nil {
		return err
	}
	deleted := func(v store.Volume) bool { return v.State == store.VolumeDeleting }
	left := slices.DeleteFunc(w.Volumes, deleted)
	if n := len(left) + len(w.ClassicLoadBalancers) + len(w.LoadBalancers); n > 0 {
		return fmt.Errorf("%d volumes and load balancers are left, which only the cluster deletes", n)
	}
	return runLab(name, "stop", "--hard")
}

// deployInLab deploys what the CLI sends to a Director: an interpolated manifest. The Director merges cloud configs.
func deployInLab(name string, manifest []byte) error {
	if name != firstDeployment {
		if err := noteFirst(); err != nil {
			return err
		}
	}
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
	if err := runLab(name, args...); err != nil || name != firstDeployment {
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
