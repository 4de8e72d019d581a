package awsapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"kubernetes-release/preflight"
)

// Recorder counts calls, compares the time in the answers with the local clock and verifies that they are the API's.
type Recorder struct {
	now     func() time.Time
	secrets *preflight.Secrets // removed from answers that messages quote

	mu    sync.Mutex
	calls map[preflight.Calls]int // keyed with a count of zero
	skew  *time.Duration          // local clock minus AWS's
}

// NewRecorder returns a recorder of no calls yet.
func NewRecorder(now func() time.Time, secrets *preflight.Secrets) *Recorder {
	return &Recorder{now: now, secrets: secrets, calls: map[preflight.Calls]int{}}
}

func (r *Recorder) record(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(
		"Recorder",
		func(
			ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
		) (middleware.DeserializeOutput, middleware.Metadata, error) {
			key := preflight.Calls{
				Service: awsmiddleware.GetServiceID(ctx),
				Action:  awsmiddleware.GetOperationName(ctx),
			}
			before := r.now()
			out, metadata, err := next.HandleDeserialize(ctx, in)
			response, ok := out.RawResponse.(*smithyhttp.Response)
			ok = ok && response != nil
			if ok && err == nil && key.Service != kms.ServiceID { // whose answers are no XML
				err = verifyAnswer(key.Action, response.Response, r.secrets)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls[key]++
			if ok {
				if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
					// The header has whole seconds, and the answer was created between before and now.
					skew := before.Add(r.now().Sub(before) / 2).Sub(date.Add(500 * time.Millisecond))
					r.skew = &skew
				}
			}
			return out, metadata, err
		},
	), middleware.After)
}

// ClockSkew is the local clock minus AWS's; ok is false before the first answer.
func (r *Recorder) ClockSkew() (skew time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.skew == nil {
		return 0, false
	}
	return *r.skew, true
}

// List returns the calls made, sorted by service and action.
func (r *Recorder) List() []preflight.Calls {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]preflight.Calls, 0, len(r.calls))
	for c, n := range r.calls {
		c.Count = n
		calls = append(calls, c)
	}
	slices.SortFunc(calls, func(a, b preflight.Calls) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Action, b.Action))
	})
	return calls
}
