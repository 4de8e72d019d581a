package readywait

import (
	"context"
	"fmt"
	"net"
	"time"

	"k8s.io/utils/clock"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/strictjson"
)

// EtcdPeerPort is the port at which etcd's members listen for each other.
const EtcdPeerPort = "2380"

const (
	// dialTimeout limits one connection to a member, with the lookup of its name.
	dialTimeout = 2 * time.Second
	// maxRoundsWithoutQuorum is how many consecutive rounds most members must be unreachable before a wait ends, and
	// quorumInterval the minimum time between two of them.
	maxRoundsWithoutQuorum = 3
	quorumInterval         = time.Second
)

// LoadMembers reads a JSON list of the hosts of etcd's members and returns the addresses, HOST:PORT, at which they
// listen for each other. With an empty path there are none.
func LoadMembers(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var hosts []string
	if err := strictjson.ReadFile(path, &hosts); err != nil {
		return nil, err
	}
	addresses := make([]string, 0, len(hosts))
	for _, host := range hosts {
		addresses = append(addresses, net.JoinHostPort(host, EtcdPeerPort))
	}
	return addresses, nil
}

// NoQuorumError ends a wait: too few members of etcd run for a quorum.
type NoQuorumError struct {
	// Answering of Members members accept connections.
	Answering, Members int
	// Problem is why the last check failed.
	Problem error
}

func (e *NoQuorumError) Error() string {
	return fmt.Sprintf(
		"%d of %d etcd members answer, too few for a quorum. Last problem: %v", e.Answering, e.Members, e.Problem,
	)
}

// Unwrap returns the last problem.
func (e *NoQuorumError) Unwrap() error { return e.Problem }

// UnlessNoQuorum wraps a check of package poll: it ends with a *NoQuorumError when the check fails and half or more of
// the members, HOST:PORT at which etcd's members listen for each other, accept no connections for some time. Without
// members it returns the check itself.
func UnlessNoQuorum(members []string, check func(context.Context) error) func(context.Context) error {
	if len(members) == 0 {
		return check
	}
	q := &quorum{members: members, interval: quorumInterval, clock: clock.RealClock{}}
	return func(ctx context.Context) error { return q.round(ctx, check(ctx)) }
}

// quorum counts members that accept connections, round by round.
type quorum struct {
	members  []string
	interval time.Duration
	clock    clock.PassiveClock
	// counted is when the last round was, answering its result, and without how many consecutive rounds had no quorum.
	counted            time.Time
	answering, without int
}

// round returns the problem of a check with the number of members, or the end of the wait.
func (q *quorum) round(ctx context.Context, problem error) error {
	if problem == nil || ctx.Err() != nil {
		return problem
	}
	if q.clock.Since(q.counted) >= q.interval {
		q.counted, q.answering = q.clock.Now(), q.count(ctx)
		if q.without++; q.answering*2 > len(q.members) {
			q.without = 0
		}
	}
	// A single member does not wait for another VM, so its absence is a fault.
	if len(q.members) > 1 && q.without >= maxRoundsWithoutQuorum && ctx.Err() == nil {
		return poll.Permanent(&NoQuorumError{Answering: q.answering, Members: len(q.members), Problem: problem})
	}
	return fmt.Errorf("%w; %d of %d etcd members answer", problem, q.answering, len(q.members))
}

// count returns how many members accept connections.
func (q *quorum) count(ctx context.Context) int {
	dialer, count := &net.Dialer{Timeout: dialTimeout}, 0
	for _, address := range q.members {
		if connection, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			_ = connection.Close()
			count++
		}
	}
	return count
}
