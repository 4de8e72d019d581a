package awsapi

import (
	"context"
	"fmt"
	"time"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/preflight"
)

// Pace spaces the retries of calls that AWS throttles. Only one call of the run is retried at a time: the others follow
// once it has succeeded, when their quotas have filled up again, instead of being throttled in parallel.
type Pace struct {
	now     func() time.Time
	turn    chan struct{} // holds one element
	spread  preflight.Spread
	started time.Time // when the first call was throttled; guarded by turn, as is spread
}

// NewPace returns a pace with the given first span. EC2 admits bursts of 100 calls of a kind and 20 per second;
// machines that it throttles finish at most one span later than that allows, which is 15 % of the time.
func NewPace(now func() time.Time, first time.Duration) *Pace {
	p := &Pace{now: now, turn: make(chan struct{}, 1), spread: preflight.Spread{First: first, Growth: 1.15}}
	p.turn <- struct{}{}
	return p
}

// ThrottleSpan is the first span over which throttled machines spread their calls: EC2 serves 400 of them in it.
const ThrottleSpan = 20 * time.Second

// lastChance is how long before the deadline the last attempt starts.
const lastChance = 2 * time.Second

// next returns the pause before the next attempt, which ends before the deadline of the context.
func (p *Pace) next(ctx context.Context) time.Duration {
	now := p.now()
	if p.started.IsZero() {
		p.started = now
	}
	pause := p.spread.Next(now.Sub(p.started))
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > lastChance {
			pause = min(pause, left-lastChance)
		}
	}
	return pause
}

// ThrottledOut wraps the last error of a call that was throttled until the deadline.
type ThrottledOut struct {
	err      error
	attempts int
}

func (t *ThrottledOut) Error() string {
	return fmt.Sprintf("still throttled after %d attempts at the deadline: %s", t.attempts, awserr.Describe(t.err))
}

func (t *ThrottledOut) Unwrap() error { return t.err }
