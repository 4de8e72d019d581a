package acceptance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
	playing "kubernetes-release/lab/faults"
)

// TestSoakFaults plays faults on three control VMs, which run pods too, and a worker, and prints the time to recover. The environment
// variable FAULTS is a regular expression for the names of those that are wanted.
func TestSoakFaults(t *testing.T) {
	wanted := regexp.MustCompile(os.Getenv("FAULTS"))
	l := soak(t)
	l.base, l.ops, l.vars = []string{"ops-files/aws.yml", "ops-files/lab.yml"}, playing.Ops, playing.Vars // see playing.Arguments
	if out, err := l.up(); err != nil {
		t.Fatalf("up: %v\n%s", err, tail.Lines(out, 60))
	}
	command := func(ctx context.Context, arguments ...string) *exec.Cmd { return l.command(ctx, arguments...) }
	cluster, err := playing.Open(t.Context(), l.state, command, l.upArgs(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, fault := range playing.Table() {
		if !wanted.MatchString(fault.Name) {
			continue
		}
		ok := t.Run(fault.Name, func(t *testing.T) {
			result, err := cluster.Play(t.Context(), fault)
			result.Print(os.Stdout)
			if err != nil {
				t.Fatal(err)
			}
		})
		if !ok && cluster.Recover(t.Context()) != nil {
			t.Fatal("the cluster does not recover, so the other faults are not played")
		}
	}
	t.Run("spread of connections", func(t *testing.T) { l.checkSpread(t, 3) })
}

// checkSpread counts connections to each API server from other VMs after a rolling update, which leaves the one that was updated last
// without any. Each must have its share again, of which a third is enough, because clients choose at random.
func (l *lab) checkSpread(t *testing.T, servers int) {
	waitFor(t, 5*time.Minute, "connections to all API servers", func() error {
		counts, total := make([]int, servers), 0
		for i := range servers {
			out := l.ssh(t, fmt.Sprintf("control/%d", i), "sh", "-c",
				`own=$(ip -4 -o addr show eth0 | awk '{sub("/.*", "", $4); print $4}'); ss -Htn state established '( sport = :6443 )' | grep -vc -e " $own:[0-9]* *$" -e 127.0.0.1 || true`)
			n, err := strconv.Atoi(out)
			if err != nil {
				return fmt.Errorf("control/%d: %q", i, out)
			}
			counts[i], total = n, total+n
		}
		t.Logf("connections from other VMs: %v", counts)
		if slices.Min(counts)*servers*3 < total || total < servers {
			return fmt.Errorf("connections from other VMs: %v", counts)
		}
		return nil
	})
}
