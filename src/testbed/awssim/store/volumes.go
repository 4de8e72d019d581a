package store

import (
	"net/netip"
	"time"
)

// ClientToken is a token of a successful CreateVolume or CopyVolumes.
type ClientToken struct {
	Token   string    `json:"token"`
	Request string    `json:"request"` // digest of the parameters
	Volume  string    `json:"volume"`
	Used    time.Time `json:"used"`
}

// TokenLifetime is how long EC2 was measured to remember a token (CreateDisk in pkg/cloud/cloud.go of the EBS CSI
// driver).
const TokenLifetime = 12 * time.Hour

// Disks are the simulated volumes on the machine that the simulation runs on. The simulator calls them with its lock
// held.
type Disks interface {
	// Create creates a volume with the content of a snapshot or another volume, or empty if source is "".
	Create(volume string, bytes int64, source string) error
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
	// Mounts returns the machines that have a volume mounted, by volume. Mounts of a device that was pulled do not
	// count.
	Mounts() (map[string][]netip.Addr, error)
}

// NoDisks are volumes that exist only in the APIs.
type NoDisks struct{}

// Create implements Disks.
func (NoDisks) Create(string, int64, string) error { return nil }

// Resize implements Disks.
func (NoDisks) Resize(string, int64) error { return nil }

// Snapshot implements Disks.
func (NoDisks) Snapshot(string, string) error { return nil }

// Remove implements Disks.
func (NoDisks) Remove(string) error { return nil }

// Attach implements Disks.
func (NoDisks) Attach(string, netip.Addr) error { return nil }

// Detach implements Disks.
func (NoDisks) Detach(string, netip.Addr, bool) (bool, error) { return true, nil }

// Mounts implements Disks.
func (NoDisks) Mounts() (map[string][]netip.Addr, error) { return nil, nil }

// VolumeState is the state of a volume, as EC2 names it.
type VolumeState string

// AttachmentState is the state of a volume's attachment, as EC2 names it.
type AttachmentState string

// ModificationState is the state of a volume's change, as EC2 names it.
type ModificationState string

// SnapshotState is the state of a snapshot, as EC2 names it.
type SnapshotState string

// The states that the simulator has; EC2 has more for what fails.
const (
	VolumeCreating  VolumeState = "creating"
	VolumeAvailable VolumeState = "available"
	VolumeInUse     VolumeState = "in-use"
	VolumeDeleting  VolumeState = "deleting"

	AttachmentAttaching AttachmentState = "attaching"
	AttachmentAttached  AttachmentState = "attached"
	AttachmentDetaching AttachmentState = "detaching"

	ModificationModifying  ModificationState = "modifying"
	ModificationOptimizing ModificationState = "optimizing"
	ModificationCompleted  ModificationState = "completed"

	SnapshotPending   SnapshotState = "pending"
	SnapshotCompleted SnapshotState = "completed"
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
	Source           string    `json:"source,omitempty"` // the volume of which it is a copy
	MultiAttach      bool      `json:"multi_attach,omitempty"`
	Created          time.Time `json:"created,omitzero"`
	Tags             Tags      `json:"tags,omitempty"`

	State VolumeState `json:"state"`
	// Doomed is true for a volume that disappears instead of becoming available.
	Doomed bool `json:"doomed,omitempty"`
	// Due is when the state creating or deleting ends.
	Due          time.Time     `json:"due,omitzero"`
	Attachments  []Attachment  `json:"attachments,omitempty"`
	Modification *Modification `json:"modification,omitempty"`
}

// Attachment is a volume's attachment to an instance.
type Attachment struct {
	Instance string          `json:"instance"`
	Device   string          `json:"device"`
	State    AttachmentState `json:"state"`
	Time     time.Time       `json:"time"`         // of the call of AttachVolume
	Due      time.Time       `json:"due,omitzero"` // when the state attaching or detaching ends, at the earliest
	Force    bool            `json:"force,omitempty"`
}

// Modification is a volume's latest change of size, type or performance.
type Modification struct {
	State    ModificationState `json:"state"`
	Start    time.Time         `json:"start"`
	End      time.Time         `json:"end,omitzero"`
	Due      time.Time         `json:"due,omitzero"` // when the state ends
	Original VolumeShape       `json:"original"`
	Target   VolumeShape       `json:"target"`
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
	ID          string        `json:"id"`
	Volume      string        `json:"volume"`
	Size        int           `json:"size"` // GiB, of the volume
	Description string        `json:"description,omitempty"`
	Encrypted   bool          `json:"encrypted,omitempty"`
	KMSKey      string        `json:"kms_key,omitempty"`
	State       SnapshotState `json:"state"`
	Started     time.Time     `json:"started"`
	Due         time.Time     `json:"due,omitzero"`
	Tags        Tags          `json:"tags,omitempty"`
}

func (v Volume) key() string { return v.ID }

func (s Snapshot) key() string { return s.ID }

// Gib is a GiB in bytes.
const Gib = 1 << 30

// Shape is the size and performance that the volume has now.
func (v *Volume) Shape() VolumeShape {
	return VolumeShape{Type: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput, MultiAttach: v.MultiAttach}
}

// SetShape changes them.
func (v *Volume) SetShape(s VolumeShape) {
	v.Type, v.Size, v.IOPS, v.Throughput, v.MultiAttach = s.Type, s.Size, s.IOPS, s.Throughput, s.MultiAttach
}

// Overlap records that several machines used a volume at the same time: it was attached to them, or they had it
// mounted. On EBS this happens to no volume, except of the types io1 and io2 with Multi-Attach, which the simulator
// does not have.
type Overlap struct {
	Time   time.Time `json:"time"`
	Volume string    `json:"volume"`
	// Users are the ids of instances, or the address of a machine that is no instance any more. Each set is recorded
	// once.
	Users []string `json:"users"`
}
