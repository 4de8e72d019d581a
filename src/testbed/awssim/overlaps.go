package awssim

import (
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/store"
)

// Overlaps returns what was recorded since the world was created, oldest first.
func (s *Simulator) Overlaps() []store.Overlap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]store.Overlap{}, s.world.Overlaps...)
}

// ForgetOverlaps clears the record.
func (s *Simulator) ForgetOverlaps() error {
	return s.Update(func(w *store.World) error { w.Overlaps = nil; return nil })
}

// watchMounts records overlaps with what is mounted now. The caller must hold the lock.
func (s *Simulator) watchMounts() {
	mounts, err := s.options.Disks.Mounts()
	if err == nil && s.recordOverlaps(mounts) {
		err = s.commit()
	}
	s.troubles.report(s.log, "mounts", err)
}

// recordOverlaps records volumes that are attached to, or mounted by, several machines. The caller must hold the lock.
func (s *Simulator) recordOverlaps(mounts map[string][]netip.Addr) (changed bool) {
	for i := range s.world.Volumes {
		v := &s.world.Volumes[i]
		users := s.world.Users(v, mounts[v.ID])
		if len(users) < 2 ||
			slices.ContainsFunc(
				s.world.Overlaps,
				func(o store.Overlap) bool { return o.Volume == v.ID && slices.Equal(o.Users, users) },
			) {
			continue
		}
		s.log.Error("a volume is used by several machines", "volume", v.ID, "users", strings.Join(users, " "))
		s.world.Overlaps, changed = append(
			s.world.Overlaps, store.Overlap{Time: s.now(), Volume: v.ID, Users: users},
		), true
	}
	return changed
}
