package acceptance

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"testing"

	injected "kubernetes-release/testbed/faults"
)

// TestSoakFaults injects faults into three control VMs, which run pods too, and a worker, and prints the time to
// recover.
func TestSoakFaults(t *testing.T) {
	l := soak(t)
	l.base, l.ops, l.vars = onAWS, injected.Ops, injected.Vars // see injected.Arguments
	l.inject(t, injected.Table())
}

// TestSoakZones lets a whole zone of the default topology fail, first its network and then its power, and prints what
// clients in other zones have seen, and how long it took.
func TestSoakZones(t *testing.T) {
	l := soak(t)
	l.base = onAWS
	l.inject(t, injected.Zones())
}

// inject deploys the lab and injects faults. The environment variable FAULTS is a regular expression for the names of
// those that are wanted.
func (l *lab) inject(t *testing.T, faults []injected.Fault) {
	t.Helper()
	wanted := regexp.MustCompile(os.Getenv("FAULTS"))
	l.deploy(t)
	command := func(ctx context.Context, arguments ...string) *exec.Cmd { return l.command(ctx, arguments...) }
	cluster, err := injected.Open(t.Context(), l.state, command, l.upArgs(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, fault := range faults {
		if !wanted.MatchString(fault.Name) {
			continue
		}
		ok := t.Run(fault.Name, func(t *testing.T) {
			result, err := cluster.Inject(t.Context(), fault)
			result.Print(os.Stdout)
			if err != nil {
				t.Fatal(err)
			}
		})
		if !ok && cluster.Recover(t.Context()) != nil {
			t.Fatal("the cluster does not recover, so the other faults are not injected")
		}
	}
}
