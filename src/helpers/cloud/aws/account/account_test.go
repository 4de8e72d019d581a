package account

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
)

// TestTakeStep creates what depends on something that IAM shows late, or never.
func TestTakeStep(t *testing.T) {
	late, denied := &smithy.GenericAPIError{Code: "NoSuchEntity"}, &smithy.GenericAPIError{Code: "AccessDenied"}
	for name, test := range map[string]struct {
		shown  time.Duration // when IAM shows it
		after  error
		want   error
		within time.Duration
	}{
		"at once":        {0, nil, nil, 0},
		"after a while":  {5 * time.Second, nil, nil, 5 * time.Second},
		"never":          {time.Hour, nil, late, consistent},
		"another reason": {5 * time.Second, denied, denied, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				err := step{create: func(context.Context) error {
					if time.Since(started) < test.shown {
						return late
					}
					return test.after
				}}.take(t.Context())
				if took := time.Since(started); !errors.Is(err, test.want) || took != test.within {
					t.Errorf("%v after %s, want %v after %s", err, took, test.want, test.within)
				}
			})
		})
	}
}
