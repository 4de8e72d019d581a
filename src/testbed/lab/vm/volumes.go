package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"kubernetes-release/internal/atomicfile"
)

// Volume is a block device of the host that a VM sees as a volume of EBS on an NVMe bus, or as one of Cinder, a disk of
// virtio.
type Volume struct {
	ID    string `json:"id"`    // vol-…, or Cinder's UUID
	Minor uint32 `json:"minor"` // of the loop device
	// Number is N in /dev/nvmeNn1, or the letter of /dev/vdX, where 1 is b.
	Number int `json:"number"`
}

// loopMajor is the major device number of loop devices (Linux' Documentation/admin-guide/devices.txt).
const loopMajor = 7

// firstVolume is the number of the first attached volume: 0 is the root volume.
const firstVolume = 1

// ebsLink and virtioLink begin the names that udev gives to volumes (rules.d/60-persistent-storage.rules of systemd).
// The serial number follows: of EBS the volume's id without its dash; of Cinder what virtio_blk has room for, the first
// 20 bytes of its id (VIRTIO_BLK_ID_BYTES in Linux' include/uapi/linux/virtio_blk.h).
const (
	ebsLink      = "nvme-Amazon_Elastic_Block_Store_"
	virtioLink   = "virtio-"
	virtioSerial = 20
)

func volumesFile(s Spec) string { return filepath.Join(s.dir(), "volumes.json") }

// volumes reads what is attached to the VM, running or not.
func (s Spec) volumes() ([]Volume, error) {
	content, err := os.ReadFile(volumesFile(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []Volume
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("VM %s: reading its volumes: %w", s.Name, err)
	}
	return list, nil
}

func (s Spec) saveVolumes(list []Volume) error {
	content, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return atomicfile.Write(volumesFile(s), append(content, '\n'), 0o600)
}

// AttachVolume gives the VM the loop device with a minor number as a volume. A VM that does not run has it when it
// boots. It can be repeated. Only one process may attach and detach volumes.
func (v *VM) AttachVolume(id string, minor uint32) error {
	list, err := v.Spec.volumes()
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(old Volume) bool { return old.ID == id })
	number := firstVolume
	for slices.ContainsFunc(list, func(other Volume) bool { return other.Number == number }) {
		number++
	}
	if err := v.Spec.saveVolumes(append(list, Volume{ID: id, Minor: minor, Number: number})); err != nil {
		return err
	}
	return v.syncVolumes()
}

// DetachVolume takes a volume's names away from the VM.
func (v *VM) DetachVolume(id string) error {
	list, err := v.Spec.volumes()
	if err != nil {
		return err
	}
	if err := v.Spec.saveVolumes(slices.DeleteFunc(list, func(old Volume) bool { return old.ID == id })); err != nil {
		return err
	}
	return v.syncVolumes()
}

// LoopMounts returns the minor numbers of the loop devices that are mounted in the VM.
func (v *VM) LoopMounts() ([]uint32, error) {
	if !v.Alive() {
		return nil, nil
	}
	var mounts []*mountinfo.Info
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", v.record.PID))
	if err == nil {
		mounts, err = mountinfo.GetMountsFromReader(bytes.NewReader(content), nil)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, nil // it has just ended
	}
	if err != nil {
		return nil, fmt.Errorf("VM %s: reading its mounts: %w", v.Spec.Name, err)
	}
	var minors []uint32
	for _, at := range mounts {
		if at.Major == loopMajor {
			minors = append(minors, uint32(at.Minor))
		}
	}
	return minors, nil
}

// syncVolumes makes the devices in a VM that has booted those that are attached. Boot calls it too, once the VM is
// ready, for what was attached or detached while it booted.
func (v *VM) syncVolumes() error {
	if !v.Alive() {
		return nil
	}
	list, err := v.Spec.volumes()
	if err != nil {
		return err
	}
	if err := v.Do(func() error { return showVolumes("/dev", list) }); err != nil && !errors.Is(err, errNotRunning) {
		return fmt.Errorf("VM %s: showing its volumes: %w", v.Spec.Name, err)
	}
	return nil
}

// showVolumes creates and removes devices and links below dev.
func showVolumes(dev string, list []Volume) error {
	links := filepath.Join(dev, "disk/by-id")
	if err := os.MkdirAll(links, 0o755); err != nil {
		return err
	}
	if err := hideVolumes(links, list); err != nil {
		return err
	}
	for _, volume := range list {
		name := volume.device()
		path, number := filepath.Join(dev, name), int(unix.Mkdev(loopMajor, volume.Minor))
		err := unix.Mknod(path, unix.S_IFBLK|0o660, number)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("creating device %s: %w", path, err)
		}
		if err := os.Chmod(path, 0o660); err != nil { // regardless of the umask
			return err
		}
		if err := os.Symlink("../../"+name, filepath.Join(links, volume.link())); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// hideVolumes removes the links, and the devices that they point to, of volumes that are not in the list.
func hideVolumes(links string, list []Volume) error {
	entries, err := os.ReadDir(links)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ebsLink) && !strings.HasPrefix(e.Name(), virtioLink) ||
			slices.ContainsFunc(list, func(v Volume) bool { return v.link() == e.Name() }) {
			continue
		}
		link := filepath.Join(links, e.Name())
		target, err := os.Readlink(link)
		if err != nil {
			return err
		}
		for _, path := range []string{link, filepath.Join(links, target)} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (v Volume) ofEBS() bool { return strings.HasPrefix(v.ID, "vol-") }

func (v Volume) device() string {
	if v.ofEBS() {
		return fmt.Sprintf("nvme%dn1", v.Number)
	}
	return "vd" + string(rune('a'+v.Number))
}

func (v Volume) link() string {
	if v.ofEBS() {
		return ebsLink + strings.ReplaceAll(v.ID, "-", "")
	}
	return virtioLink + v.ID[:min(virtioSerial, len(v.ID))]
}
