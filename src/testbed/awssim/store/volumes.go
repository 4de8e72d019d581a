package store

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// ClientToken is a token of a successful CreateVolume.
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
	// Mounts returns the machines that have a volume mounted, by volume. Mounts of a device that was pulled do not
	// count.
	Mounts() (map[string][]netip.Addr, error)
}

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

// VolumeDelays are how long volumes stay in their passing states. EC2 is rarely faster than a second and can take
// minutes.
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
		{
			"create",
			&d.Create,
			500 * time.Millisecond,
		},
		{"attach", &d.Attach, time.Second},
		{"detach", &d.Detach, time.Second},
		{
			"delete",
			&d.Delete,
			500 * time.Millisecond,
		},
		{"modify", &d.Modify, time.Second},
		{"optimize", &d.Optimize, 2 * time.Second},
		{
			"snapshot",
			&d.Snapshot,
			time.Second,
		},
		{"modifications", &d.Modifications, 6 * time.Hour},
		{"snapshots", &d.Snapshots, 15 * time.Second},
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
		v.check(
			*delay.field > 0, "settings: volumes: %s %v; must be positive, since EC2 always takes some time",
			delay.name, time.Duration(*delay.field),
		)
	}
	for _, volume := range w.Volumes {
		v.id("volumes", volume.ID, "vol-")
		v.check(volume.Size > 0, "volumes: %s: size %d; must be at least 1 GiB", volume.ID, volume.Size)
	}
	for _, s := range w.Snapshots {
		v.id("snapshots", s.ID, "snap-")
	}
}

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

// Users returns the machines that a volume is attached to and those that have it mounted, sorted. A mount belongs to
// the attached instance with the machine's address, which can be terminated, before it belongs to another one.
func (w *World) Users(v *Volume, mounts []netip.Addr) []string {
	var attached []*Instance
	var users []string
	for _, a := range v.Attachments {
		users = append(users, a.Instance)
		if i := Find(w.Instances, a.Instance); i != nil {
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
