// Package poll repeats a check until it succeeds, and keeps the reason why it has not.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A check that took long is repeated after slowdown times as long, up to maxInterval: on a machine without processor
// time to spare, many that wait would else take it from what they wait for. It is short, because a check that hung took
// no processor time.
const (
	slowdown    = 4
	maxInterval = time.Second
)

// Until calls check at once and then after every interval, or a longer one after a check that took long, until it
// returns nil or a Permanent error, or ctx ends. In the last case the error is an *Error. A check that fails because
// ctx has ended does not replace the reason of the one before it.
func Until(ctx context.Context, interval time.Duration, check func(context.Context) error) error {
	started := time.Now()
	var last error
	for {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return nil
		}
		var final permanent
		if errors.As(err, &final) {
			return final.error
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		timer := time.NewTimer(max(interval, min(slowdown*time.Since(began), maxInterval)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return &Error{Last: last, Cause: context.Cause(ctx), Elapsed: time.Since(started)}
		case <-timer.C:
		}
	}
}

// Within is Until with a deadline that far from now. The error of a deadline has the timeout as Elapsed, however long
// the last check took.
func Within(ctx context.Context, timeout, interval time.Duration, check func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := Until(limited, interval, check)
	var ended *Error
	if errors.As(err, &ended) && ctx.Err() == nil {
		ended.Elapsed = timeout
	}
	return err
}

// Reported wraps a check of a long wait: report is called with the error of a check that fails, first when the time
// after has passed since the first check, then at most once in every interval.
func Reported(
	after, every time.Duration, report func(elapsed time.Duration, err error), check func(context.Context) error,
) func(context.Context) error {
	var started, next time.Time
	return func(ctx context.Context) error {
		if started.IsZero() {
			started = time.Now()
			next = started.Add(after)
		}
		err := check(ctx)
		if now := time.Now(); err != nil && ctx.Err() == nil && !now.Before(next) {
			report(now.Sub(started), err)
			next = now.Add(every)
		}
		return err
	}
}

// Sleep waits for d, not at all if it is not positive. If ctx ends first, or has ended, it returns the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Permanent marks an error that no repetition can change: Until returns err itself.
func Permanent(err error) error { return permanent{err} }

type permanent struct{ error }

// Error says that a check had not succeeded when its context ended.
type Error struct {
	// Last is the error of the last check, and Cause why the context ended.
	Last, Cause error
	Elapsed     time.Duration
}

func (e *Error) Error() string {
	elapsed := e.Elapsed.Round(100 * time.Millisecond)
	if errors.Is(e.Cause, context.DeadlineExceeded) {
		return fmt.Sprintf("timed out after %s: %v", elapsed, e.Last)
	}
	return fmt.Sprintf("stopped after %s (%v): %v", elapsed, e.Cause, e.Last)
}

// Unwrap gives both the last error of the check and the reason why the context ended.
func (e *Error) Unwrap() []error { return []error{e.Last, e.Cause} }
