package acceptance

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
)

// maxJoinGap is how long VMs may be unable to join in an update. A VM tries for ten minutes. While control VMs of both
// versions run, one that is restarted, or a signer of the other version, may answer first.
const maxJoinGap = time.Minute

// ofThisRelease are the admission policies of a default deployment on AWS, those that mutate first.
var ofThisRelease = []string{
	"nodes",
	"csi-nodes", "load-balancer-annotations", "load-balancer-kind", "nodes", "smoke-tests",
}

// TestSoakEarlierCommit deploys an earlier commit with its own manifest, updates to this one, goes back, and updates
// again. The environment variable EARLIER is a work tree of that commit in which make release has run. Nothing is left
// of what this commit does not have, and VMs can join all the time.
func TestSoakEarlierCommit(t *testing.T) {
	earlier := os.Getenv("EARLIER")
	if earlier == "" {
		t.Skip("EARLIER is not set: it names a work tree of an earlier commit, with its release")
	}
	l := soak(t)
	up := func(root string) []string {
		arguments := []string{
			"up", "--manifest", filepath.Join(root, "manifests/kubernetes.yml"),
			"--release", filepath.Join(root, builtRelease), "-v", "worker_instances=1",
		}
		for _, file := range slices.Concat(onAWS, workerOps) {
			arguments = append(arguments, "-o", filepath.Join(root, file))
		}
		return arguments
	}
	l.mustRun(t, deployTimeout, up(earlier)...)
	l.checkSmokeTests(t)
	for _, step := range []struct{ name, root string }{
		{"update", repo}, {"back", earlier}, {"update again", repo},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			report := l.probe(t, func() {
				l.whileJoining(t, "worker/0", func() { l.mustRun(t, deployTimeout, up(step.root)...) })
			})
			checkNothingFailed(t, report)
			l.checkMembers(t, 3)
			l.nodes(t, 4)
			if step.root == repo {
				l.checkNothingIsLeft(t)
			}
			l.checkSmokeTests(t)
		}) {
			t.FailNow()
		}
	}
}

// whileJoining calls do while a VM, which is a node already, gets one more client certificate after another.
func (l *lab) whileJoining(t *testing.T, instance string, do func()) {
	t.Helper()
	secret := l.ssh(t, "control/0", "sh", "-c", "cat /var/vcap/jobs/*/config/join_secret")
	const script = `umask 077
dir=$(mktemp -d) jobs=/var/vcap/jobs
trap 'rm -rf $dir' EXIT
touch /run/joining
while [ -e /run/joining ]; do
  rm -rf $dir/pki $dir/kubeconfig
  printf '%s' "$1" >$dir/join_secret
  if [ -e $jobs/cloud-provider/config/environment ]; then . $jobs/cloud-provider/config/environment; fi
  if sed -e "s|$jobs/kubelet/config/join_secret|$dir/join_secret|" -e "s|/var/vcap/data/kubelet|$dir|" \
      -e 's|"10m"|"30s"|' $jobs/kubelet/config/join.json >$dir/join.json &&
    /var/vcap/packages/helpers/bin/kube-tools join --config=$dir/join.json >$dir/log 2>&1; then
    echo joined
  else
    tail -n 1 $dir/log
  fi
  sleep 1
done`
	ctx, cancel := context.WithTimeout(t.Context(), deployTimeout)
	defer cancel()
	joins := &joins{last: time.Now()}
	command := l.command(ctx, "ssh", instance, "sh", "-c", script, "sh", strings.TrimSpace(secret))
	command.Stdout, command.Stderr = joins, joins // the same, so that one goroutine writes
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	do()
	l.ssh(t, instance, "rm", "/run/joining")
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
	joins.ended()
	t.Logf("%d joins, the longest time without one was %s (until %s); %d failures:\n%s",
		joins.count, joins.gap.Round(time.Second), joins.until, joins.failed, strings.Join(joins.errors, "\n"))
	if joins.count == 0 || joins.gap > maxJoinGap {
		t.Errorf("no VM could join for %s, want at most %s", joins.gap.Round(time.Second), maxJoinGap)
	}
}

// joins reads the output of whileJoining, a line at a time.
type joins struct {
	rest          string
	count, failed int
	last          time.Time // of the last success
	gap           time.Duration
	until         string
	errors        []string // the first ones
}

func (j *joins) Write(text []byte) (int, error) {
	lines := strings.Split(j.rest+string(text), "\n")
	j.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if line == "joined" {
			j.count++
			j.ended()
			continue
		}
		if j.failed++; len(j.errors) < 20 {
			j.errors = append(j.errors, time.Now().UTC().Format(time.TimeOnly)+" "+line)
		}
	}
	return len(text), nil
}

// ended ends a time without a join.
func (j *joins) ended() {
	now := time.Now()
	if gap := now.Sub(j.last); gap > j.gap {
		j.gap, j.until = gap, now.UTC().Format(time.TimeOnly)
	}
	j.last = now
}

// checkNothingIsLeft expects the policies of this release only, and nothing of jobs that it does not have.
func (l *lab) checkNothingIsLeft(t *testing.T) {
	t.Helper()
	names := func(kinds string) []string {
		return strings.Fields(l.mustKubectl(t, "", "get", kinds, "-o", "jsonpath={.items[*].metadata.name}"))
	}
	got := slices.Concat(names("mutatingadmissionpolicies"), names("validatingadmissionpolicies"))
	var want []string
	for _, name := range ofThisRelease {
		want = append(want, name+".kubernetes.bosh.io")
	}
	if !slices.Equal(got, want) {
		t.Errorf("the admission policies are %q, want %q", got, want)
	}
	bindings := slices.Concat(
		names("mutatingadmissionpolicybindings"), names("validatingadmissionpolicybindings"),
	)
	if !slices.Equal(bindings, want) {
		t.Errorf("the bindings of admission policies are %q, want %q", bindings, want)
	}
	if out := l.mustKubectl(
		t, "", "get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}",
	); strings.Contains(out, "bosh.io/") {
		t.Errorf("nodes have the taints %s", out)
	}
	for _, name := range names("clusterroles,clusterrolebindings") {
		if strings.HasSuffix(name, ":kubelet-csr-approver") || strings.HasSuffix(name, ":node-labeler") {
			t.Errorf("%s is left", name)
		}
	}
	for _, namespace := range []string{"kube-node-lease", "kube-public", "kube-system"} {
		if out := l.mustKubectl(
			t, "", "-n", namespace, "get", "serviceaccount", "default",
			"-o", "jsonpath={.automountServiceAccountToken}",
		); out != "" {
			t.Errorf("the service account default of %s has automountServiceAccountToken %s", namespace, out)
		}
	}
	// A pattern does not match the shell that has it.
	const left = `ls -d /var/vcap/jobs/kubelet-csr-approver /var/vcap/jobs/node-labeler 2>/dev/null
pgrep -a -f '[k]ube-launcher bpm|[c]sr-approver|[n]ode-labeler'; true`
	for _, instance := range []string{"control/0", "control/1", "control/2", "worker/0"} {
		if out := l.ssh(t, instance, "sh", "-c", left); out != "" {
			t.Errorf("left on %s:\n%s", instance, tail.Lines(out, 20))
		}
	}
}
