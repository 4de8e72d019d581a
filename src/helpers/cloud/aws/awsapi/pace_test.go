package awsapi

import (
	"context"
	"testing"
	"time"
)

// TestLastChance: the last pause before the deadline of the run leaves time for one more attempt.
func TestLastChance(t *testing.T) {
	started := time.Now()
	p := NewPace(func() time.Time { return started }, time.Hour)
	p.spread.Next(0) // an attempt in the first span, so that the next pause is half an hour or more
	ctx, cancel := context.WithDeadline(t.Context(), started.Add(time.Minute))
	defer cancel()
	if pause := p.next(ctx); pause < 0 || pause > time.Minute-lastChance {
		t.Errorf("the pause is %v, but only a minute is left", pause)
	}
}
