package preflight

import (
	"math/rand/v2"
	"time"
)

// Backoff spaces repeated attempts: each pause is random around a length that doubles up to a limit, so that
// machines that start together do not retry together.
type Backoff struct {
	// First is the length around which the first pause lies, Limit that of the longest pauses.
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

// Spread spaces the attempts of machines that share a quota and cannot coordinate. The time since the first attempt is
// divided into spans, each of which ends Growth times later than the one before. A machine chooses a random position
// once and makes one attempt at that position of every span. So many machines keep asking evenly for as long as the
// quota needs to serve them, those that have not been served stay evenly spread, and each machine asks only once per
// span.
type Spread struct {
	// First is the length of the first span.
	First time.Duration
	// Growth is greater than 1.
	Growth float64

	end      time.Duration // of the span of the last attempt; 0 before the first
	position float64       // in every span: 0 is its start, 1 its end
}

// Next returns the pause before the next attempt, given the time since the first one. Spans that have passed are
// skipped.
func (s *Spread) Next(elapsed time.Duration) time.Duration {
	if s.end == 0 {
		s.position = rand.Float64()
	}
	for {
		start := s.end
		s.end = max(s.First, time.Duration(float64(start)*s.Growth))
		at := start + time.Duration(s.position*float64(s.end-start))
		if s.end > elapsed {
			return max(0, at-elapsed)
		}
	}
}
