package acceptance

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"kubernetes-release/internal/tail"
	injected "kubernetes-release/testbed/faults"
)

// TestSoakFaults injects faults into three control VMs, which run pods too, and a worker, and prints the time to
// recover.
// The environment variable FAULTS is a regular expression for the names of those that are wanted.
func TestSoakFaults(t *testing.T) {
	wanted := regexp.MustCompile(os.Getenv("FAULTS"))
	l := soak(t)
	l.base, l.ops, l.vars = onAWS, injected.Ops, injected.Vars // see injected.Arguments
	if out, err := l.up(); err != nil {
		t.Fatalf("up: %v\n%s", err, tail.Lines(out, 60))
	}
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
	for _, fault := range injected.Table() {
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
