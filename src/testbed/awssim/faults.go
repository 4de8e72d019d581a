package awssim

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// Kinds of faults.
const (
	FaultError    = "error"    // answer Code, Message and Status instead of acting
	FaultTruncate = "truncate" // act, but close the connection in the middle of the answer
	FaultEmpty    = "empty"    // act, but leave out the content of the answer
	FaultBody     = "body"     // answer Body with Status instead of acting
	FaultReset    = "reset"    // reset the connection instead of acting
)

// Fault makes the next calls of an action fail.
type Fault struct {
	// Action is a pattern over service:Action (ec2:Describe*), or metadata:PATH for instance metadata.
	Action string `json:"action"`
	// Source limits the fault to requests from this address; "" matches all.
	Source string `json:"source,omitempty"`
	// Count is the number of calls that it affects; 0 means all until it is removed.
	Count   int    `json:"count,omitempty"`
	Kind    string `json:"kind"`
	Code    string `json:"code,omitempty"`    // default InternalError
	Message string `json:"message,omitempty"` // default: a sentence that says that it was asked for
	Status  int    `json:"status,omitempty"`  // default 500 for kind error, 200 for kind body
	Body    string `json:"body,omitempty"`
}

// faultBox holds the pending faults.
type faultBox struct {
	mu   sync.Mutex
	list []Fault
}

// take returns the fault that affects this call, or nil.
func (b *faultBox) take(action, source string) *Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.list {
		f := &b.list[i]
		if !iam.Match(f.Action, action) || f.Source != "" && f.Source != source {
			continue
		}
		hit := *f
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				b.list = slices.Delete(b.list, i, i+1)
			}
		}
		return &hit
	}
	return nil
}

func (f *Fault) is(kind string) bool { return f != nil && f.Kind == kind }

// error is the error response of a fault that prevents the action, or nil.
func (f *Fault) error() *wire.Error {
	if f == nil || f.Kind == FaultTruncate || f.Kind == FaultEmpty {
		return nil
	}
	return &wire.Error{
		Code:    cmp.Or(f.Code, "InternalError"),
		Message: cmp.Or(f.Message, "An internal error has occurred (a fault that the simulator was asked for)."),
		Status:  cmp.Or(f.Status, http.StatusInternalServerError),
	}
}

// write sends a response, damaged by the fault. f can be nil.
func (f *Fault) write(w http.ResponseWriter, status int, response []byte) {
	switch {
	case f.is(FaultReset):
		reset(w)
		return
	case f.is(FaultBody):
		status, response = cmp.Or(f.Status, http.StatusOK), []byte(f.Body)
	case f.is(FaultTruncate):
		// The server closes the connection of an answer that is shorter than announced. That is all that clients notice
		// which discard the content, as the SDK does where there is nothing to tell.
		w.Header().Set("Content-Length", strconv.Itoa(len(response)))
		response = response[:len(response)/2]
	}
	w.WriteHeader(status)
	_, _ = w.Write(response) // fails if the client has closed the connection
}

// reset closes the connection with a RST.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}

// troubleBox logs an error once for as long as it lasts.
type troubleBox struct{ last map[string]string }

func (b *troubleBox) report(log *slog.Logger, id string, err error) {
	if err == nil {
		delete(b.last, id)
		return
	}
	if b.last == nil {
		b.last = map[string]string{}
	}
	if b.last[id] != err.Error() {
		b.last[id] = err.Error()
		log.Error("volume", "volume", id, "error", err)
	}
}

// bucketBox holds a token bucket for each throttled action. The simulator's lock guards it.
type bucketBox struct {
	buckets map[string]*bucket
}

type bucket struct {
	rule   store.ThrottleRule
	tokens float64
	filled time.Time
}

// take takes a token for the action and reports whether there was one.
func (b *bucketBox) take(rules []store.ThrottleRule, action string, now time.Time) bool {
	i := slices.IndexFunc(rules, func(r store.ThrottleRule) bool { return iam.Match(r.Action, action) })
	if i < 0 {
		return true
	}
	if b.buckets == nil {
		b.buckets = map[string]*bucket{}
	}
	k := b.buckets[action]
	if k == nil || k.rule != rules[i] {
		k = &bucket{rule: rules[i], tokens: rules[i].Burst, filled: now}
		b.buckets[action] = k
	}
	k.tokens = min(k.rule.Burst, k.tokens+now.Sub(k.filled).Seconds()*k.rule.Rate)
	k.filled = now
	if k.tokens < 1 {
		return false
	}
	k.tokens--
	return true
}
