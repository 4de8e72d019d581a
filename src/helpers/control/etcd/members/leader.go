package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// candidateTimeout limits the questions to one candidate: a drain script waits for the answers.
const candidateTimeout = 5 * time.Second

// candidate is a member that can lead.
type candidate struct {
	Instance
	id uint64
	// started is when its process started, in seconds since 1970.
	started float64
}

// MoveLeader makes another member the leader if that of this instance is. Stopping a leader, etcd hands over only after
// it has waited for open watches, and fails writes meanwhile (Stop in server/embed/etcd.go). A cluster of one member
// has nowhere to move to.
func (c *Config) MoveLeader(ctx context.Context, log *slog.Logger) error {
	return c.moveLeader(ctx, *c.self(), log)
}

// moveLeader does the same for the member of any instance. Of the members that serve it prefers the one that started
// last: during a rolling update, that one has been updated already, and keeps the leadership.
func (c *Config) moveLeader(ctx context.Context, from Instance, log *slog.Logger) error {
	leader, err := c.api(from)
	if err != nil {
		return err
	}
	defer leader.done()
	var own status
	if err := leader.call(ctx, "maintenance/status", struct{}{}, &own); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if !own.leads() {
		log.Info("this member is not the leader", "member", from.Name)
		return nil
	}
	members, err := leader.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	candidates, err := c.candidates(ctx, members, own.Header.MemberID)
	if err == nil && len(candidates) == 0 {
		log.Info("there is no other voting member")
		return nil
	}
	for _, to := range candidates {
		refused := leader.handOver(ctx, to.id)
		if refused == nil {
			log.Info("leadership is moved", "from", from.Name, "to", to.Name)
			return nil
		}
		err = errors.Join(err, fmt.Errorf("%s: %w", to, refused))
	}
	return fmt.Errorf("no other member can lead: %w", err)
}

// candidates returns the other members with a vote that serve, the one that started last first, and why others do not
// serve. While the leadership moves to a member, no write succeeds, so one that does not answer must not be tried.
func (c *Config) candidates(ctx context.Context, members []Member, leader uint64) ([]candidate, error) {
	var found []candidate
	var problems []error
	for _, m := range members {
		i := c.instanceOf(m)
		if m.ID == leader || m.IsLearner || i == nil {
			continue
		}
		started, err := c.serving(ctx, *i)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", i, err))
			continue
		}
		found = append(found, candidate{Instance: *i, id: m.ID, started: started})
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.started, a.started) })
	return found, errors.Join(problems...)
}

// serving returns when the member of an instance has started, or why it does not serve.
func (c *Config) serving(ctx context.Context, i Instance) (started float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, candidateTimeout)
	defer cancel()
	if _, err := c.status(ctx, i); err != nil {
		return 0, err
	}
	member, err := c.api(i)
	if err != nil {
		return 0, err
	}
	defer member.done()
	return member.started(ctx)
}
