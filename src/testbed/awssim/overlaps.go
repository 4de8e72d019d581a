package awssim

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Overlap records that several machines used a volume at the same time: it was attached to them, or they had it mounted. On EBS this
// happens to no volume, except of the types io1 and io2 with Multi-Attach, which the simulator does not have.
type Overlap struct {
	Time   time.Time `json:"time"`
	Volume string    `json:"volume"`
	// Users are the ids of instances, or the address of a machine that is no instance any more. Each set is recorded once.
	Users []string `json:"users"`
}

// Overlaps returns what was recorded since the world was created, oldest first.
func (s *Simulator) Overlaps() []Overlap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Overlap{}, s.world.Overlaps...)
}

// ForgetOverlaps clears the record.
func (s *Simulator) ForgetOverlaps() error {
	return s.Update(func(w *World) error { w.Overlaps = nil; return nil })
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
		users := s.world.users(v, mounts[v.ID])
		if len(users) < 2 || slices.ContainsFunc(s.world.Overlaps, func(o Overlap) bool { return o.Volume == v.ID && slices.Equal(o.Users, users) }) {
			continue
		}
		s.log.Error("a volume is used by several machines", "volume", v.ID, "users", strings.Join(users, " "))
		s.world.Overlaps, changed = append(s.world.Overlaps, Overlap{s.now(), v.ID, users}), true
	}
	return changed
}

// users returns the machines that a volume is attached to and those that have it mounted, sorted. A mount belongs to the attached instance
// with the machine's address, which can be terminated, before it belongs to another one.
func (w *World) users(v *Volume, mounts []netip.Addr) []string {
	var attached []*Instance
	var users []string
	for _, a := range v.Attachments {
		users = append(users, a.Instance)
		if i := find(w.Instances, a.Instance); i != nil {
			attached = append(attached, i)
		}
	}
	for i := range w.Instances {
		if w.Instances[i].State != Terminated {
			attached = append(attached, &w.Instances[i])
		}
	}
	for _, address := range mounts {
		user := address.String()
		if i := slices.IndexFunc(attached, func(i *Instance) bool { return i.Address == address }); i >= 0 {
			user = attached[i].ID
		}
		users = append(users, user)
	}
	slices.Sort(users)
	return slices.Compact(users)
}
