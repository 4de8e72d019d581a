package eventually

import (
	"errors"
	"testing"
	"time"
)

func TestSucceeds(t *testing.T) {
	calls := 0
	Succeeds(t, time.Minute, "the second call", func() error {
		if calls++; calls < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	if calls != 2 {
		t.Errorf("got %d calls, want 2", calls)
	}
}
