package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/rootfile"
)

const (
	// defaultPatience limits waits for other members, which may be starting: etcd refuses changes until its members
	// have been connected for five seconds (server/etcdserver/server.go, HealthInterval).
	defaultPatience = 3 * time.Minute
	// interval is the time between two attempts, reportEvery between two lines that say what is waited for.
	interval    = time.Second
	reportEvery = 10 * time.Second
)

// Prepare makes the instance one of the cluster's members before anything is started on it. It changes nothing for a
// member with data, and for the first member of a new cluster.
func (c *Config) Prepare(ctx context.Context, log *slog.Logger) error {
	if n := len(c.Instances); n%2 == 0 {
		log.Warn(
			"an even number of etcd members survives no more failures than one member less; use 1, 3 or 5", "instances",
			n,
		)
	}
	logged := heard(log)
	return c.repeat(ctx, log, func(ctx context.Context) error {
		given, err := c.ask(ctx, c.others())
		if err != nil {
			return err
		}
		logged(given)
		if err := c.discardLeft(given, log); err != nil {
			return err
		}
		data, err := c.hasData()
		if err != nil {
			return poll.Permanent(err)
		}
		if data {
			if _, err := c.checkReturning(given); err != nil {
				return poll.Permanent(err)
			}
			return nil
		}
		return c.enter(ctx, given, log)
	})
}

// heard logs answers of a repeated step once: the reason of a wait tells what has changed.
func heard(log *slog.Logger) func(answers) {
	var once sync.Once
	return func(given answers) { once.Do(func() { given.log(log) }) }
}

// repeat calls step until it succeeds, returns a poll.Permanent error, or the time is over.
func (c *Config) repeat(ctx context.Context, log *slog.Logger, step func(context.Context) error) error {
	patience := c.patience
	if patience == 0 {
		patience = defaultPatience
	}
	report := func(elapsed time.Duration, err error) {
		log.Info("waiting", "elapsed", elapsed.Round(time.Second), "reason", err)
	}
	// The attempt that runs when the time is over is finished, so that its reason is told.
	attempt := poll.Reported(reportEvery, reportEvery, report, func(context.Context) error { return step(ctx) })
	return poll.Within(ctx, patience, interval, attempt)
}

// enter makes an instance without data a member that has not joined yet. Errors of waits are repeated.
func (c *Config) enter(ctx context.Context, given answers, log *slog.Logger) error {
	if err := c.unanswered(given); err != nil {
		return err
	}
	given = given.given()
	if len(given) == 0 {
		if !c.Bootstrap() {
			return c.nobodyAnswers()
		}
		if err := c.checkOtherGroups(ctx, log); err != nil {
			return err
		}
		return c.create(log)
	}
	if err := c.oneCluster(given); err != nil {
		return poll.Permanent(err)
	}
	via, members, err := c.reach(ctx, given)
	if err != nil {
		return err
	}
	defer via.done()
	entry, listed := find(members, c.Self)
	switch {
	case listed && !entry.joined():
		log.Info("this instance is a member that has not joined yet", "members", list(members))
		return nil
	case listed:
		log.Warn(
			"the data of this member is gone, its entry is replaced: it gets a new copy from the other members",
			"entry", entry, "data", c.WALDir,
		)
		if err := via.remove(ctx, entry.ID); err != nil {
			return c.refused(via, "remove the entry of the lost disk", members, err)
		}
	}
	removed, err := c.removeGone(ctx, via, members)
	for _, m := range removed {
		log.Warn("removed a member that is down and whose instance no longer exists", "member", m)
	}
	if err != nil {
		return c.refused(via, "remove a member whose instance no longer exists", members, err)
	}
	if err := via.addLearner(ctx, c.Self); err != nil {
		return c.refused(via, "add this instance", members, err)
	}
	log.Info("added this instance as a learner", "by", via.Name, "members before", list(members))
	return nil
}

// unanswered fails if something listens on an instance, but gives no list. That is permanent if a certificate is the
// reason: other members can be starting, and load a large database meanwhile.
func (c *Config) unanswered(given answers) error {
	for _, a := range given {
		switch {
		case a.untrusted():
			return poll.Permanent(c.unclear(a))
		case a.unusable():
			return c.unclear(a)
		}
	}
	return nil
}

// reach returns a connection to a member that is no learner and has a quorum, and the list that the quorum agrees on.
// It tries this instance last.
func (c *Config) reach(ctx context.Context, given answers) (*api, []Member, error) {
	var problems []error
	given = slices.Clone(given.given())
	slices.SortStableFunc(
		given, func(a, b answer) int { return order(a.from.PeerURL == c.Self) - order(b.from.PeerURL == c.Self) },
	)
	for _, a := range given {
		if own, ok := a.lists(a.from.PeerURL); ok && own.IsLearner {
			continue
		}
		via, err := c.api(a.from)
		if err != nil {
			return nil, nil, poll.Permanent(err)
		}
		members, err := via.list(ctx)
		if err == nil {
			return via, members, nil
		}
		via.done()
		problems = append(problems, fmt.Errorf("%s: %w", a.from, err))
	}
	return nil, nil, c.noQuorum(given, errors.Join(problems...))
}

func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

// left reports whether this member must not use its data again.
func (c *Config) left() bool {
	_, err := os.Lstat(c.LeftFile)
	return !errors.Is(err, os.ErrNotExist)
}

// markLeft marks this member, which is about to leave. Each start of etcd reads the mark as etcd's user.
func (c *Config) markLeft(entry Member) error {
	return rootfile.Write(c.LeftFile, leftMark(entry), 0o644)
}

// restoreMark is the mark of a member whose data a restore on the bootstrap instance replaces. It names no member.
const restoreMark = "restore\n"

// MarkRestored marks this member, whose cluster is replaced by that of a snapshot.
func (c *Config) MarkRestored() error { return rootfile.Write(c.LeftFile, []byte(restoreMark), 0o600) }

// leftMark is the mark of a member that leaves.
func leftMark(entry Member) []byte { return []byte(entry.String() + "\n") }

// markedByRestore reports whether the mark is that of a restore.
func (c *Config) markedByRestore() (bool, error) {
	mark, err := os.ReadFile(c.LeftFile)
	return string(mark) == restoreMark, err
}

// kept reports whether a running member still lists this one, although it is marked because it was to leave: the
// removal was interrupted, or etcd has not made it. A member that does not know of the removal yet may be the one that
// answers. Then etcd ends again: members that do know refuse it (server/etcdserver/api/rafthttp/http.go).
func (c *Config) kept(given answers) bool {
	mark, err := os.ReadFile(c.LeftFile)
	return err == nil && slices.ContainsFunc(given, func(a answer) bool {
		entry, listed := a.lists(c.Self)
		return listed && bytes.Equal(mark, leftMark(entry))
	})
}

// discardLeft removes the data of a member that must not use it again: it has left the cluster because its instance was
// to be deleted, but was kept after all, or a snapshot is restored on another instance. It does so only if a running
// cluster does not list the member, and waits for one: after a restore for that of the bootstrap instance, because an
// instance that was down meanwhile runs the old cluster, which lists this member.
func (c *Config) discardLeft(given answers, log *slog.Logger) error {
	if !c.left() {
		return nil
	}
	given = given.given()
	if len(given) == 0 {
		return c.hasLeft()
	}
	restored, err := c.markedByRestore()
	if err != nil {
		return poll.Permanent(err)
	}
	if restored && !c.Bootstrap() && !given.fromBootstrap() {
		return c.hasLeft()
	}
	if err := c.oneCluster(given); err != nil {
		return poll.Permanent(err)
	}
	if !slices.ContainsFunc(given, func(a answer) bool { _, listed := a.lists(c.Self); return listed }) {
		log.Warn("this member has left the cluster: it joins again, without its old data", "data", c.DataDir)
		if err := c.discardData(); err != nil && !errors.Is(err, os.ErrNotExist) {
			return poll.Permanent(fmt.Errorf("discard the data of a removed member: %w", err))
		}
	}
	if err := c.ForgetLeft(); err != nil {
		return poll.Permanent(err)
	}
	return nil
}

// ForgetLeft removes the mark of a member that must not use its data again, in a directory to which etcd's user writes.
func (c *Config) ForgetLeft() error {
	root, err := os.OpenRoot(filepath.Dir(c.LeftFile))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return root.Remove(filepath.Base(c.LeftFile))
}

// Settle removes members whose instances no longer exist, once this member serves. What it cannot do is logged, and
// done by the next deploy: entries that are left over are no reason to stop this one.
func (c *Config) Settle(ctx context.Context, log *slog.Logger) error {
	own, err := c.api(*c.self())
	if err != nil {
		return err
	}
	defer own.done()
	members, err := own.list(ctx)
	if err != nil {
		log.Info("no list of members that a quorum agrees on; nothing is removed", "reason", err)
		return nil
	}
	removed, err := c.removeGone(ctx, own, members)
	for _, m := range removed {
		log.Warn("removed a member that is down and whose instance no longer exists", "member", m)
	}
	if err != nil {
		log.Warn("members whose instances no longer exist are left", "reason", err)
	}
	return nil
}

// Leave removes the member of an instance that is about to be deleted from the cluster. It fails if it is the last one,
// if the others would have no quorum, or if etcd runs here and nobody says which members there are. It passes if no
// instance answers, including this one: either the cluster is gone, or the operator has stopped it.
func (c *Config) Leave(ctx context.Context, log *slog.Logger) error {
	logged := heard(log)
	return c.repeat(ctx, log, func(ctx context.Context) error {
		given, err := c.ask(ctx, c.Instances)
		if err != nil {
			return err
		}
		logged(given)
		if err := c.mayBeLast(given); err != nil {
			return err
		}
		given = given.given()
		if !slices.ContainsFunc(given, func(a answer) bool { _, listed := a.lists(c.Self); return listed }) {
			return nil
		}
		return c.leave(ctx, given, log)
	})
}

// mayBeLast fails if etcd runs on this instance, and no instance lists the members. On one that was stopped, or on
// which etcd has never started, nothing runs: these can be deleted.
func (c *Config) mayBeLast(given answers) error {
	own := given[slices.IndexFunc(given, func(a answer) bool { return a.from.PeerURL == c.Self })]
	if own.unusable() && len(given.given()) == 0 {
		return c.silent(own)
	}
	return nil
}

func (c *Config) leave(ctx context.Context, given answers, log *slog.Logger) error {
	via, members, err := c.reach(ctx, given)
	if err != nil {
		return err
	}
	defer via.done()
	entry, listed := find(members, c.Self)
	if !listed {
		return nil
	}
	var remaining []Member
	for _, m := range members {
		if m.ID != entry.ID && !m.IsLearner {
			remaining = append(remaining, m)
		}
	}
	if len(remaining) == 0 {
		return poll.Permanent(c.lastMember())
	}
	if err := c.MoveLeader(ctx, log); err != nil {
		log.Warn("the leadership is not handed over; the other members elect a leader", "reason", err)
	}
	marked := c.left() // by an attempt whose removal may still be applied
	if !marked {
		if err := c.markLeft(entry); err != nil {
			return poll.Permanent(err)
		}
	}
	if err := via.remove(ctx, entry.ID); err != nil {
		if !marked && notProposed(err) {
			err = errors.Join(err, c.ForgetLeft())
		}
		return c.refused(via, "remove this instance", members, err)
	}
	log.Info("removed this instance from the cluster", "by", via.Name, "remaining", list(remaining))
	return nil
}

// notProposed reports whether etcd has refused to remove a member before it asked the other members: it is still one of
// them then (mayRemoveMember in server/etcdserver/server.go). After any other error the removal may be applied later.
func notProposed(err error) bool { return refusedFor(err, refusedUnhealthy, refusedNotStarted) }

// temporary reports whether etcd may accept the same request later.
func temporary(err error) bool {
	var refused *refusal
	return !errors.As(err, &refused) || refusedFor(
		err, refusedUnhealthy, refusedNotStarted, refusedTooMany, refusedLeaderGone, refusedTimeout, refusedPeerURLBusy,
		refusedNotFound,
	)
}

// refusedFor reports whether etcd has refused a request for one of these reasons.
func refusedFor(err error, reasons ...string) bool {
	var refused *refusal
	return errors.As(err, &refused) &&
		slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(refused.reason, reason) })
}
