package approver

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"kubernetes-release/node"
)

// A node can send as many requests as it likes. So that they delay no other node's, requesters take turns, and each has
// a share.

// item is a request in the queue.
type item struct{ requester, name string }

// fairQueue implements workqueue.Queue: requesters take turns, and the requests of each are in order. It is used with
// the lock of the workqueue.
type fairQueue struct {
	turns []string
	items map[string][]item
	count int
}

func newQueue() workqueue.TypedRateLimitingInterface[item] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[item](minRetryDelay, maxRetryDelay)
	queue := workqueue.NewTypedWithConfig(
		workqueue.TypedQueueConfig[item]{Queue: &fairQueue{items: map[string][]item{}}},
	)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[item]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[item]{Queue: queue},
		),
	})
}

// Touch implements workqueue.Queue.
func (q *fairQueue) Touch(item) {}

// Push implements workqueue.Queue.
func (q *fairQueue) Push(i item) {
	waiting := q.items[i.requester]
	if len(waiting) == 0 {
		q.turns = append(q.turns, i.requester)
	}
	q.items[i.requester] = append(waiting, i)
	q.count++
}

// Len implements workqueue.Queue.
func (q *fairQueue) Len() int { return q.count }

// Pop implements workqueue.Queue.
func (q *fairQueue) Pop() item {
	requester := q.turns[0]
	q.turns = q.turns[1:]
	waiting := q.items[requester]
	next := waiting[0]
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(q.items, requester)
	} else {
		q.items[requester] = waiting
		q.turns = append(q.turns, requester)
	}
	q.count--
	return next
}

const (
	// shareBurst requests of one requester are decided at once, and one more every shareInterval. A kubelet has two
	// certificates, and sends another request for one after 15 minutes (client-go util/certificate,
	// certificateWaitTimeout).
	shareBurst    = 10
	shareInterval = 15 * time.Second
	// overShareDelay is when a request above the share is looked at again.
	overShareDelay = 30 * time.Second
	// reportInterval is the minimum time between two reports about one requester.
	reportInterval = time.Minute
	// maxShares limits memory: above it, the shares of requesters that have all of theirs are forgotten.
	maxShares = 1000
)

// share is what a requester has left.
type share struct{ decisions, reports *rate.Limiter }

// shares holds those of all requesters.
type shares struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	of    map[string]*share
}

// take reports whether the requester has something left. If not, report is called from time to time.
func (s *shares) take(requester string, report func()) bool {
	now := s.clock.Now()
	s.mu.Lock()
	if len(s.of) >= maxShares {
		maps.DeleteFunc(s.of, func(_ string, known *share) bool { return known.decisions.TokensAt(now) >= shareBurst })
	}
	own := s.of[requester]
	if own == nil {
		own = &share{
			decisions: rate.NewLimiter(rate.Every(shareInterval), shareBurst),
			reports:   rate.NewLimiter(rate.Every(reportInterval), 1),
		}
		s.of[requester] = own
	}
	s.mu.Unlock()
	if own.decisions.AllowN(now, 1) {
		return true
	}
	if own.reports.AllowN(now, 1) {
		report()
	}
	return false
}

const (
	// foundFor is how long the answer of the cloud about a VM is used again. A VM that was terminated can get a
	// certificate that much longer.
	foundFor = 10 * time.Second
	// maxFound limits memory.
	maxFound = 1000
)

// remembering asks the cloud or BOSH about each VM from time to time only. Refusals and errors are not remembered.
type remembering struct {
	Machines
	found *cache.LRUExpireCache // of remembered, by the names of nodes
}

type remembered struct {
	machine node.Machine
	labels  map[string]string
}

func remember(machines Machines, clock clock.PassiveClock) *remembering {
	return &remembering{machines, cache.NewLRUExpireCacheWithClock(maxFound, clock)}
}

// Find implements Machines.
func (r *remembering) Find(ctx context.Context, name string, labels map[string]string) (node.Machine, error) {
	if value, ok := r.found.Get(name); ok {
		if known, ok := value.(remembered); ok && maps.Equal(known.labels, labels) {
			return known.machine, nil
		}
	}
	machine, err := r.Machines.Find(ctx, name, labels)
	if err == nil {
		r.found.Add(name, remembered{machine, labels}, foundFor)
	}
	return machine, err
}
