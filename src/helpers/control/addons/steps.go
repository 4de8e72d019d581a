package addons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"
)

// maxRequests is how many objects are validated or applied at the same time: what an API server of two cores, which
// is starting, answers soonest.
const maxRequests = 8

// sideBySide calls do for each object, several at a time, and returns the errors in the order of the objects; one is
// enough if ctx has ended.
func sideBySide(ctx context.Context, objects []Object, do func(n int, object Object) error) error {
	problems := make([]error, len(objects))
	var group errgroup.Group
	group.SetLimit(maxRequests)
	for n, object := range objects {
		group.Go(func() error {
			if err := do(n, object); err != nil {
				problems[n] = fmt.Errorf("%s: %w", object, err)
			}
			return ctx.Err()
		})
	}
	if ended := group.Wait(); ended != nil {
		return cmp.Or(problems...)
	}
	return errors.Join(problems...)
}

// steps divides objects, which are in the order of applying, into those that can be applied at the same time: all of
// one position. Of kinds without a position, such as custom resources, nobody knows what they need: each is a step.
func steps(objects []Object) iter.Seq[[]Object] {
	return func(yield func([]Object) bool) {
		for len(objects) > 0 {
			first := order(objects[0].GroupVersionKind().GroupKind())
			end := 1
			for first != unlisted && end < len(objects) &&
				order(objects[end].GroupVersionKind().GroupKind()) == first {
				end++
			}
			if !yield(objects[:end]) {
				return
			}
			objects = objects[end:]
		}
	}
}
