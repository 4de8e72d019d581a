package termination

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"kubernetes-release/cloud"
)

// fakeNode records what a handler does with the node.
type fakeNode struct {
	done    []string
	fails   error
	retired bool
	blocks  bool // Drain does, until it is stopped
}

func (n *fakeNode) Drain(ctx context.Context, i cloud.Interruption, timeout time.Duration) error {
	n.done = append(n.done, fmt.Sprintf("drain %s in %s", i.ID, timeout))
	n.retired = n.fails == nil
	if n.blocks {
		<-ctx.Done()
		n.done = append(n.done, "stopped")
		return ctx.Err()
	}
	return n.fails
}

func (n *fakeNode) Retired(context.Context) (bool, error) { return n.retired, n.fails }

func (n *fakeNode) Restore(context.Context) error {
	n.done = append(n.done, "restore")
	return n.fails
}

func (n *fakeNode) Report(_ context.Context, i cloud.Interruption) error {
	n.done = append(n.done, "report "+i.ID)
	return n.fails
}

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// bed is a handler whose time and announcements a test changes.
type bed struct {
	*testing.T
	*Handler
	node      *fakeNode
	clock     *clocktesting.FakePassiveClock
	announced []cloud.Interruption
	unknown   error
	log       bytes.Buffer
}

func newBed(t *testing.T, change func(*Options)) *bed {
	b := &bed{T: t, node: &fakeNode{}, clock: clocktesting.NewFakePassiveClock(now)}
	options := Options{
		Announced: func(context.Context) ([]cloud.Interruption, error) { return b.announced, b.unknown },
		Node:      b.node,
		Marker:    filepath.Join(t.TempDir(), "drained"),
		Lead:      10 * time.Minute,
		Clock:     b.clock,
		Log:       slog.New(slog.NewTextHandler(&b.log, nil)),
	}
	if change != nil {
		change(&options)
	}
	b.Handler = New(options)
	return b
}

// look lets time pass, and lets the handler look once.
func (b *bed) look(after time.Duration, want ...string) {
	b.Helper()
	b.clock.SetTime(b.clock.Now().Add(after))
	b.node.done = nil
	b.logFailure(b.handle(b.Context()))
	if !slices.Equal(b.node.done, want) {
		b.Errorf("at %s: did %q, want %q; log:\n%s", b.clock.Now().Sub(now), b.node.done, want, &b.log)
	}
}

func spot(at time.Duration) cloud.Interruption {
	return cloud.Interruption{ID: "spot-terminate", Kind: cloud.Termination, At: now.Add(at), Text: "terminate"}
}

func maintenance(at time.Duration) cloud.Interruption {
	return cloud.Interruption{ID: "event-1", Kind: cloud.Maintenance, At: now.Add(at), Text: "reboot"}
}

func TestTerminationIsDrainedAtOnceAndOnce(t *testing.T) {
	b := newBed(t, nil)
	b.look(0)
	b.announced = []cloud.Interruption{spot(2 * time.Minute)}
	b.look(0, "report spot-terminate", "drain spot-terminate in 1m30s")
	b.look(5 * time.Second)
}

func TestLateNoticeLeavesAShortDrain(t *testing.T) {
	b := newBed(t, nil)
	b.announced = []cloud.Interruption{spot(10 * time.Second)}
	b.look(0, "report spot-terminate", "drain spot-terminate in 5s")
}

func TestMaintenanceIsDrainedShortlyBefore(t *testing.T) {
	b := newBed(t, nil)
	b.announced = []cloud.Interruption{maintenance(time.Hour)}
	b.look(0, "report event-1")
	b.look(49 * time.Minute)
	b.look(time.Minute, "drain event-1 in 9m30s")
	b.look(time.Minute)
	b.announced = nil
	b.look(time.Hour, "restore")
	b.look(5 * time.Second)
}

func TestMaintenanceIsOnlyReportedWithoutALead(t *testing.T) {
	b := newBed(t, func(o *Options) { o.Lead = 0 })
	b.announced = []cloud.Interruption{maintenance(time.Minute)}
	b.look(0, "report event-1")
	b.look(2 * time.Minute)
}

func TestDisruptionAndRiskAreReported(t *testing.T) {
	announced := []cloud.Interruption{
		{ID: "event-2", Kind: cloud.Disruption, At: now},
		{ID: "rebalance", Kind: cloud.Risk},
	}
	b := newBed(t, nil)
	b.announced = announced
	b.look(0, "report event-2", "report rebalance")

	b = newBed(t, func(o *Options) { o.DrainAtRisk = true })
	b.announced = announced
	b.look(0, "report event-2", "report rebalance", "drain rebalance in 9m30s")
	b.announced = append(b.announced, spot(2*time.Minute))
	b.look(0, "report spot-terminate")
}

// TestAnotherProcessTakesTheNodeBack: the VM has restarted in the meantime, so the process is another one.
func TestAnotherProcessTakesTheNodeBack(t *testing.T) {
	b := newBed(t, nil)
	b.announced = []cloud.Interruption{maintenance(time.Minute)}
	b.look(0, "report event-1", "drain event-1 in 30s")
	b.Handler = New(b.Options)
	b.look(2*time.Minute, "report event-1", "drain event-1 in 5s") // EC2 lists it until the reboot is complete
	b.Handler = New(b.Options)
	b.announced = nil
	b.look(time.Minute, "restore")
	if _, err := os.Stat(b.Marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the marker is still there: %v", err)
	}
}

// TestNothingIsTakenBackThatWasNotDrainedHere: the drain of a deploy must not be undone.
func TestNothingIsTakenBackThatWasNotDrainedHere(t *testing.T) {
	b := newBed(t, nil)
	b.look(0)
	b.announced = []cloud.Interruption{{ID: "rebalance", Kind: cloud.Risk}}
	b.look(0, "report rebalance")
	b.announced = nil
	b.look(time.Minute)
}

func TestFailuresAreRepeatedAndLoggedOnce(t *testing.T) {
	b := newBed(t, nil)
	b.unknown = errors.New("metadata does not answer")
	b.look(0)
	b.look(5 * time.Second)
	b.unknown, b.node.fails = nil, errors.New("the API does not answer")
	b.announced = []cloud.Interruption{spot(2 * time.Minute)}
	b.look(0, "report spot-terminate", "drain spot-terminate in 1m25s")
	b.look(5*time.Second, "report spot-terminate")
	b.look(10*time.Second, "report spot-terminate", "drain spot-terminate in 1m10s")
	b.node.fails = nil
	b.look(15*time.Second, "report spot-terminate", "drain spot-terminate in 55s")
	b.look(5 * time.Second)
	log := b.log.String()
	for text, want := range map[string]int{
		"metadata does not answer": 1, "drain the node for spot-terminate: the API does not answer": 1,
		"interruption announced": 1, "interruptions are handled again": 1,
	} {
		if got := strings.Count(log, text); got != want {
			t.Errorf("%q stands %d times in the log, want %d:\n%s", text, got, want, log)
		}
	}
}

// TestEventIsCreatedOnceTheAPIAnswers: people learn of maintenance by it, and can avert it.
func TestEventIsCreatedOnceTheAPIAnswers(t *testing.T) {
	b := newBed(t, nil)
	b.announced = []cloud.Interruption{maintenance(time.Hour)}
	b.node.fails = errors.New("the API does not answer")
	b.look(0, "report event-1")
	b.look(5*time.Second, "report event-1")
	b.node.fails = nil
	b.look(5*time.Second, "report event-1")
	b.look(5 * time.Second)
	for _, text := range []string{"interruption announced", "show the interruption event-1 on the Node"} {
		if got := strings.Count(b.log.String(), text); got != 1 {
			t.Errorf("%q stands %d times in the log, want 1:\n%s", text, got, &b.log)
		}
	}
}

// TestUnreadableNoticeHidesNoOther: with one that is not known, the node is drained for others, and not taken back.
func TestUnreadableNoticeHidesNoOther(t *testing.T) {
	b := newBed(t, nil)
	b.unknown = errors.New("scheduled events cannot be read")
	b.announced = []cloud.Interruption{spot(2 * time.Minute)}
	b.look(0, "report spot-terminate", "drain spot-terminate in 1m30s")
	b.announced = nil
	b.look(5 * time.Second)
	b.unknown = nil
	b.look(5*time.Second, "restore")
	if got := strings.Count(b.log.String(), "scheduled events cannot be read"); got != 1 {
		t.Errorf("logged %d times, want 1:\n%s", got, &b.log)
	}
}

// TestFailedDrainDelaysNoOther: a termination comes after the drain for a recommendation has failed.
func TestFailedDrainDelaysNoOther(t *testing.T) {
	b := newBed(t, func(o *Options) { o.DrainAtRisk = true })
	b.node.fails = errors.New("the API does not answer")
	b.announced = []cloud.Interruption{{ID: "rebalance", Kind: cloud.Risk}}
	b.look(0, "report rebalance", "drain rebalance in 9m30s")
	b.announced = slices.Insert(b.announced, 0, spot(2*time.Minute))
	b.look(5*time.Second, "report spot-terminate", "report rebalance", "drain spot-terminate in 1m25s")
	b.look(5*time.Second, "report spot-terminate", "report rebalance")
	b.node.fails = nil
	b.look(10*time.Second, "report spot-terminate", "report rebalance", "drain spot-terminate in 1m10s")
	b.look(15 * time.Second)
}

// TestRiskIsDrainedWithoutALead: maintenance.lead may be 0s, and nothing says when the VM goes away.
func TestRiskIsDrainedWithoutALead(t *testing.T) {
	b := newBed(t, func(o *Options) { o.Lead, o.DrainAtRisk = 0, true })
	b.announced = []cloud.Interruption{{ID: "rebalance", Kind: cloud.Risk}}
	b.look(0, "report rebalance", "drain rebalance in 9m30s")
}

// TestNodeThatIsBackIsDrainedAgain: post-start of kubelet takes it back in a deploy.
func TestNodeThatIsBackIsDrainedAgain(t *testing.T) {
	b := newBed(t, nil)
	b.announced = []cloud.Interruption{maintenance(5 * time.Minute)}
	b.look(0, "report event-1", "drain event-1 in 4m30s")
	b.look(5 * time.Second)
	b.node.retired = false
	b.look(55*time.Second, "drain event-1 in 3m30s")
	b.look(5 * time.Second)
	b.node.fails = errors.New("the API does not answer")
	b.look(5 * time.Second)
	if log := b.log.String(); !strings.Contains(log, "whether the node is out of service: the API does not answer") {
		t.Error(log)
	}
}

// TestTerminationEndsAnotherDrain, which would last longer than the VM.
func TestTerminationEndsAnotherDrain(t *testing.T) {
	looks := 0
	rebalance := cloud.Interruption{ID: "rebalance", Kind: cloud.Risk}
	b := newBed(t, func(o *Options) {
		o.DrainAtRisk, o.Interval = true, time.Millisecond
		o.Announced = func(context.Context) ([]cloud.Interruption, error) {
			switch looks++; looks {
			case 1, 3:
				return []cloud.Interruption{rebalance}, nil
			case 2:
				return nil, errors.New("metadata does not answer")
			case 4:
				return []cloud.Interruption{spot(2 * time.Minute)}, errors.New("another notice cannot be read")
			default:
				return []cloud.Interruption{spot(2 * time.Minute), rebalance}, nil
			}
		}
	})
	b.node.blocks = true
	b.look(0, "report rebalance", "drain rebalance in 9m30s", "stopped")
	b.node.blocks = false
	b.look(0, "report spot-terminate", "drain spot-terminate in 1m30s")
	b.look(5 * time.Second)
	if log := b.log.String(); strings.Contains(log, "not handled") {
		t.Error(log)
	}
}

// TestFullDiskDoesNotKeepPodsOnTheVM: without a place for the marker.
func TestFullDiskDoesNotKeepPodsOnTheVM(t *testing.T) {
	b := newBed(t, func(o *Options) { o.Marker = "/proc/nowhere/drained" })
	b.announced = []cloud.Interruption{spot(2 * time.Minute)}
	b.look(0, "report spot-terminate", "drain spot-terminate in 1m30s")
	if !strings.Contains(b.log.String(), "/proc/nowhere") {
		t.Error(b.log.String())
	}
}
