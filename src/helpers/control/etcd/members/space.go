package members

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"kubernetes-release/internal/nospace"
)

// largestRequest is the room below its quota that a member needs: etcd refuses a request that would reach the quota,
// and one has at most 1.5 MiB (DefaultMaxRequestBytes in server/embed/config.go, Available in server/storage/quota.go).
const largestRequest = 2 << 20

// full is whether a member refuses, or would refuse, writes because of its own database, whether or not the alarm has
// been raised. A negative quota is none.
func (s status) full() bool { return s.Quota > 0 && s.Quota-s.Size < largestRequest }

func (s status) String() string {
	return fmt.Sprintf(
		"%s of quota_backend_bytes, which are %s; %s of them are used", mebibytes(s.Size), mebibytes(s.Quota),
		mebibytes(s.InUse),
	)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// CheckSpace fails if etcd refuses writes because the database of this instance's member has reached its quota. It is
// called in post-start, where this instance serves again, so that a deploy ends with the reason before it stops the
// next VM, and in post-deploy, for a deploy that has not updated this instance. The Director's task names the job
// then; it shows nothing of a script that passes (summarizeErrs in agent/script/parallel_script.go of bosh-agent).
//
// It is called after a restore too: a snapshot has the alarm, and the size, of the time when it was taken.
//
// A deploy that increases the quota goes on: with the new one, this member has room. When that holds for all members,
// the alarm is cleared, since etcd keeps it until someone does.
func (c *Config) CheckSpace(ctx context.Context, log *slog.Logger) error {
	alarms, err := c.noSpace(ctx)
	if err != nil {
		log.Info("etcd was not asked whether it refuses writes", "reason", err)
		return nil
	}
	if len(alarms) == 0 {
		return nil
	}
	own, err := c.status(ctx, *c.self())
	if err != nil {
		return fmt.Errorf("%w; the size of this member is not known: %w", nospace.Err, err)
	}
	if own.full() {
		return c.noRoom(c.sizes(ctx))
	}
	if err := c.clearNoSpace(ctx, log); err != nil {
		log.Warn(
			"etcd still refuses writes, until all members have room", "this member", own, "reason", err,
		)
	}
	return nil
}

// Full reports whether etcd refuses writes because the database of a member has reached its quota, as far as the member
// of this instance knows.
func (c *Config) Full(ctx context.Context) bool {
	alarms, err := c.noSpace(ctx)
	return err == nil && len(alarms) > 0
}

// sizes has a line about each instance, for people.
func (c *Config) sizes(ctx context.Context) string {
	lines := make([]string, len(c.Instances))
	for n, i := range c.Instances {
		s, err := c.status(ctx, i)
		lines[n] = i.Name + ": " + s.String()
		if err != nil {
			lines[n] = fmt.Sprintf("%s: size not known: %v", i.Name, err)
		}
	}
	return strings.Join(lines, "\n            ")
}

func (c *Config) noRoom(sizes string) error {
	return fmt.Errorf(`%w.
  members:  %s
  stopped:  the API reads and deletes, but creates and changes nothing: no pod is scheduled, evicted or replaced, and
            controllers have no leader. Running pods go on. A deploy ends here, because it could not move the pods of
            the next VMs.
  do now:   bosh run-errand etcd-defragment, and deploy again if this was a deploy. If the errand says that the objects
            need more, increase quota_backend_bytes of the job etcd, for which a deploy goes on; see docs/operations.md
            of the release, "Space in etcd"`,
		nospace.Err, sizes)
}
