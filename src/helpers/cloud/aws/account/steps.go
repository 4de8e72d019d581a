package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/preflight"
)

// step is one thing that must exist in the account.
type step struct {
	what   string
	exists func(context.Context) (bool, error)
	create func(context.Context) error
	// present reports whether there is something to remove, whether or not it is as it must be; nil: exists.
	present func(context.Context) (bool, error)
	// optional says when a cluster does without it; empty: never.
	optional string
	// additional is the warning if what exists does, but has more than it must have; nil: never.
	additional func(context.Context) *preflight.Finding
	// mayCreate is a reason not to take the step, found out before the first one is taken; nil: none.
	mayCreate func(context.Context) error
	// remove deletes what is present; without it, the step's object goes with another one.
	remove func(context.Context) error
	// keeps is a reason to leave what is present, empty if Prepare has created it; nil: none.
	keeps func(context.Context) (string, error)
}

// consistent is how long AWS may take to show what was created.
const consistent = time.Minute

// Codes of errors after which a step is taken again, or may have been taken by a call whose answer was lost: the SDK
// repeats it.
var (
	shownLate = []string{"NoSuchEntity", "InvalidGroup.NotFound"}
	repeated  = []string{"EntityAlreadyExists", "InvalidGroup.Duplicate", "InvalidPermission.Duplicate"}
)

const limitExceeded = "LimitExceeded" // also of a role in an instance profile that has one already

// take creates what the step is about. It repeats the call while AWS does not show what the step before has created.
func (s step) take(ctx context.Context) error {
	return poll.Within(ctx, consistent, time.Second, func(ctx context.Context) error {
		err := s.create(ctx)
		code := errorCode(err)
		if err == nil || slices.Contains(shownLate, code) {
			return err
		}
		if code != "" && code != limitExceeded && !slices.Contains(repeated, code) {
			return poll.Permanent(err)
		}
		switch exists, failed := s.existsOfOurs(ctx); {
		case exists:
			return nil
		case failed != nil:
			return poll.Permanent(errors.Join(err, failed))
		case slices.Contains(repeated, code):
			return err
		}
		return poll.Permanent(err)
	})
}

// existsOfOurs reports whether the step has been taken by a call whose answer was lost.
func (s step) existsOfOurs(ctx context.Context) (bool, error) {
	if err := s.refuses(ctx); err != nil {
		return false, err
	}
	return s.exists(ctx)
}

func (s step) refuses(ctx context.Context) error {
	if s.mayCreate == nil {
		return nil
	}
	return s.mayCreate(ctx)
}

func (s step) isPresent(ctx context.Context) (bool, error) {
	if s.present != nil {
		return s.present(ctx)
	}
	return s.exists(ctx)
}

// kept is the reason to leave what is present, empty if it can be removed.
func (s step) kept(ctx context.Context) (string, error) {
	if s.keeps == nil {
		return "", nil
	}
	return s.keeps(ctx)
}

// refusal is the reason not to take a step.
type refusal struct {
	what string
	err  error
}

type refusalList []refusal

// refusalsOf are the reasons not to take steps.
func refusalsOf(ctx context.Context, steps []step) refusalList {
	var all refusalList
	for _, s := range steps {
		if err := s.refuses(ctx); err != nil {
			all = append(all, refusal{s.what, err})
		}
	}
	return all
}

func (l refusalList) errors() []error {
	all := make([]error, len(l))
	for i, r := range l {
		all[i] = fmt.Errorf("%s: %w", r.what, r.err)
	}
	return all
}
