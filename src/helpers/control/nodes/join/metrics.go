package join

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"

	"kubernetes-release/internal/exposition"
	"kubernetes-release/node"
)

// result is what became of a request to join, as metrics have it.
type result string

const (
	admitted result = "admitted"
	// refused is a machine that did not prove that it is the node that it asks to be.
	refused result = "refused"
	// conflict is a machine whose name another one still has, for a while after a VM was lost.
	conflict result = "conflict"
	// busy is a request above the limits.
	busy result = "busy"
	// invalid is a request that no VM of this release sends, or whose client does not wait for the response.
	invalid result = "invalid"
	// failed is a request that could not be decided, or not be signed: the VM is not at fault.
	failed result = "failed"
)

// results counts requests to join.
type results struct {
	mu     sync.Mutex
	counts map[result]int
}

func (r *results) add(of result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[result]int{}
	}
	r.counts[of]++
}

// outcome returns the status of the response to a request that ended with an error, and its result.
func outcome(err error) (int, result) {
	var refusal *node.Refusal
	var known *statusError
	status := http.StatusServiceUnavailable
	switch {
	case errors.As(err, &refusal):
		status = http.StatusForbidden
	case errors.As(err, &known):
		status = known.status
	}
	switch {
	case status >= http.StatusInternalServerError:
		return status, failed
	case status == http.StatusForbidden:
		return status, refused
	case status == http.StatusConflict:
		return status, conflict
	case status == http.StatusTooManyRequests:
		return status, busy
	default:
		return status, invalid
	}
}

// WriteMetrics writes how many requests had which result, since the process started. All results are there from the
// beginning: Prometheus' rate sees no growth in a series that appears.
func (s *Server) WriteMetrics(text *exposition.Text) {
	s.results.mu.Lock()
	counts := maps.Clone(s.results.counts)
	s.results.mu.Unlock()
	family := text.Counter("kubernetes_bosh_joins_total", "Requests of VMs to join the cluster, by their result.")
	for _, of := range slices.Sorted(slices.Values([]result{admitted, refused, conflict, busy, invalid, failed})) {
		family.Add(float64(counts[of]), "result", string(of))
	}
}
