package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"kubernetes-release/internal/nospace"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/stopwatch"
)

const (
	// defragmentInterval is the time between two looks at the members. The first comes that long after the process has
	// started, so that a deploy is over.
	defragmentInterval = 10 * time.Minute
	// defragmentTimeout limits the time in which a member rewrites its database, of 8 GiB at the most.
	defragmentTimeout = 10 * time.Minute
	// worthwhile is how many bytes a member must be able to give back, and more than half of the file: while a member
	// rewrites its database, requests to it wait.
	worthwhile = 100 << 20
)

// alarmNoSpace is the alarm with which members refuse writes, because the database of one has reached its quota.
const alarmNoSpace = "NOSPACE"

// status is what a member says about itself, with sizes in bytes.
type status struct {
	Header struct {
		MemberID uint64 `json:"member_id,string"`
		Revision int64  `json:"revision,string"`
	}
	Leader uint64 `json:"leader,string"`
	// Size is that of the file, InUse what is left of it after defragmentation, Quota the size at which writes are
	// refused.
	Size  int64 `json:"dbSize,string"`
	InUse int64 `json:"dbSizeInUse,string"`
	Quota int64 `json:"dbSizeQuota,string"`
}

func (s status) leads() bool { return s.Leader != 0 && s.Leader == s.Header.MemberID }

func (s status) worthwhile() bool { return s.Size-s.InUse >= worthwhile && s.InUse < s.Size/2 }

func always(status) bool { return true }

// KeepDefragmented defragments the members whenever that is worth it, until ctx ends. All instances run it; the one
// whose member leads does the work, so that there is one at a time. What fails is logged and repeated.
func (c *Config) KeepDefragmented(ctx context.Context, log *slog.Logger) error {
	for poll.Sleep(ctx, defragmentInterval) == nil {
		if err := c.defragmentIfLeading(ctx, status.worthwhile, log); err != nil && ctx.Err() == nil {
			log.Error("etcd is not defragmented", "error", err, "next attempt in", defragmentInterval)
		}
	}
	return nil
}

func (c *Config) defragmentIfLeading(ctx context.Context, worth func(status) bool, log *slog.Logger) error {
	own, err := c.status(ctx, *c.self())
	if err != nil || !own.leads() {
		return err
	}
	alarms, err := c.noSpace(ctx)
	if err == nil && len(alarms) > 0 {
		err = fmt.Errorf("%w: this member has %s", nospace.Err, own)
	}
	return errors.Join(err, c.defragment(ctx, worth, log))
}

// MakeSpace removes all old revisions, defragments all members, and clears the alarm with which etcd refuses writes. It
// fails if the objects themselves need more space than there is.
func (c *Config) MakeSpace(ctx context.Context, log *slog.Logger) error {
	members, err := c.statuses(ctx)
	if err != nil {
		return err
	}
	if err := c.compact(ctx, members); err != nil {
		return err
	}
	if err := c.defragment(ctx, always, log); err != nil {
		return err
	}
	return c.clearNoSpace(ctx, log)
}

// defragment defragments the members for which it is worth it, one after the other and the leader last, after it has
// handed over. It does nothing while a member is missing: with another one busy, a write might find no quorum.
func (c *Config) defragment(ctx context.Context, worth func(status) bool, log *slog.Logger) error {
	members, err := c.statuses(ctx)
	if err != nil {
		return err
	}
	var order []Instance
	for i, s := range members {
		if worth(s) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b Instance) int {
		switch {
		case members[a].leads() == members[b].leads():
			return strings.Compare(a.Name, b.Name)
		case members[a].leads():
			return 1
		default:
			return -1
		}
	})
	for _, i := range order {
		if err := c.defragmentOne(ctx, i, log); err != nil {
			return fmt.Errorf("defragment the member of %s: %w", i.Name, err)
		}
	}
	return nil
}

func (c *Config) defragmentOne(ctx context.Context, i Instance, log *slog.Logger) error {
	members, err := c.statuses(ctx)
	if err != nil {
		return err
	}
	if members[i].leads() {
		if err := c.moveLeader(ctx, i, log); err != nil {
			return err
		}
	}
	member, err := c.api(i)
	if err != nil {
		return err
	}
	defer member.done()
	took := stopwatch.Start()
	member.client.Timeout = defragmentTimeout
	if err := member.call(ctx, "maintenance/defragment", struct{}{}, nil); err != nil {
		return err
	}
	after, err := c.status(ctx, i)
	if err != nil {
		return err
	}
	log.Info("etcd is defragmented", "instance", i.Name, "bytes before", members[i].Size, "bytes", after.Size,
		"took", took().Round(time.Millisecond))
	return nil
}

// compact removes the old revisions of all objects, which the API server does every few minutes as long as it can
// write.
func (c *Config) compact(ctx context.Context, members map[Instance]status) error {
	var revision int64
	for _, s := range members {
		revision = max(revision, s.Header.Revision)
	}
	member, err := c.api(*c.self())
	if err != nil {
		return err
	}
	defer member.done()
	member.client.Timeout = defragmentTimeout
	err = member.call(ctx, "kv/compaction", map[string]any{"revision": fmt.Sprint(revision), "physical": true}, nil)
	var refused *refusal
	if errors.As(err, &refused) && strings.Contains(refused.reason, refusedCompacted) {
		return nil
	}
	return err
}

// clearNoSpace clears the alarm of all members, unless one of them would raise it again.
func (c *Config) clearNoSpace(ctx context.Context, log *slog.Logger) error {
	members, err := c.statuses(ctx)
	if err != nil {
		return err
	}
	for i, s := range members {
		if s.full() {
			return fmt.Errorf(
				"the database of %s has %s: increase quota_backend_bytes of the job etcd and deploy, or delete "+
					"objects and run the errand again",
				i.Name, s,
			)
		}
	}
	alarms, err := c.noSpace(ctx)
	if err != nil {
		return err
	}
	member, err := c.api(*c.self())
	if err != nil {
		return err
	}
	defer member.done()
	for _, alarm := range alarms {
		request := map[string]any{"action": "DEACTIVATE", "alarm": alarmNoSpace, "memberID": alarm}
		if err := member.call(ctx, "maintenance/alarm", request, nil); err != nil {
			return fmt.Errorf("clear the alarm %s: %w", alarmNoSpace, err)
		}
		log.Info("alarm is cleared: etcd accepts writes", "alarm", alarmNoSpace, "member", alarm)
	}
	return nil
}

// noSpace returns the IDs of the members that have raised the alarm.
func (c *Config) noSpace(ctx context.Context) ([]string, error) {
	member, err := c.api(*c.self())
	if err != nil {
		return nil, err
	}
	defer member.done()
	var answer struct {
		Alarms []struct{ MemberID, Alarm string }
	}
	if err := member.call(ctx, "maintenance/alarm", map[string]string{"action": "GET"}, &answer); err != nil {
		return nil, err
	}
	var ids []string
	for _, a := range answer.Alarms {
		if a.Alarm == alarmNoSpace {
			ids = append(ids, a.MemberID)
		}
	}
	return ids, nil
}

// statuses returns the status of all members, and an error if one is missing: an instance whose member does not serve,
// or a member without an instance or without a vote.
func (c *Config) statuses(ctx context.Context) (map[Instance]status, error) {
	self, err := c.api(*c.self())
	if err != nil {
		return nil, err
	}
	defer self.done()
	members, err := self.list(ctx)
	if err != nil {
		return nil, err
	}
	all := map[Instance]status{}
	for _, m := range members {
		i := c.instanceOf(m)
		if i == nil || m.IsLearner || !m.joined() {
			return nil, fmt.Errorf(
				"etcd has the member %s, which is not a complete member of this deployment: nothing is "+
					"defragmented while members change",
				m,
			)
		}
		if all[*i], err = c.status(ctx, *i); err != nil {
			return nil, fmt.Errorf("nothing is defragmented while a member is missing: %s: %w", i.Name, err)
		}
	}
	return all, nil
}

// status asks a member that serves: one that rewrites its database, or has lost the others, answers its health check
// too late or with an error.
func (c *Config) status(ctx context.Context, i Instance) (status, error) {
	var s status
	member, err := c.api(i)
	if err != nil {
		return s, err
	}
	defer member.done()
	if err := member.call(ctx, "kv/range", map[string]string{"key": "AA=="}, nil); err != nil {
		return s, err
	}
	return s, member.call(ctx, "maintenance/status", struct{}{}, &s)
}
