package firstcluster

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

const root = "../../.."

func TestMain(m *testing.M) {
	if program := os.Getenv("FIRST_CLUSTER_PROGRAM"); program != "" {
		if err := runProgram(program, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var blocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

// programs are what the page's commands use that is not there, or needs a Director or a cluster: each is this test's
// own binary.
var programs = []string{"bosh", "curl", "git", "kubectl", "make"}

// TestFirstCluster: the account is that of the AWS simulator, and empty. What is built, prepared and written there is
// real; bosh parses its arguments with the CLI's own parser, interpolates with its library, and creates the VMs of both
// deployments in their full size with the Director's key, by the rules of BOSH's AWS CPI. The preflight runs on each of
// them. The programs kubectl and curl only check their arguments: TestFirstClusterInLab runs a cluster.
func TestFirstCluster(t *testing.T) {
	if _, err := os.Stat(kubectlProgram()); err != nil {
		t.Skip("scripts/write-kubeconfig.sh requires kubectl")
	}
	world := awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16"))
	world.Settings.InstanceMetadataTags = "enabled" // EC2 launches no VM with a cluster's tag then
	sim, err := awssim.New(world, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)
	p := readPage(t)
	out, err := p.run(
		t, p.script(exampleToAccount, false), "AWS_ENDPOINT_URL="+api.URL, startsVariable+"="+servePreflights(t, sim),
	)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	for _, want := range []string{
		"created       IAM role kubernetes-control\n", "created       IAM role kubernetes-control-staging\n",
		"PASSED: 0 checks failed, 0 warnings, 0 skipped, 8 passed", "kubernetes: 6 VMs", "kubernetes-staging: 6 VMs",
		"deleted       IAM role kubernetes-worker\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	// The VMs of the first cluster are checked alone, and again beside those of the second one.
	for cluster, want := range map[string]int{"prod": 12, "staging": 6} {
		if got := strings.Count(out, "in cluster "+cluster+": passed"); got != want {
			t.Errorf("%d preflights of cluster %s passed, want %d", got, cluster, want)
		}
	}
	checkEmpty(t, sim.World())
}

// checkEmpty expects nothing in the account that the page has created.
func checkEmpty(t *testing.T, w *store.World) {
	t.Helper()
	if len(w.Roles)+len(w.InstanceProfiles) > 0 || len(w.SecurityGroups) != 1 || len(w.SecurityGroups[0].Ingress) > 0 {
		t.Errorf("the page leaves %v, %v, %v", w.Roles, w.InstanceProfiles, w.SecurityGroups)
	}
	for _, subnet := range w.Subnets {
		for key := range subnet.Tags {
			if strings.HasPrefix(key, "kubernetes.io/cluster/") {
				t.Errorf("the page leaves the tag %s of %s", key, subnet.ID)
			}
		}
	}
}

// page is the blocks of commands of docs/first-cluster.md.
type page []string

func readPage(t *testing.T) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "first-cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	var p page
	for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
		p = append(p, block[1])
	}
	if len(p) < 8 {
		t.Fatalf("only %d blocks of commands found", len(p))
	}
	return p
}

// script is all commands of the page, with edits of the files that the page tells to edit. With tunnel, the command
// that opens it runs in the background, as in a second terminal.
func (p page) script(edits string, tunnel bool) string {
	script := "set -euo pipefail\n"
	for i, block := range p {
		if tunnel && strings.Contains(block, "--opts=-N") {
			block = strings.TrimSpace(block) + ` &
tunnel=$!
trap 'kill $tunnel' EXIT
until (: <>/dev/tcp/127.0.0.1/6443) 2>/dev/null; do
  kill -0 $tunnel
  sleep 0.1
done
`
		}
		script += block
		if i == 0 { // "Edit aws-vars.yml now"
			script += editFile + edits + "' aws-vars.yml\n"
			script += "cp aws-vars.yml staging-vars.yml\n"
			script += editFile + "s/kubernetes-(control|worker)$/kubernetes-\\1-staging/' staging-vars.yml\n" // step 6
		}
	}
	return script
}

// pageTimeout limits all commands of the page, which take a few minutes in a lab.
const pageTimeout = 15 * time.Minute

// run runs the script with the page's programs, in a folder as an operator has it. None of its processes is left.
func (p page) run(t *testing.T, script string, env ...string) (string, error) {
	t.Helper()
	folder := workFolder(t)
	ctx, cancel := context.WithTimeout(t.Context(), pageTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	command.Dir = folder
	command.Env = append([]string{
		"PATH=" + filepath.Join(folder, "programs") + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + folder,
		"FIRST_CLUSTER_ROOT=" + repository(), "GOCACHE=" + goEnv(t, "GOCACHE"),
		"GOMODCACHE=" + goEnv(t, "GOMODCACHE"), "FIRST_CLUSTER_GO=" + goProgram(t),
		"KUBERNETES_BIN_DIR=" + os.Getenv("KUBERNETES_BIN_DIR"),
		"AWS_ACCESS_KEY_ID=" + awssim.LabAccessKeyID, "AWS_SECRET_ACCESS_KEY=" + awssim.LabSecretAccessKey,
	}, env...)
	out, err := command.CombinedOutput()
	return string(out), err
}

const editFile = "sed -i -E '"

// exampleToAccount replaces the examples in aws-vars.yml by what is in the account. The group of the nodes stays.
var exampleToAccount = func() string {
	edits := []string{"s/sg-0b{16}/" + awssim.DirectorSecurityGroup + "/"}
	for i := 1; i <= 3; i++ {
		edits = append(
			edits, fmt.Sprintf("s/subnet-0a{15}%d/%s/", i, awssim.LabNodeSubnet(i)),
			fmt.Sprintf("s/subnet-0b{15}%d/%s/", i, awssim.LabPublicSubnet(i)),
		)
	}
	return strings.Join(edits, ";")
}()

// workFolder is what an operator has: a clone of the repository with the release's tarball in it.
func workFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"manifests", "ops-files", "scripts", "docs"} {
		if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(folder, "scripts", "write-kubeconfig.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	tarball := filepath.Join(folder, "kubernetes.tgz")
	if os.Getenv("ACCEPTANCE") == "" { // only a lab reads it
		if err := os.WriteFile(tarball, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Symlink(filepath.Join(repository(), ".build/release/kubernetes.tgz"), tarball); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "programs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		text := fmt.Sprintf("#!/bin/sh\nFIRST_CLUSTER_PROGRAM=%s exec %s \"$@\"\n", name, self)
		if err := os.WriteFile(filepath.Join(folder, "programs", name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// repository is the root of the repository: of the test's process, or as that passes it to the page's programs.
func repository() string {
	if passed := os.Getenv("FIRST_CLUSTER_ROOT"); passed != "" {
		return passed
	}
	full, err := filepath.Abs(root)
	if err != nil {
		panic(err)
	}
	return full
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func goProgram(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
