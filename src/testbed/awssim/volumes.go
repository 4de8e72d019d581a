package awssim

import (
	"net/netip"
	"slices"
	"time"

	"kubernetes-release/testbed/awssim/store"
)

func (s *Simulator) forgetTokens() {
	deadline := s.now().Add(-store.TokenLifetime)
	s.world.ClientTokens = slices.DeleteFunc(
		s.world.ClientTokens, func(t store.ClientToken) bool { return t.Used.Before(deadline) },
	)
}

// settleInterval is how often volumes are looked at while nobody calls, and mountsInterval how often mounts are.
const (
	settleInterval = 100 * time.Millisecond
	mountsInterval = 500 * time.Millisecond
)

// settleAlways settles volumes until the simulator is closed.
func (s *Simulator) settleAlways() {
	ticker := time.NewTicker(settleInterval)
	defer ticker.Stop()
	mounts := time.NewTicker(mountsInterval)
	defer mounts.Stop()
	for {
		settle := s.settle
		select {
		case <-s.closing:
			return
		case <-ticker.C:
		case <-mounts.C:
			settle = s.watchMounts
		}
		s.mu.Lock()
		settle()
		s.mu.Unlock()
	}
}

// settle ends all states of volumes and snapshots whose time has come. The caller must hold the lock.
func (s *Simulator) settle() {
	s.forgetTokens()
	now, changed := s.now(), false
	for i := range s.world.Snapshots {
		if snapshot := &s.world.Snapshots[i]; snapshot.State == store.SnapshotPending && !now.Before(snapshot.Due) {
			snapshot.State, changed = store.SnapshotCompleted, true
		}
	}
	for i := range s.world.Volumes {
		changed = s.settleVolume(&s.world.Volumes[i], now) || changed
	}
	before := len(s.world.Volumes)
	s.world.Volumes = slices.DeleteFunc(
		s.world.Volumes, func(v store.Volume) bool { return v.State == store.VolumeDeleting && !now.Before(v.Due) },
	)
	changed = s.recordOverlaps(nil) || changed
	if changed || len(s.world.Volumes) != before {
		if err := s.commit(); err != nil {
			s.log.Error("volumes", "error", err)
		}
	}
}

func (s *Simulator) settleVolume(v *store.Volume, now time.Time) (changed bool) {
	if v.State == store.VolumeCreating && !now.Before(v.Due) {
		v.State, changed = store.VolumeAvailable, true
		if v.Doomed {
			s.troubles.report(s.log, v.ID, s.options.Disks.Remove(v.ID))
			v.State = store.VolumeDeleting // for no time
		}
	}
	for i := range v.Attachments {
		changed = s.settleAttachment(v, &v.Attachments[i], now) || changed
	}
	v.Attachments = slices.DeleteFunc(v.Attachments, func(a store.Attachment) bool { return a.State == "" })
	if v.State == store.VolumeInUse && len(v.Attachments) == 0 {
		v.State, changed = store.VolumeAvailable, true
	}
	if m := v.Modification; m != nil && m.State != store.ModificationCompleted && !now.Before(m.Due) {
		changed = s.settleModification(v, m, now) || changed
	}
	return changed
}

// settleAttachment leaves the state of a detached one empty.
func (s *Simulator) settleAttachment(v *store.Volume, a *store.Attachment, now time.Time) (changed bool) {
	if a.State == store.AttachmentAttached || now.Before(a.Due) {
		return false
	}
	i := store.Find(s.world.Instances, a.Instance)
	var address netip.Addr
	if i != nil {
		address = i.Address
	}
	if a.State == store.AttachmentAttaching {
		err := s.options.Disks.Attach(v.ID, address)
		s.troubles.report(s.log, v.ID, err)
		if err != nil {
			return false // it stays attaching, as on EC2
		}
		a.State, a.Due = store.AttachmentAttached, time.Time{}
		return true
	}
	gone, err := s.options.Disks.Detach(v.ID, address, a.Force || i == nil || i.State == store.Terminated)
	s.troubles.report(s.log, v.ID, err)
	if err != nil || !gone {
		return false
	}
	a.State = ""
	return true
}

// settleModification makes the new size and performance effective with the state optimizing, as EC2 does.
func (s *Simulator) settleModification(v *store.Volume, m *store.Modification, now time.Time) (changed bool) {
	if m.State == store.ModificationOptimizing {
		m.State, m.End, m.Due = store.ModificationCompleted, now, time.Time{}
		return true
	}
	err := s.options.Disks.Resize(v.ID, int64(m.Target.Size)*store.Gib)
	s.troubles.report(s.log, v.ID, err)
	if err != nil {
		return false
	}
	m.State, m.Due = store.ModificationOptimizing, now.Add(time.Duration(s.world.Settings.Volumes.Optimize))
	v.SetShape(m.Target)
	return true
}
