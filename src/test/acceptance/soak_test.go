package acceptance

import (
	"os"
	"testing"

	"kubernetes-release/internal/tail"
)

// soak returns a lab of its own for a test that `make soak` runs, because it takes too long for `make test`. Such tests are named TestSoak….
func soak(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("SOAK is not set: make soak runs this test")
	}
	return own(t)
}

// TestSoakEtcdMembers changes the members of etcd by deploys only: one control VM, three, three with a lost disk, and one again.
func TestSoakEtcdMembers(t *testing.T) {
	l := soak(t)
	up := func(instances string) {
		t.Helper()
		if out, err := l.with(t, badInput{ops: inGroup("instances", instances)}).up(); err != nil {
			t.Fatalf("up with %s control VMs: %v\n%s", instances, err, tail.Lines(out, 60))
		}
	}
	create := func(name string) { l.mustKubectl(t, "", "-n", "default", "create", "configmap", name) }
	up("1")
	create("one")
	up("3")
	l.checkMembers(t, 3)
	create("three")

	before := l.checkMembers(t, 3)
	l.ssh(t, "control/1", "sh", "-c", "monit stop etcd && while pgrep -x etcd; do sleep 0.2; done && rm -r /var/vcap/store/etcd/member")
	create("while-disk-is-lost")
	up("3")
	if after := l.checkMembers(t, 3); after == before {
		t.Errorf("the entry of the lost disk was not replaced:\n%s", after)
	}

	up("1")
	l.checkMembers(t, 1)
	l.mustKubectl(t, "", "-n", "default", "get", "configmaps", "one", "three", "while-disk-is-lost")
}
