package pipelines

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// fakeAWS answers like an account with what clusters leave, of which those called gone are deleted meanwhile, and lets
// the security group go at the second attempt, as EC2 does while a load balancer's network interfaces still use it, and
// only once no rule names it.
const fakeAWS = `#!/bin/bash
echo "aws $*" >>"$CALLS"
if [[ -n $FAILS && $* == *"$FAILS"* ]]; then
  echo "An error occurred (ExpiredTokenException)" >&2
  exit 254
fi
case "$*" in
  *"delete-"*gone*) echo "An error occurred (Invalid${2#delete-}.NotFound) when calling the operation" >&2; exit 254 ;;
  *elasticloadbalancing:loadbalancer*) echo arn:aws:elasticloadbalancing:r:1:loadbalancer/a1 \
    arn:aws:elasticloadbalancing:r:1:loadbalancer/net/a2/f00 ;;
  *elasticloadbalancing:targetgroup*) echo arn:aws:elasticloadbalancing:r:1:targetgroup/k8s-x/f01 ;;
  *describe-volumes*) echo vol-gone vol-1 ;;
  *describe-snapshots*) echo snap-gone snap-1 ;;
  *describe-security-groups*=sg-1\ *) echo '{"SecurityGroups": [{"GroupId": "sg-nodes", "IpPermissions": [
    {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-nodes"}, {"GroupId": "sg-1", "UserId": "1"}]},
    {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "UserIdGroupPairs": [], "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
  ]}]}' ;;
  *describe-security-groups*Name=ip-permission*) echo '{"SecurityGroups": []}' ;;
  *describe-security-groups*) echo sg-gone sg-1 ;;
  *delete-security-group*) grep -q revoke "$CALLS" && [[ $(grep -c "$*" "$CALLS") -gt 1 ]] ;;
esac
`

const fakeBOSH = `#!/bin/bash
echo "bosh $*" >>"$CALLS"
case "$*" in
  *"deployments --column=name"*) echo "$DEPLOYED" ;;
  *" deploy "*) [[ -e $5 ]] || { echo "there is no manifest $5" >&2; exit 1; } ;;
  *"get configmap"*) echo "  final: kubernetes-1.2.2.tgz" ;;
esac
`

// runAWS runs ci/aws.sh with fake programs and returns what they were asked, and the output.
func runAWS(t *testing.T, deployed string, args ...string) (calls []string, output string, err error) {
	t.Helper()
	return runFakes(t, deployed, exec.Command(filepath.Join(root, "ci", "aws.sh"), args...))
}

// runFakes runs a command that finds the fake programs.
func runFakes(t *testing.T, deployed string, command *exec.Cmd) (calls []string, output string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"aws": fakeAWS, "bosh": fakeBOSH, "sleep": "#!/bin/bash\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command.Env = append(
		os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CALLS="+filepath.Join(dir, "calls"), "DEPLOYED="+deployed,
		"CLUSTERS=",
	)
	out, err := command.CombinedOutput()
	text, readErr := os.ReadFile(filepath.Join(dir, "calls"))
	if readErr != nil && !os.IsNotExist(readErr) {
		t.Fatal(readErr)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), string(out), err
}

// A deployed cluster and clusters that are not of the pipeline must survive a sweep.
func TestSweepDeletesOnlyWhatIsLeft(t *testing.T) {
	const created = "Name=tag-key,Values=kubernetes.io/cluster/ci-deploy Name=tag:ebs.csi.aws.com/cluster,Values=true "
	calls, output, err := runAWS(t, "", "sweep", "ci-deploy")
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var deleted []string
	for _, call := range calls {
		for lookup, want := range map[string]string{
			"get-resources":      "Key=kubernetes.io/cluster/ci-deploy,Values=owned ",
			"describe-volumes":   created,
			"describe-snapshots": "--owner-ids self --filters " + created,
		} {
			if strings.Contains(call, lookup) && !strings.Contains(call, want) {
				t.Errorf("other resources are selected: %s", call)
			}
		}
		if strings.Contains(call, "describe-security-groups") && !strings.Contains(call, "=ip-permission.group-id,") &&
			!strings.Contains(call, "=tag:kubernetes.io/cluster/ci-deploy,Values=owned ") {
			t.Errorf("other security groups are selected: %s", call)
		}
		if strings.Contains(call, "delete-") || strings.Contains(call, "revoke-") {
			deleted = append(deleted, call)
		}
	}
	want := `aws elb delete-load-balancer --load-balancer-name a1
aws elbv2 delete-load-balancer --load-balancer-arn arn:aws:elasticloadbalancing:r:1:loadbalancer/net/a2/f00
aws elbv2 delete-target-group --target-group-arn arn:aws:elasticloadbalancing:r:1:targetgroup/k8s-x/f01
aws ec2 delete-volume --volume-id vol-gone
aws ec2 delete-volume --volume-id vol-1
aws ec2 delete-snapshot --snapshot-id snap-gone
aws ec2 delete-snapshot --snapshot-id snap-1
aws ec2 delete-security-group --group-id sg-gone
aws ec2 revoke-security-group-ingress --group-id sg-nodes --ip-permissions ` +
		`[{"IpProtocol":"-1","UserIdGroupPairs":[{"GroupId":"sg-1"}]}]
aws ec2 delete-security-group --group-id sg-1
aws ec2 delete-security-group --group-id sg-1`
	if got := strings.Join(deleted, "\n"); got != want {
		t.Errorf("deleted:\n%s\nwant:\n%s", got, want)
	}

	calls, output, err = runAWS(t, "other\nci-deploy", "sweep", "ci-deploy")
	if err != nil || !strings.Contains(output, "nothing is swept") ||
		strings.Contains(strings.Join(calls, "\n"), "aws ") {
		t.Errorf("a deployed cluster: %v, %s, calls %q", err, output, calls)
	}
	for _, call := range []string{
		"elasticloadbalancing:loadbalancer", "elasticloadbalancing:targetgroup", "describe-volumes",
		"describe-snapshots", "describe-security-groups --filters Name=tag:", "Name=ip-permission.group-id",
		"delete-volume", "delete-snapshot", "revoke-security-group-ingress",
	} {
		t.Setenv("FAILS", call)
		if _, output, err := runAWS(t, "", "sweep", "ci-deploy"); err == nil || !strings.Contains(output, "Expired") {
			t.Errorf("nobody learns that %s failed: %v\n%s", call, err, output)
		}
	}
	t.Setenv("FAILS", "")
	for _, command := range []string{"sweep", "delete", "deploy"} {
		calls, output, err = runAWS(t, "", command, "prod", "x")
		if err == nil || !strings.Contains(output, "must begin with ci-") || calls[0] != "" {
			t.Errorf("%s of prod: %v, %s, calls %q", command, err, output, calls)
		}
	}
}

// TestOnlyTheSweepDeletesReleases: a job that deletes its candidate could meet another one that uploads the same.
func TestOnlyTheSweepDeletesReleases(t *testing.T) {
	calls, output, err := runAWS(t, "other", "delete", "ci-deploy")
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if text := strings.Join(calls, "\n"); calls[0] != "bosh -n -d ci-deploy delete-deployment --force" ||
		strings.Contains(text, "delete-release") || strings.Contains(text, "clean-up") ||
		!strings.Contains(text, "aws elbv2 delete-load-balancer") {
		t.Errorf("delete runs\n%s", text)
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	task := exec.Command(filepath.Join(repository, "ci/tasks/sweep-aws.sh"))
	task.Dir = t.TempDir()
	if err := os.Symlink(repository, filepath.Join(task.Dir, "repository")); err != nil {
		t.Fatal(err)
	}
	calls, output, err = runFakes(t, "", task)
	if last := calls[len(calls)-1]; err != nil || last != "bosh clean-up" {
		t.Errorf("the sweep ends with %s: %v\n%s", last, err, output)
	}
}

// packTarball writes a tarball with one file.
func packTarball(t *testing.T, name, file, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	command := exec.Command(
		"bash", "-euc", `cd "$1"; mkdir -p "$(dirname "$2")"; printf %s "$3" >"$2"; tar -czf "$0" *`,
		path, t.TempDir(), file, text,
	)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestUpgradeDeploysTheSourceOfTheFinalRelease: the folder at the top has any name, as in what GitHub packs.
func TestUpgradeDeploysTheSourceOfTheFinalRelease(t *testing.T) {
	source := packTarball(t, "source.tar.gz", "owner-repository-c0ffee/manifests/kubernetes.yml", "name: kubernetes\n")
	final := packTarball(t, "kubernetes-1.2.2.tgz", "release.MF", "name: kubernetes\nversion: 1.2.2\n")
	candidate := packTarball(t, "kubernetes.tgz", "release.MF", "name: kubernetes\nversion: 0+dev.7.abc\n")
	calls, output, err := runAWS(t, "", "upgrade", "ci-upgrade", source, final, candidate)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var deployed []string
	for _, call := range calls {
		if strings.Contains(call, " deploy ") {
			deployed = append(deployed, call)
		}
	}
	if len(deployed) != 2 || strings.Contains(deployed[0], " deploy ./manifests") ||
		!strings.Contains(deployed[0], "release_version=1.2.2 ") ||
		!strings.Contains(deployed[1], " deploy ./manifests") ||
		!strings.Contains(deployed[1], "release_version=0+dev.7.abc ") {
		t.Errorf("deployed are\n%s", strings.Join(deployed, "\n"))
	}
}

func TestDeployPinsTheTarball(t *testing.T) {
	tarball := packTarball(t, "kubernetes.tgz", "release.MF", "name: kubernetes\nversion: 0+dev.7.abc\n")
	calls, output, err := runAWS(t, "", "deploy", "ci-deploy", tarball)
	if err != nil || len(calls) != 1 {
		t.Fatalf("%v, calls %q\n%s", err, calls, output)
	}
	for _, want := range []string{
		"-d ci-deploy deploy ./manifests/kubernetes.yml", "-o ops-files/dev-release.yml",
		"-v release_version=0+dev.7.abc", "-v release_url=file://" + tarball,
	} {
		if !strings.Contains(calls[0], want) {
			t.Errorf("%s lacks %q", calls[0], want)
		}
	}
}

// A release that differs from the one that was tested is not shipped.
func TestShipCheckComparesFingerprints(t *testing.T) {
	pack := func(name, version, fingerprint string) string {
		return packTarball(
			t, name, "release.MF",
			"name: kubernetes\nversion: "+version+"\njobs:\n- name: etcd\n  fingerprint: "+fingerprint+"\n",
		)
	}
	tested := pack("tested.tgz", "0+dev.1.abc", "f00")
	for built, same := range map[string]bool{
		pack("same.tgz", "1.0.0", "f00"): true, pack("other.tgz", "1.0.0", "f01"): false,
	} {
		out, err := exec.Command(filepath.Join(root, "ci", "ship-check.sh"), tested, built).CombinedOutput()
		if (err == nil) != same {
			t.Errorf("%s: %v\n%s", built, err, out)
		}
		for _, want := range []string{"is not what was tested", "gcc, libc6-dev and libseccomp-dev"} {
			if !same && !strings.Contains(string(out), want) {
				t.Errorf("the message lacks %q: %s", want, out)
			}
		}
	}
}

// bump edits the pins of Kubernetes, of the modules of src and the documents together. It leaves out flannel's newest
// version, for which a module cannot be fetched, and runc's, which is earlier than the pinned one, and goes on with the
// others.
func TestBumpMovesKubernetesTogether(t *testing.T) {
	dir := t.TempDir()
	// This go knows a patch version more of Kubernetes, flannel and CoreDNS, and lists too few of runc.
	command := bump(
		t, dir, `"list -m -f {{.Version}} k8s.io/kubernetes@v1.37") echo v1.37.99 ;;
  "list -m -f {{.Version}} github.com/opencontainers/runc@v"*) echo v1.0.99 ;;
  "list -m -f {{.Version}} github.com/flannel-io/flannel@v"*) echo v0.99.99 ;;
  "list -m -f {{.Version}} github.com/coredns/coredns@v"*) echo v1.99.99 ;;`,
		`if grep -q 'flannel v0.99.99' go.mod; then echo half done >>go.sum; echo 403 Forbidden >&2; exit 1; fi`,
	)
	pinned := regexp.MustCompile(`k8s\.io/kubernetes v1\.(\S+)`).FindStringSubmatch(
		read(t, "src/components/kubernetes/go.mod"),
	)
	if pinned == nil {
		t.Fatal("src/components/kubernetes/go.mod does not pin Kubernetes")
	}
	current := pinned[1] // the current version without its major version, which staging modules have too
	released := "\n## 0.1.0\n\nShips Kubernetes 1." + current + ".\n"
	changelog := filepath.Join(dir, "CHANGELOG.md")
	if err := os.WriteFile(changelog, []byte(read(t, "CHANGELOG.md")+released), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "bump:") != 4 || !strings.Contains(string(out), "flannel stays at v") ||
		!strings.Contains(string(out), "the newest version that is listed is v1.0.99") {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "src/components/coredns/go.mod")); err != nil ||
		!strings.Contains(string(text), "coredns v1.99.99") {
		t.Errorf("CoreDNS, which comes after flannel, is not bumped, %v", err)
	}
	for _, file := range []string{
		"src/components/flannel/go.mod", "src/components/flannel/go.sum", "src/components/runc/go.mod",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(text) != read(t, file) {
			t.Errorf("%s has changed, %v", file, err)
		}
	}
	for path, want := range map[string]struct {
		text string
		n    int
	}{
		"src/components/kubernetes/go.mod": {"v0.37.99", 33},
		"src/helpers/go.mod":               {"v0.37.99", 3},
		"src/testbed/go.mod":               {"v0.37.99", 3},
		"src/tools/conformance/go.mod":     {"v0.37.99", 33},
		"CHANGELOG.md":                     {"Ships Kubernetes 1.37.99.", 1},
		"docs/versions.md":                 {"| Kubernetes | 1.37.99 |", 1},
	} {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), want.text); got < want.n {
			t.Errorf("%s has %q %d times, want %d at least", path, want.text, got, want.n)
		}
		if strings.Contains(string(text), "k8s.io/client-go v0."+current) ||
			strings.Contains(string(text), "k8s.io/kubernetes v1."+current) {
			t.Errorf("%s still has the old version", path)
		}
	}
	if text, err := os.ReadFile(changelog); err != nil || !strings.HasSuffix(string(text), released) {
		t.Errorf("bump has rewritten what an earlier release shipped, %v", err)
	}
}

// bump is the script in a copy of the repository in dir, with a go that lists newer versions as the cases of bash say,
// and runs a command in place of go mod tidy.
func bump(t *testing.T, dir, newer, tidy string) *exec.Cmd {
	t.Helper()
	copyTree := `cd "$1" && cp -r --parents ci CHANGELOG.md docs/versions.md src/components ` +
		`src/{helpers,release,testbed,tools/conformance}/go.{mod,sum} "$0/"`
	if out, err := exec.Command("bash", "-c", copyTree, dir, root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bin := t.TempDir()
	script := `#!/bin/bash
case "$*" in
  ` + newer + `
  "list -m -f {{.Version}} "*) module=${!#}; grep -hoE "^(.*[[:space:]])?${module%@*} v[^ ]+" go.mod |
    head -n 1 | grep -oE 'v[^ ]+$' ;;
  "mod tidy") ` + tidy + ` ;;
  *) exec ` + lookGo(t) + ` "$@" ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(dir, "ci", "bump.sh"))
	command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	return command
}

// TestInterruptedBumpIsUndone interrupts the script in the middle of the second step, in all of its processes, as a
// terminal and a job that is aborted do: the first step stays.
func TestInterruptedBumpIsUndone(t *testing.T) {
	// A shell that runs tests in the background has its programs ignore SIGINT, but not what has been caught.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT)
	defer signal.Stop(caught)
	for _, name := range []string{"INT", "TERM"} {
		dir := t.TempDir()
		command := bump(
			t, dir, `"list -m -f {{.Version}} github.com/containerd/containerd/v2@v"*) echo v2.99.99 ;;
  "list -m -f {{.Version}} github.com/coredns/coredns@v"*) echo v1.99.99 ;;`,
			`if grep -q 'coredns v1.99.99' go.mod; then echo half done >>go.sum; kill -`+name+` 0; fi`,
		)
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if out, err := command.CombinedOutput(); err == nil {
			t.Errorf("SIG%s: the script succeeds\n%s", name, out)
		}
		for path, changed := range map[string]bool{
			"src/components/containerd/go.mod": true, "src/components/coredns/go.mod": false,
			"src/components/coredns/go.sum": false,
		} {
			text, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil || (string(text) != read(t, path)) != changed {
				t.Errorf("SIG%s: %s has changed: %t, %v", name, path, !changed, err)
			}
		}
	}
}

func lookGo(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
