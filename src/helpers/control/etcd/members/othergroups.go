package members

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/poll"
)

// checkOtherGroups fails if members run on instances of the deployment that are not among Instances. The manifest has
// moved the job to another instance group then: its link has only the new instances, and the Director removes the job
// and its disk from the old ones next (update_persistent_disk in disk_manager.rb of bosh-director).
//
// It asks every other VM, so only a server with a certificate of the members' CA counts: what else listens on the port
// has none. A member that gives no list can be starting, and is asked again. The Director sends the records before
// pre-start (update_dns_if_changed in its update_procedure.rb). A VM that it recreates can have none, as in a cluster
// that is lost: that is no reason to fail.
func (c *Config) checkOtherGroups(ctx context.Context, log *slog.Logger) error {
	records, err := c.Deployment.Load()
	if err != nil {
		log.Info("other instance groups are not asked for members", "reason", err)
		return nil
	}
	given, err := c.ask(ctx, c.outside(records))
	if err != nil {
		return err
	}
	for _, a := range given {
		switch {
		case a.err == nil:
			return poll.Permanent(c.inOtherGroup(a))
		case a.ofCA:
			return c.unclear(a)
		case a.unusable():
			log.Info(
				"not a member of this cluster", "instance", a.from.Name, "address", a.from.Address, "reason", a.err,
			)
		}
	}
	log.Info("no members run in other instance groups", "addresses", len(given))
	return nil
}

// outside returns the instances of the deployment that are not among Instances, with the URLs that their members would
// have, once for each of their addresses.
func (c *Config) outside(records []boshdns.Record) []Instance {
	var outside []Instance
	for _, r := range records {
		if slices.ContainsFunc(c.Instances, func(i Instance) bool { return i.member() == r.ID }) {
			continue
		}
		outside = append(outside, Instance{
			Name:    r.InstanceGroup + "/" + r.ID,
			PeerURL: strings.Replace(c.Self, c.Name(), r.ID, 1),
			Address: r.IP.String(),
		})
	}
	return outside
}

func (c *Config) inOtherGroup(a answer) error {
	return fmt.Errorf(`etcd was not started: its members run in another instance group of this deployment.
  answer:   %s at %s lists %s
  instance: %s, which has no data (no *.wal in %s)
  why:      this instance would create an empty cluster, and the deploy would go on with it: the disks of the members
            that run would be orphaned, and all objects of the cluster lost.
  do now:   deploy without the change that moved the job etcd to another instance group, such as
            ops-files/use-separate-etcd.yml, which is for the first deploy only. Members were not stopped, and cannot
            move to another instance group; see %s`,
		a.from, a.from.Address, list(a.members), c.self(), c.WALDir, guide)
}
