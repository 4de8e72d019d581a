package etcdmembers

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
)

// guide is where an operator reads on.
const guide = `docs/operations.md of the release, "More or fewer control VMs"`

// CheckStart refuses a start of etcd on this instance that would split the cluster or end in errors that name no reason. Where
// no other instance answers, as when the first cluster of a deployment starts, it passes.
func (c *Config) CheckStart(ctx context.Context, log *slog.Logger) error {
	data, err := c.hasData()
	if err != nil {
		return err
	}
	given, err := c.ask(ctx, c.others())
	if err != nil {
		return err
	}
	given.log(log)
	if data {
		return c.returns(given)
	}
	for _, a := range given {
		if err := c.begins(a); err != nil {
			return err
		}
	}
	return nil
}

// begins judges the start of a member that has no data, by the answer of one of the others.
func (c *Config) begins(a answer) error {
	if errors.Is(a.err, errUnreachable) {
		return nil
	}
	if a.err != nil {
		return c.unclear(a)
	}
	entry, listed := a.lists(c.Self)
	switch {
	case !listed:
		return c.wouldSplit(a)
	case len(entry.ClientURLs) > 0:
		return c.lostData(a)
	}
	return nil
}

// returns judges the start of a member that has data. etcd goes by its data, so nothing can split; but a member that nobody
// lists any more cannot find the others, and waits for them without end. Certificates that do not fit are no reason to
// refuse: while a CA is replaced, members that run still show the former ones.
func (c *Config) returns(given answers) error {
	var stranger error
	for _, a := range given {
		if _, listed := a.lists(c.Self); listed {
			return nil
		}
		var wrongName x509.HostnameError
		switch {
		case a.err == nil:
			stranger = fmt.Errorf(`etcd does not start here: it has the data of a member, but the cluster does not list it under its URL.
  answers:  %s, and lists %s
  missing:  this instance, %s
  why:      members keep each other's URLs in their data. Either this one was removed from the cluster, or its URL has changed:
            the property member_domain, or the instance's id, as when a disk is attached to another instance.
  do now:   if member_domain was changed, set it back and deploy; the other members have not been touched.
            Else read %s`,
				a.from, list(a.members), c.self(), guide)
		case errors.As(a.err, &wrongName) && stranger == nil:
			stranger = c.renamed(a, wrongName)
		}
	}
	return stranger
}

func (c *Config) wouldSplit(a answer) error {
	return fmt.Errorf(`etcd does not start here: it would found a second cluster beside the one that runs.
  answers:  %s, and lists %s
  missing:  this instance, %s, which has no data yet (no *.wal in %s)
  why:      a new member takes its cluster from the manifest, a running one from its data. This one would not join: with other new
            instances it would make a cluster of their own, and API servers would show different objects.
  do now:   set the number of instances back to what it was and deploy; the running cluster goes on, and its data is unchanged.
            This release cannot add members to a running etcd yet; what to do instead: %s`,
		a.from, list(a.members), c.self(), c.WALDir, guide)
}

func (c *Config) lostData(a answer) error {
	return fmt.Errorf(`etcd does not start here: the cluster knows this member, but its data is gone.
  answers:  %s, and lists %s
  missing:  data of this instance, %s: there is no *.wal in %s, though the member has been part of the cluster
  why:      the persistent disk was lost, replaced or emptied. A member that comes back without what it has promised the others
            could break what they have agreed on, so etcd refuses it too ("has already been bootstrapped").
  do now:   if the disk still exists (bosh disks --orphaned), attach it: bosh attach-disk %s DISK_CID.
            Else the cluster goes on without this member as long as more than half of all are up. This release cannot replace a
            member yet; what to do instead: %s`,
		a.from, list(a.members), c.self(), c.WALDir, c.self().Name, guide)
}

func (c *Config) unclear(a answer) error {
	var wrongName x509.HostnameError
	if errors.As(a.err, &wrongName) {
		return c.renamed(a, wrongName)
	}
	return fmt.Errorf(`etcd does not start here: another member may be running, but it cannot be asked whether it knows this one.
  answers:  %s at %s, with: %w
  why:      this instance, %s, has no data yet (no *.wal in %s). If a cluster runs that does not know it, starting it would
            found a second one.
  do now:   if certificates are at fault, mend property tls.peer (all members need the same CA) and deploy; if that member has
            just been started, deploy again. Its log: /var/vcap/sys/log/etcd/etcd.stderr.log on %s`,
		a.from, a.from.Address, a.err, c.self(), c.WALDir, a.from.Name)
}

func (c *Config) renamed(a answer, wrongName x509.HostnameError) error {
	return fmt.Errorf(`etcd does not start here: a running member goes by another name than the one that it is configured to have.
  answers:  %s at %s, with a certificate for %q
  why:      members keep each other's URLs in their data and certificates cover these, so neither the property member_domain nor
            the names in tls.peer can change under a running cluster.
  do now:   set member_domain, and the link alias and certificates that go with it, back to what they were and deploy`,
		a.from, a.from.Address, wrongName.Certificate.DNSNames)
}

// CheckLeave refuses the deletion of this instance while the cluster counts on it. Where nobody answers, itself included, it
// passes: there is no cluster left to be harmed, or the operator has stopped it.
func (c *Config) CheckLeave(ctx context.Context, log *slog.Logger) error {
	given, err := c.ask(ctx, c.Instances)
	if err != nil {
		return err
	}
	given.log(log)
	for _, a := range given {
		entry, listed := a.lists(c.Self)
		switch {
		case !listed:
		case len(a.members) == 1:
			return c.lastMember()
		default:
			return c.stillMember(a, entry)
		}
	}
	return nil
}

func (c *Config) lastMember() error {
	return fmt.Errorf(`this instance must not be deleted: it is the only member of etcd, and all objects of the cluster would go with it.
  instance: %s
  why:      a new instance, in another AZ or group, begins with an empty disk and an empty cluster.
  do now:   undo what removes the instance from the manifest (instances, azs, name of the group) and deploy; nothing was stopped.
            Moving a cluster is not supported: %s. To delete it all the same, stop it first: bosh stop %s`,
		c.self(), guide, c.self().Name)
}

func (c *Config) stillMember(a answer, entry Member) error {
	return fmt.Errorf(`this instance must not be deleted: it is a member of etcd, and the cluster counts on it.
  answers:  %s, and lists %s
  why:      BOSH deletes VMs, but etcd goes on counting their members; when half of all are gone it stops, and so does the API.
  do now:   undo what removes the instance from the manifest (instances, azs, name of the group) and deploy; nothing was stopped.
            To really have fewer, take %s out of etcd first, one member at a time; how: %s`,
		a.from, list(a.members), entry.Name, guide)
}
