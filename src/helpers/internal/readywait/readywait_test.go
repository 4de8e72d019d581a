package readywait

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"kubernetes-release/internal/poll"
)

// program writes a check.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// members returns the addresses of this many members that accept connections, and of others that refuse them.
func members(t *testing.T, up, down int) []string {
	t.Helper()
	var addresses []string
	for n := range up + down {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, listener.Addr().String())
		if n >= up {
			_ = listener.Close()
			continue
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
	return addresses
}

// failing returns a check that fails so many times and then succeeds.
func failing(t *testing.T, times int) string {
	return program(
		t,
		fmt.Sprintf(
			"cd %q; echo >> runs; [ $(wc -l < runs) -gt %d ] || { echo not yet; exit 1; }\n", t.TempDir(), times,
		),
	)
}

func TestWaitsUntilTheCheckSucceeds(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string][]string{
		"quorum":     members(t, 2, 1),
		"one member": members(t, 1, 0),
		"no members": nil,
	} {
		var output bytes.Buffer
		err := Wait(t.Context(), Options{Check: failing(t, 4), Members: addresses, Timeout: time.Minute}, &output)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Count(output.String(), "not yet") != 1 || !strings.Contains(output.String(), "Ready after ") {
			t.Errorf("%s: got %q; want one progress line and success", name, &output)
		}
	}
}

func TestGivesUpWhileNoQuorumIsPossible(t *testing.T) {
	t.Parallel()
	for _, count := range []struct{ up, down int }{{0, 3}, {1, 2}, {1, 1}, {2, 2}} {
		var output bytes.Buffer
		err := Wait(
			t.Context(),
			Options{
				Check:   program(t, "echo broken; exit 1"),
				Members: members(t, count.up, count.down),
				Timeout: time.Minute,
			},
			&output,
		)
		if err != nil {
			t.Errorf("%v: %v", count, err)
		}
		want := fmt.Sprintf("Not waiting: %d of %d etcd members answer", count.up, count.up+count.down)
		if !strings.Contains(output.String(), want) || !strings.Contains(output.String(), "Last problem: broken") {
			t.Errorf("%v: got %q; want it to contain %q", count, &output, want)
		}
	}
}

// TestCountsConsecutiveRoundsOnly starts a second member of three between two rounds without a quorum.
func TestCountsConsecutiveRoundsOnly(t *testing.T) {
	t.Parallel()
	addresses := members(t, 1, 2)
	q, problem := &quorum{members: addresses, clock: clock.RealClock{}}, errors.New("not yet")
	rounds := func(count int) {
		for range count {
			if err := q.round(t.Context(), problem); err == nil || gaveUp(err) {
				t.Fatalf("gave up or succeeded: %v", err)
			}
		}
	}
	rounds(maxRoundsWithoutQuorum - 1)
	listener, err := net.Listen("tcp", addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	rounds(1)
	_ = listener.Close()
	rounds(maxRoundsWithoutQuorum - 1)
	if err := q.round(t.Context(), problem); !gaveUp(err) {
		t.Errorf("got %v; want it to give up after %d consecutive rounds", err, maxRoundsWithoutQuorum)
	}
}

// A check that is repeated faster than that would otherwise end the wait while members restart.
func TestCountsOneRoundInEachInterval(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Now())
	q, problem := &quorum{members: members(t, 1, 2), interval: time.Minute, clock: now}, errors.New("not yet")
	for n := range maxRoundsWithoutQuorum {
		for range 10 {
			if err := q.round(t.Context(), problem); gaveUp(err) != (n == maxRoundsWithoutQuorum-1) {
				t.Fatalf("in interval %d: %v", n, err)
			}
		}
		now.SetTime(now.Now().Add(time.Minute))
	}
}

// gaveUp tells whether a round ended the wait: poll returns a permanent error itself.
func gaveUp(round error) bool {
	once, cancel := context.WithCancel(context.Background())
	cancel()
	ended := poll.Until(once, interval, func(context.Context) error { return round })
	var none *NoQuorumError
	return errors.As(ended, &none)
}

func TestFailsAfterTheTimeoutWithTheLastProblem(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		check string
		want  []string
	}{
		"output": {
			program(t, "echo connection refused >&2; exit 1"),
			[]string{"connection refused", "2 of 3 etcd members"},
		},
		"none":  {program(t, "exit 7"), []string{"exit status 7"}},
		"alone": {program(t, "echo broken; exit 1"), []string{"broken", "0 of 1 etcd members"}},
		"hangs": {program(t, "sleep 60"), []string{"killed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := time.Now()
			addresses, timeout := members(t, 2, 1), 2*time.Second
			if name == "alone" { // for longer than it takes to give up
				addresses, timeout = members(t, 0, 1), 5*time.Second
			}
			err := Wait(
				t.Context(), Options{Check: test.check, Members: addresses, Timeout: timeout}, new(bytes.Buffer),
			)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 20*time.Second {
				t.Fatalf("got %v after %s; want the timeout", err, time.Since(started))
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q; want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestNamesAMissingCheck(t *testing.T) {
	t.Parallel()
	err := Wait(
		t.Context(), Options{Check: filepath.Join(t.TempDir(), "absent"), Timeout: time.Second}, new(bytes.Buffer),
	)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "absent") {
		t.Errorf("got %v; want the missing program", err)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	err := Wait(
		ctx, Options{Check: program(t, "echo waiting; exit 1"), Members: members(t, 0, 3), Timeout: time.Minute},
		new(bytes.Buffer),
	)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want the cancellation", err)
	}
}
