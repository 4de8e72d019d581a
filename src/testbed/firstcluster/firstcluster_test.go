package firstcluster

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kubernetes-release/testbed/awssim"
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
// real; bosh parses its arguments with the CLI's own parser, interpolates with its library, and creates the VMs of a
// deployment with the Director's key, by the rules of BOSH's AWS CPI. The programs kubectl and curl only check their
// arguments: the acceptance tests run clusters.
func TestFirstCluster(t *testing.T) {
	if _, err := os.Stat("/usr/bin/kubectl"); err != nil {
		t.Skip("scripts/write-kubeconfig.sh requires kubectl")
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "first-cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := blocks.FindAllStringSubmatch(string(text), -1)
	if len(found) < 8 {
		t.Fatalf("only %d blocks of commands found", len(found))
	}
	script := "set -euo pipefail\n"
	for i, block := range found {
		script += block[1]
		if i == 0 { // "Edit aws-vars.yml now"
			script += editFile + exampleToAccount + "' aws-vars.yml\n"
			script += "cp aws-vars.yml staging-vars.yml\n"
			script += editFile + "s/kubernetes-(control|worker)$/kubernetes-\\1-staging/' staging-vars.yml\n" // step 6
		}
	}

	sim, err := awssim.New(awssim.EmptyWorld(netip.MustParsePrefix("10.0.0.0/16")), awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	api := httptest.NewServer(sim.Handler())
	t.Cleanup(api.Close)

	folder := workFolder(t)
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir = folder
	command.Env = []string{
		"PATH=" + filepath.Join(folder, "programs") + ":/usr/bin:/bin", "HOME=" + folder,
		"FIRST_CLUSTER_ROOT=" + absolute(t, root), "GOCACHE=" + goEnv(t, "GOCACHE"),
		"GOMODCACHE=" + goEnv(t, "GOMODCACHE"), "FIRST_CLUSTER_GO=" + goProgram(t), "AWS_ENDPOINT_URL=" + api.URL,
		"AWS_ACCESS_KEY_ID=" + awssim.LabAccessKeyID, "AWS_SECRET_ACCESS_KEY=" + awssim.LabSecretAccessKey,
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	for _, want := range []string{
		"created       IAM role kubernetes-control\n", "created       IAM role kubernetes-control-staging\n",
		"PASSED: 0 checks failed, 0 warnings, 0 skipped, 8 passed", "kubernetes: 6 VMs", "kubernetes-staging: 6 VMs", "deleted       IAM role kubernetes-worker\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	w := sim.World()
	if len(w.Roles)+len(w.InstanceProfiles) > 0 || len(w.SecurityGroups) != 1 || len(w.SecurityGroups[0].Ingress) > 0 {
		t.Errorf("the page leaves %v, %v, %v", w.Roles, w.InstanceProfiles, w.SecurityGroups)
	}
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
	if err := os.WriteFile(filepath.Join(folder, "kubernetes.tgz"), nil, 0o600); err != nil {
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

func absolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
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
