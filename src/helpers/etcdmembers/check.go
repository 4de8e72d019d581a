package etcdmembers

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	"kubernetes-release/internal/bosh"
)

// guide tells operators where to find more.
const guide = `docs/operations.md of the release, "More or fewer control VMs"`

// CheckStart fails if starting etcd on this instance would split the cluster, or if etcd would fail without naming the reason.
// It passes if no other instance answers, as on the first start of a new cluster.
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
		return c.checkReturning(given)
	}
	for _, a := range given {
		if err := c.checkNew(a); err != nil {
			return err
		}
	}
	return nil
}

// checkNew checks the start of a member without data against the answer of one other member.
func (c *Config) checkNew(a answer) error {
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

// checkReturning checks the start of a member that has data. etcd uses its data, so the cluster cannot split. But a member that
// no other member lists cannot find the others, and waits for them forever. Certificates that cannot be verified are no reason
// to fail: while a CA is rotated, running members still use the previous certificates.
func (c *Config) checkReturning(given answers) error {
	var stranger error
	for _, a := range given {
		if _, listed := a.lists(c.Self); listed {
			return nil
		}
		var wrongName x509.HostnameError
		switch {
		case a.err == nil:
			stranger = fmt.Errorf(`etcd was not started: this instance has the data of a member, but the cluster does not list it under its URL.
  answer:   %s lists %s
  missing:  this instance, %s
  why:      members store each other's URLs in their data. Either this member was removed from the cluster, or its URL has
            changed: through the property member_domain, or through the instance ID if the disk belonged to another instance.
  do now:   if member_domain was changed, set it back and deploy; the other members have not been changed.
            Otherwise see %s`,
				a.from, list(a.members), c.self(), guide)
		case errors.As(a.err, &wrongName) && stranger == nil:
			stranger = c.renamed(a, wrongName)
		}
	}
	return stranger
}

func (c *Config) wouldSplit(a answer) error {
	return fmt.Errorf(`etcd was not started: it would create a second cluster next to the running one.
  answer:   %s lists %s
  missing:  this instance, %s, which has no data yet (no *.wal in %s)
  why:      a new member takes the list of members from the manifest, a running member from its data. This instance would not
            join: together with other new instances it would form another cluster, and API servers would show different objects.
  do now:   set the number of instances back to the previous value and deploy; the running cluster and its data are unchanged.
            This release cannot add members to a running etcd cluster yet; for alternatives see %s`,
		a.from, list(a.members), c.self(), c.WALDir, guide)
}

func (c *Config) lostData(a answer) error {
	return fmt.Errorf(`etcd was not started: the cluster lists this member, but its data is gone.
  answer:   %s lists %s
  missing:  the data of this instance, %s: there is no *.wal in %s, although the member has joined the cluster before
  why:      the persistent disk was lost, replaced or emptied. A member that returns without its data could violate what it
            has agreed on with the others, so etcd refuses to start too ("has already been bootstrapped").
  do now:   if the disk still exists (bosh disks --orphaned), attach it: bosh attach-disk %s DISK_CID.
            Otherwise the cluster keeps running without this member while more than half of all members are up. This release
            cannot replace a member yet; for alternatives see %s`,
		a.from, list(a.members), c.self(), c.WALDir, c.self().Name, guide)
}

func (c *Config) unclear(a answer) error {
	var wrongName x509.HostnameError
	if errors.As(a.err, &wrongName) {
		return c.renamed(a, wrongName)
	}
	return fmt.Errorf(`etcd was not started: another member may be running, but its list of members could not be read.
  answer:   %s at %s: %w
  why:      this instance, %s, has no data yet (no *.wal in %s). If a cluster runs that does not list it, it would create a
            second one.
  do now:   if a certificate is the reason, fix the property tls.peer (all members require the same CA) and deploy; if that
            member has just been started, deploy again. Its log is %s on %s`,
		a.from, a.from.Address, a.err, c.self(), c.WALDir, bosh.DefaultRoot.Log("etcd", "etcd.stderr.log"), a.from.Name)
}

func (c *Config) renamed(a answer, wrongName x509.HostnameError) error {
	return fmt.Errorf(`etcd was not started: a running member uses another name than the configured one.
  answer:   %s at %s, with a certificate for %q
  why:      members store each other's URLs in their data, and their certificates are valid for these names only. Therefore
            neither the property member_domain nor the names in tls.peer can change while a cluster exists.
  do now:   set member_domain, its link alias and its certificates back to the previous values and deploy`,
		a.from, a.from.Address, wrongName.Certificate.DNSNames)
}

// CheckLeave fails if this instance is about to be deleted while it is a member of the cluster. It passes if no instance
// answers, including this one: either the cluster is gone, or the operator has stopped it.
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
	return fmt.Errorf(`this instance must not be deleted: it is the only member of etcd, and all objects of the cluster would be lost.
  instance: %s
  why:      a new instance, in another AZ or instance group, starts with an empty disk and an empty cluster.
  do now:   undo the change that removes the instance (instances, azs, name of the instance group) and deploy;
            nothing was stopped. Moving a cluster is not supported, see %s.
            To delete the instance anyway, stop it first: bosh stop %s`,
		c.self(), guide, c.self().Name)
}

func (c *Config) stillMember(a answer, entry Member) error {
	return fmt.Errorf(`this instance must not be deleted: it is a member of the etcd cluster.
  answer:   %s lists %s
  why:      etcd still counts a member whose VM is deleted. When half of all members are gone, etcd stops, and so does the API.
  do now:   undo the change that removes the instance (instances, azs, name of the instance group) and deploy;
            nothing was stopped. To reduce the number of members, remove %s from etcd first, one member at a time; see %s`,
		a.from, list(a.members), entry.Name, guide)
}
