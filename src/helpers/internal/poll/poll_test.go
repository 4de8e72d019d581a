package poll

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntilReturnsAtTheFirstSuccess(t *testing.T) {
	calls := 0
	err := Until(t.Context(), time.Millisecond, func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("got %v after %d calls, want success after 3", err, calls)
	}
}

func TestTimeoutKeepsTheLastReason(t *testing.T) {
	notYet := errors.New("not yet")
	err := Within(t.Context(), 20*time.Millisecond, time.Millisecond, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err() // as a request that was cut off would
		}
		return notYet
	})
	if !errors.Is(err, notYet) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the last reason and the deadline", err)
	}
}

func TestTimeoutIsReportedAsItWasSet(t *testing.T) {
	err := Within(t.Context(), 100*time.Millisecond, time.Millisecond, func(context.Context) error {
		time.Sleep(160 * time.Millisecond)
		return errors.New("not yet")
	})
	if err == nil || err.Error() != "timed out after 100ms: not yet" {
		t.Errorf("got %v, want the timeout and not how long the check took", err)
	}
}

func TestCancelIsNotATimeout(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	err := Until(ctx, time.Hour, func(context.Context) error {
		cancel(interrupted)
		return errors.New("not yet")
	})
	if !errors.Is(err, interrupted) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the cause of the cancellation", err)
	}
}

func TestPermanentEndsAtOnce(t *testing.T) {
	denied := errors.New("denied")
	calls := 0
	err := Until(t.Context(), time.Millisecond, func(context.Context) error {
		calls++
		return Permanent(denied)
	})
	if err != denied || calls != 1 { //nolint:errorlint // Until must return the error itself, not a wrapped one
		t.Errorf("got %v after %d calls, want the error itself after one", err, calls)
	}
}

func TestReported(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		want  []string
	}{
		{0, []string{"1", "4"}},
		{40 * time.Millisecond, []string{"4"}},
	} {
		var reported []string
		calls := 0
		check := Reported(
			test.after, 35*time.Millisecond,
			func(_ time.Duration, err error) { reported = append(reported, err.Error()) },
			func(context.Context) error {
				if calls++; calls == 6 {
					return nil
				}
				return errors.New(strconv.Itoa(calls))
			},
		)
		synctest.Test(t, func(t *testing.T) {
			if err := Until(t.Context(), 15*time.Millisecond, check); err != nil {
				t.Fatal(err)
			}
		})
		if !slices.Equal(reported, test.want) {
			t.Errorf("after %s: reported %v, want %v", test.after, reported, test.want)
		}
	}
}

func TestSleep(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond} {
		if err := Sleep(t.Context(), d); err != nil {
			t.Errorf("%s: got %v", d, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, d := range []time.Duration{0, time.Hour} {
		if err := Sleep(ended, d); !errors.Is(err, context.Canceled) {
			t.Errorf("%s in a canceled context: got %v", d, err)
		}
	}
}

// TestSlowChecksAreRarer counts checks that take a second, and some that take a minute, with an interval of 200 ms.
func TestSlowChecksAreRarer(t *testing.T) {
	for took, want := range map[time.Duration]int{time.Millisecond: 299, time.Second: 30, time.Minute: 10} {
		synctest.Test(t, func(t *testing.T) {
			limit := time.Minute
			if took == time.Minute {
				limit = 10 * time.Minute
			}
			checks := 0
			_ = Within(t.Context(), limit, 200*time.Millisecond, func(context.Context) error {
				checks++
				time.Sleep(took)
				return errors.New("not yet")
			})
			if checks < want || checks > want+1 {
				t.Errorf("%d checks of %s in %s, want about %d", checks, took, limit, want)
			}
		})
	}
}
