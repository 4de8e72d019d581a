// Package eventually is for tests of what happens after a while.
package eventually

import (
	"context"
	"testing"
	"time"

	"kubernetes-release/internal/poll"
)

// interval is how often a check is repeated.
const interval = 50 * time.Millisecond

// Succeeds repeats check until it returns nil, and fails the test with the last error when it has not within the
// timeout.
func Succeeds(t testing.TB, timeout time.Duration, what string, check func() error) {
	t.Helper()
	SucceedsEvery(t, timeout, interval, what, check)
}

// SucceedsEvery is Succeeds with a pause of that length between checks, for those that cost something.
func SucceedsEvery(t testing.TB, timeout, pause time.Duration, what string, check func() error) {
	t.Helper()
	err := poll.Within(t.Context(), timeout, pause, func(context.Context) error { return check() })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
