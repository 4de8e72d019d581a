package members

import (
	"crypto/x509"
	"errors"
	"fmt"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/poll"
)

// guide tells operators where to find more.
const guide = `docs/operations.md of the release, "More or fewer control VMs"`

// checkReturning checks the start of a member that has data, and returns its entry if another member lists it. etcd
// uses its data, so the cluster cannot split. But a member that no other member lists cannot find the others, and waits
// for them forever. Certificates that cannot be verified are no reason to fail: while a CA is rotated, running members
// still use the previous certificates.
func (c *Config) checkReturning(given answers) (Member, error) {
	var stranger error
	for _, a := range given {
		if entry, listed := a.lists(c.Self); listed {
			return entry, nil
		}
		var wrongName x509.HostnameError
		switch {
		case a.err == nil:
			stranger = fmt.Errorf(`etcd was not started: this instance has the data of a member, but `+
				`the cluster does not list it under its URL.
  answer:   %s lists %s
  missing:  this instance, %s
  why:      members store each other's URLs in their data. Either this member was removed from the cluster by hand, or
            its URL has changed: through the property member_domain, or through the instance ID if the disk belonged to
            another instance.
  do now:   if member_domain was changed, set it back and deploy; the other members have not been changed.
            If the data is not needed, move %s away and deploy: the instance then joins the cluster. See %s`,
				a.from,
				list(a.members),
				c.self(),
				c.DataDir,
				guide,
			)
		case errors.As(a.err, &wrongName) && stranger == nil:
			stranger = c.renamed(a, wrongName)
		}
	}
	return Member{}, stranger
}

// oneCluster fails if members of different clusters have answered.
func (c *Config) oneCluster(given answers) error {
	for _, a := range given[1:] {
		if a.cluster != given[0].cluster {
			return fmt.Errorf(`etcd was not started: the instances of this deployment run two different clusters.
  answer:   %s lists %s
  answer:   %s lists %s
  why:      this instance, %s, has no data (no *.wal in %s) or must not use it (mark %s),
            and cannot know which of them to join.
  do now:   stop the instance whose cluster is not the right one (bosh stop), move its data away, and deploy. After a
            restore, the right one is that of the bootstrap instance; see %s`,
				given[0].from, list(given[0].members), a.from, list(a.members), c.self(), c.WALDir, c.LeftFile, guide)
		}
	}
	return nil
}

func (c *Config) hasLeft() error {
	return fmt.Errorf(`etcd was not started: this member has left its cluster, and must not use its data again.
  instance: %s
  why:      the instance was about to be deleted, or a snapshot is restored on another one (mark %s). Another member
            must answer before the data is discarded, and this instance joins its cluster.
  do now:   start etcd on the other instances, the bootstrap instance first, then bosh restart %s, or deploy;
            see %s`,
		c.self(), c.LeftFile, c.self().Name, guide)
}

func (c *Config) nobodyAnswers() error {
	return fmt.Errorf(`no other instance runs a member of etcd yet.
  instance: %s, which has no data (no *.wal in %s)
  why:      only the bootstrap instance of the group creates a cluster, so that there are never two; the others join it.
  do now:   start etcd on the other instances (bosh instances --ps), then deploy again. If the data of all members is
            lost, restore a snapshot; see %s`,
		c.self(), c.WALDir, guide)
}

func (c *Config) noQuorum(given answers, problem error) error {
	var running []string
	for _, a := range given {
		running = append(running, a.from.Name)
	}
	return fmt.Errorf(`etcd has no quorum, so its members cannot be changed.
  running:  %v
  instance: %s
  do now:   start the members that are down (bosh instances --ps, bosh cloud-check), then deploy again.
            If more than half of the members are lost, restore a snapshot; see %s
  answers:  %w`,
		running, c.self(), guide, problem)
}

// refused describes what etcd refuses, and ends the repetition unless etcd may accept it later.
func (c *Config) refused(via *api, what string, members []Member, err error) error {
	wrapped := fmt.Errorf(`etcd refuses to %s: %w
  instance: %s
  asked:    %s, which lists %s
  why:      a change must leave more than half of the members running ("unhealthy cluster", "not enough started
            members"), and only one new member at a time gets its copy of the data ("too many learner members").
  do now:   start the members that are down (bosh instances --ps), then deploy again. If their VMs or disks are lost,
            set the number of instances back and deploy, which replaces them, before you change it; see %s`,
		what, err, c.self(), via.Name, list(members), guide)
	if temporary(err) {
		return wrapped
	}
	return poll.Permanent(wrapped)
}

// lostData names bosh stop: the Director attaches disks to stopped instances only (validate_instance in
// src/bosh-director/lib/bosh/director/jobs/attach_disk.rb).
func (c *Config) lostData(a answer) error {
	return fmt.Errorf(`etcd was not started: the cluster lists this member, but its data is gone.
  answer:   %s lists %s
  missing:  the data of this instance, %s: there is no *.wal in %s, although the member has joined the cluster before
  why:      the persistent disk was lost, replaced, emptied, or is not mounted. A member that returns without its data
            could violate what it has agreed on with the others.
  do now:   if the disk that this member used last still exists (bosh disks --orphaned; no older one), attach it:
            bosh stop %[5]s, bosh attach-disk %[5]s DISK_CID, bosh start %[5]s.
            Otherwise choose "Delete disk reference" for it in bosh cloud-check if that lists it, and deploy: the
            member's entry is replaced, and it gets a new copy of the data from the others. See %[6]s`,
		a.from, list(a.members), c.self(), c.WALDir, c.self().Name, guide)
}

func (c *Config) notAdded(a answer) error {
	return fmt.Errorf(`etcd was not started: the running cluster does not list this instance, which has no data.
  answer:   %s lists %s
  missing:  this instance, %s (no *.wal in %s)
  why:      the pre-start script of a deploy adds members, but not a start of the process: it would create a second
            cluster.
  do now:   deploy; see %s`,
		a.from, list(a.members), c.self(), c.WALDir, guide)
}

func (c *Config) unclear(a answer) error {
	var wrongName x509.HostnameError
	if errors.As(a.err, &wrongName) {
		return c.renamed(a, wrongName)
	}
	return fmt.Errorf(`etcd was not started: another member may be running, but its list of members could not be read.
  answer:   %s at %s: %w
  why:      this instance, %s, has no data yet (no *.wal in %s). If a cluster runs that does not list it, it would
            create a second one.
  do now:   if a certificate is the reason, fix the property tls.peer (all members require the same CA) and deploy; if
            that member has just been started, deploy again. Its log is %s on %s`,
		a.from, a.from.Address, a.err, c.self(), c.WALDir, bosh.DefaultRoot.Log("etcd", "etcd.stderr.log"), a.from.Name)
}

func (c *Config) renamed(a answer, wrongName x509.HostnameError) error {
	return fmt.Errorf(`etcd was not started: a running member uses another name than the configured one.
  answer:   %s at %s, with a certificate for %q
  why:      members store each other's URLs in their data, and their certificates are valid for these names only.
            Therefore neither the property member_domain nor the names in tls.peer can change while a cluster exists.
  do now:   set member_domain, its link alias and its certificates back to the previous values and deploy`,
		a.from, a.from.Address, wrongName.Certificate.DNSNames)
}

func (c *Config) lastMember() error {
	return fmt.Errorf(
		`this instance must not be deleted: it is the only member of etcd, and all objects of the cluster would be lost.
  instance: %s
  why:      BOSH deletes an instance before it starts another one in its place, in another AZ or instance group; the new
            one would start with an empty cluster.
  do now:   undo the change that removes the instance (instances, azs, name of the instance group) and deploy;
            nothing was stopped. To move it, deploy first with more instances, so that others have a copy of the data,
            and remove this one in the next deploy; see %s.
            To delete the instance with all objects, stop it first: bosh stop %s`,
		c.self(),
		guide,
		c.self().Name,
	)
}

func (c *Config) silent(own answer) error {
	return fmt.Errorf(
		`this instance must not be deleted: etcd runs on it, but does not say whether it is the only member.
  answer:   %s at %s: %w
  why:      no other instance lists the members either. If there is none, all objects of the cluster would be lost.
  do now:   undo the change that removes the instance (instances, azs, name of the instance group) and deploy;
            nothing was stopped. If a certificate has expired, the same deploy can replace it (property tls.peer).
            The log of etcd is %s on %s.
            To delete the instance with what it has, stop it first: bosh stop %s`,
		own.from,
		own.from.Address,
		own.err,
		bosh.DefaultRoot.Log("etcd", "etcd.stderr.log"),
		own.from.Name,
		own.from.Name,
	)
}
