package members

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"kubernetes-release/internal/eventually"
)

func (d *deployment) lead(n int) {
	d.t.Helper()
	if leader := d.leader(0, 1, 2); leader != n {
		passes(d.t, d.api(leader).handOver(d.t.Context(), d.status(n).Header.MemberID))
	}
}

func TestMoveLeader(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	d.lead(0)
	passes(t, d.configs[1].MoveLeader(t.Context(), logger))
	if d.leader(0, 1, 2) != 0 {
		t.Fatalf("a follower has moved the leadership:\n%s", &log)
	}
	// With the member dead that would be chosen first, the third one must lead.
	d.running[2].stop()
	passes(t, d.configs[0].MoveLeader(t.Context(), logger))
	if d.leader(0, 1) != 1 {
		t.Fatalf("member 0 still leads:\n%s", &log)
	}
	// Without a candidate that answers, nothing is tried: writes would fail during the attempt.
	d.running[0].stop()
	if err := d.configs[1].MoveLeader(t.Context(), logger); err == nil {
		t.Error("the leadership was moved to a dead member")
	}
}

// TestMoveLeaderToUpdatedMember drains and restarts one member after the other. The leadership moves twice: away from
// the first member, to one that is not updated yet, and from that one to a member that is.
func TestMoveLeaderToUpdatedMember(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	d.lead(0)
	for n, want := range []int{2, 2, 1} {
		passes(t, d.configs[n].MoveLeader(t.Context(), quiet()))
		if leader := d.leader(0, 1, 2); leader != want {
			t.Fatalf("member %d leads after the drain of member %d, want %d", leader, n, want)
		}
		d.update(n)
	}
}

// TestLeadershipMovesAsRarelyAsItCan updates all members four times in a row. BOSH begins with the bootstrap instance
// each time, so an update that finds the leader there moves it twice, and any other once: to a member that has been
// updated already. Fewer is impossible, see docs/decisions/0016-updates-without-failed-requests.md.
func TestLeadershipMovesAsRarelyAsItCan(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	d.lead(2)
	leader := 2
	for update, want := range [][]int{{1}, {0}, {2, 1}, {0}} {
		var moves []int
		for n := range 3 {
			passes(t, d.configs[n].MoveLeader(t.Context(), quiet()))
			d.update(n)
			if now := d.leader(0, 1, 2); now != leader {
				moves, leader = append(moves, now), now
			}
		}
		if !slices.Equal(moves, want) {
			t.Errorf("update %d moves the leadership to the members %d, want %d", update, moves, want)
		}
	}
}

func TestMoveLeaderOfOne(t *testing.T) {
	d := newDeployment(t)
	d.deploy(0)
	passes(t, d.configs[0].MoveLeader(t.Context(), quiet()))
	d.running[0].stop()
	eventually.Succeeds(t, timeout, "an error for a dead member", func() error {
		if d.configs[0].MoveLeader(t.Context(), quiet()) == nil {
			return fmt.Errorf("no error")
		}
		return nil
	})
}
