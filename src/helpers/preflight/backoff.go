package preflight

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff spaces repeated attempts: each pause is drawn at random around a length that doubles up to a limit, so that
// machines that start together do not ask together again.
type Backoff struct {
	// First is the length around which the first pause lies, Limit that of the longest ones.
	First, Limit time.Duration

	attempts int
}

// Next returns the pause before the next attempt: between half and one and a half times its length.
func (b *Backoff) Next() time.Duration {
	length := b.Limit
	if b.attempts < 30 { // beyond that the shift would overflow
		length = min(b.First<<b.attempts, b.Limit)
	}
	b.attempts++
	return length/2 + rand.N(length+1)
}

// Spread spaces the attempts of machines that share a quota and know nothing of each other. Time since the first attempt is
// cut into spans, each of which ends Growth times later than the one before. A machine draws its place once, and asks at
// that place of every span. So a crowd keeps asking evenly for as long as the quota needs to serve it, those whom it has not
// served stay evenly spread, and each machine asks few times: as often as spans fit into the time that the quota needs.
type Spread struct {
	// First is the length of the first span.
	First time.Duration
	// Growth is greater than 1.
	Growth float64

	end   time.Duration // of the span of the last attempt; 0 before the first
	place float64       // in every span: 0 is its begin, 1 its end
}

// Next returns the pause before the next attempt, given the time since the first one. Spans that have passed are left out.
func (s *Spread) Next(elapsed time.Duration) time.Duration {
	if s.end == 0 {
		s.place = rand.Float64()
	}
	for {
		begin := s.end
		s.end = max(s.First, time.Duration(float64(begin)*s.Growth))
		at := begin + time.Duration(s.place*float64(s.end-begin))
		if s.end > elapsed {
			return max(0, at-elapsed)
		}
	}
}

// Sleep waits for d or until the context ends, and then returns its error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
