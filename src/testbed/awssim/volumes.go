package awssim

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Disks are the simulated volumes on the machine that the simulation runs on. The simulator calls them with its lock held.
type Disks interface {
	// Create creates a volume with the content of a snapshot, or empty if snapshot is "".
	Create(volume string, bytes int64, snapshot string) error
	// Resize grows a volume, attached or not.
	Resize(volume string, bytes int64) error
	// Snapshot copies a volume.
	Snapshot(volume, snapshot string) error
	// Remove removes a volume or a snapshot, if it exists.
	Remove(id string) error
	// Attach makes a volume a device of the machine with the address.
	Attach(volume string, machine netip.Addr) error
	// Detach takes a volume away from the machine, and reports false while the machine uses it and force is not set.
	Detach(volume string, machine netip.Addr, force bool) (gone bool, err error)
	// Mounts returns the machines that have a volume mounted, by volume. Mounts of a device that was pulled do not count.
	Mounts() (map[string][]netip.Addr, error)
}

// noDisks are volumes that exist only in the APIs.
type noDisks struct{}

func (noDisks) Create(string, int64, string) error            { return nil }
func (noDisks) Resize(string, int64) error                    { return nil }
func (noDisks) Snapshot(string, string) error                 { return nil }
func (noDisks) Remove(string) error                           { return nil }
func (noDisks) Attach(string, netip.Addr) error               { return nil }
func (noDisks) Detach(string, netip.Addr, bool) (bool, error) { return true, nil }
func (noDisks) Mounts() (map[string][]netip.Addr, error)      { return nil, nil }

// States of volumes, attachments, modifications and snapshots, as EC2 names them.
const (
	volumeCreating  = "creating"
	volumeAvailable = "available"
	volumeInUse     = "in-use"
	volumeDeleting  = "deleting"

	attachmentAttaching = "attaching"
	attachmentAttached  = "attached"
	attachmentDetaching = "detaching"

	modificationModifying  = "modifying"
	modificationOptimizing = "optimizing"
	modificationCompleted  = "completed"

	snapshotPending   = "pending"
	snapshotCompleted = "completed"
)

// Volume is an EBS volume.
type Volume struct {
	ID               string    `json:"id"`
	AvailabilityZone string    `json:"availability_zone"`
	Type             string    `json:"type"`
	Size             int       `json:"size"` // GiB
	IOPS             int       `json:"iops,omitempty"`
	Throughput       int       `json:"throughput,omitempty"` // MiB/s
	Encrypted        bool      `json:"encrypted,omitempty"`
	KMSKey           string    `json:"kms_key,omitempty"` // ARN
	Snapshot         string    `json:"snapshot,omitempty"`
	MultiAttach      bool      `json:"multi_attach,omitempty"`
	Created          time.Time `json:"created,omitzero"`
	Tags             Tags      `json:"tags,omitempty"`

	State string `json:"state"`
	// Doomed is true for a volume that disappears instead of becoming available.
	Doomed bool `json:"doomed,omitempty"`
	// Due is when the state creating or deleting ends.
	Due          time.Time     `json:"due,omitzero"`
	Attachments  []Attachment  `json:"attachments,omitempty"`
	Modification *Modification `json:"modification,omitempty"`
}

// Attachment is a volume's attachment to an instance.
type Attachment struct {
	Instance string    `json:"instance"`
	Device   string    `json:"device"`
	State    string    `json:"state"`
	Time     time.Time `json:"time"`         // of the call of AttachVolume
	Due      time.Time `json:"due,omitzero"` // when the state attaching or detaching ends, at the earliest
	Force    bool      `json:"force,omitempty"`
}

// Modification is a volume's latest change of size, type or performance.
type Modification struct {
	State    string      `json:"state"`
	Start    time.Time   `json:"start"`
	End      time.Time   `json:"end,omitzero"`
	Due      time.Time   `json:"due,omitzero"` // when the state ends
	Original VolumeShape `json:"original"`
	Target   VolumeShape `json:"target"`
}

// VolumeShape is what ModifyVolume changes.
type VolumeShape struct {
	Type        string `json:"type"`
	Size        int    `json:"size"`
	IOPS        int    `json:"iops,omitempty"`
	Throughput  int    `json:"throughput,omitempty"`
	MultiAttach bool   `json:"multi_attach,omitempty"`
}

// Snapshot is an EBS snapshot.
type Snapshot struct {
	ID          string    `json:"id"`
	Volume      string    `json:"volume"`
	Size        int       `json:"size"` // GiB, of the volume
	Description string    `json:"description,omitempty"`
	Encrypted   bool      `json:"encrypted,omitempty"`
	KMSKey      string    `json:"kms_key,omitempty"`
	State       string    `json:"state"`
	Started     time.Time `json:"started"`
	Due         time.Time `json:"due,omitzero"`
	Tags        Tags      `json:"tags,omitempty"`
}

func (v Volume) key() string   { return v.ID }
func (s Snapshot) key() string { return s.ID }

// VolumeDelays are how long volumes stay in their passing states. EC2 is rarely faster than a second and can take minutes.
type VolumeDelays struct {
	Create   Duration `json:"create,omitzero"`   // default 500ms
	Attach   Duration `json:"attach,omitzero"`   // default 1s
	Detach   Duration `json:"detach,omitzero"`   // default 1s; longer while the instance uses the device
	Delete   Duration `json:"delete,omitzero"`   // default 500ms
	Modify   Duration `json:"modify,omitzero"`   // default 1s
	Optimize Duration `json:"optimize,omitzero"` // default 2s
	Snapshot Duration `json:"snapshot,omitzero"` // default 1s
	// Modifications and Snapshots are the minimum times between two calls for the same volume: default 6h and 15s.
	Modifications Duration `json:"modifications,omitzero"`
	Snapshots     Duration `json:"snapshots,omitzero"`
}

// volumeDelay is a delay with its default.
type volumeDelay struct {
	name  string
	field *Duration
	value time.Duration
}

func (d *VolumeDelays) list() []volumeDelay {
	return []volumeDelay{
		{"create", &d.Create, 500 * time.Millisecond}, {"attach", &d.Attach, time.Second}, {"detach", &d.Detach, time.Second},
		{"delete", &d.Delete, 500 * time.Millisecond}, {"modify", &d.Modify, time.Second}, {"optimize", &d.Optimize, 2 * time.Second},
		{"snapshot", &d.Snapshot, time.Second}, {"modifications", &d.Modifications, 6 * time.Hour}, {"snapshots", &d.Snapshots, 15 * time.Second},
	}
}

func (d *VolumeDelays) setDefaults() {
	for _, delay := range d.list() {
		*delay.field = cmp.Or(*delay.field, Duration(delay.value))
	}
}

// validateVolumes checks what a world file or the admin API can get wrong.
func (w *World) validateVolumes(v *validation) {
	for _, delay := range w.Settings.Volumes.list() {
		v.check(*delay.field > 0, "settings: volumes: %s %v; must be positive, since EC2 always takes some time", delay.name, time.Duration(*delay.field))
	}
	for _, volume := range w.Volumes {
		v.id("volumes", volume.ID, "vol-")
		v.check(volume.Size > 0, "volumes: %s: size %d; must be at least 1 GiB", volume.ID, volume.Size)
	}
	for _, s := range w.Snapshots {
		v.id("snapshots", s.ID, "snap-")
	}
}

// gib is a GiB in bytes.
const gib = 1 << 30

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
		if snapshot := &s.world.Snapshots[i]; snapshot.State == snapshotPending && !now.Before(snapshot.Due) {
			snapshot.State, changed = snapshotCompleted, true
		}
	}
	for i := range s.world.Volumes {
		changed = s.settleVolume(&s.world.Volumes[i], now) || changed
	}
	before := len(s.world.Volumes)
	s.world.Volumes = slices.DeleteFunc(s.world.Volumes, func(v Volume) bool { return v.State == volumeDeleting && !now.Before(v.Due) })
	changed = s.recordOverlaps(nil) || changed
	if changed || len(s.world.Volumes) != before {
		if err := s.commit(); err != nil {
			s.log.Error("volumes", "error", err)
		}
	}
}

func (s *Simulator) settleVolume(v *Volume, now time.Time) (changed bool) {
	if v.State == volumeCreating && !now.Before(v.Due) {
		v.State, changed = volumeAvailable, true
		if v.Doomed {
			s.troubles.report(s.log, v.ID, s.options.Disks.Remove(v.ID))
			v.State = volumeDeleting // for no time
		}
	}
	for i := range v.Attachments {
		changed = s.settleAttachment(v, &v.Attachments[i], now) || changed
	}
	v.Attachments = slices.DeleteFunc(v.Attachments, func(a Attachment) bool { return a.State == "" })
	if v.State == volumeInUse && len(v.Attachments) == 0 {
		v.State, changed = volumeAvailable, true
	}
	if m := v.Modification; m != nil && m.State != modificationCompleted && !now.Before(m.Due) {
		changed = s.settleModification(v, m, now) || changed
	}
	return changed
}

// settleAttachment leaves the state of a detached one empty.
func (s *Simulator) settleAttachment(v *Volume, a *Attachment, now time.Time) (changed bool) {
	if a.State == attachmentAttached || now.Before(a.Due) {
		return false
	}
	i := find(s.world.Instances, a.Instance)
	var address netip.Addr
	if i != nil {
		address = i.Address
	}
	if a.State == attachmentAttaching {
		err := s.options.Disks.Attach(v.ID, address)
		s.troubles.report(s.log, v.ID, err)
		if err != nil {
			return false // it stays attaching, as on EC2
		}
		a.State, a.Due = attachmentAttached, time.Time{}
		return true
	}
	gone, err := s.options.Disks.Detach(v.ID, address, a.Force || i == nil || i.State == Terminated)
	s.troubles.report(s.log, v.ID, err)
	if err != nil || !gone {
		return false
	}
	a.State = ""
	return true
}

// settleModification makes the new size and performance effective with the state optimizing, as EC2 does.
func (s *Simulator) settleModification(v *Volume, m *Modification, now time.Time) (changed bool) {
	if m.State == modificationOptimizing {
		m.State, m.End, m.Due = modificationCompleted, now, time.Time{}
		return true
	}
	err := s.options.Disks.Resize(v.ID, int64(m.Target.Size)*gib)
	s.troubles.report(s.log, v.ID, err)
	if err != nil {
		return false
	}
	m.State, m.Due = modificationOptimizing, now.Add(time.Duration(s.world.Settings.Volumes.Optimize))
	v.setShape(m.Target)
	return true
}

func (v *Volume) shape() VolumeShape {
	return VolumeShape{Type: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput, MultiAttach: v.MultiAttach}
}

func (v *Volume) setShape(s VolumeShape) {
	v.Type, v.Size, v.IOPS, v.Throughput, v.MultiAttach = s.Type, s.Size, s.IOPS, s.Throughput, s.MultiAttach
}

// releaseVolumes detaches the volumes of a terminated instance.
func (c *call) releaseVolumes(instance string) {
	for i := range c.Volumes {
		v := &c.Volumes[i]
		for k := range v.Attachments {
			if a := &v.Attachments[k]; a.Instance == instance {
				a.State, a.Force, a.Due = attachmentDetaching, true, c.now
			}
		}
	}
}
