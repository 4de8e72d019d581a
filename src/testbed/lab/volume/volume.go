// Package volume keeps the simulated cloud's volumes and snapshots as sparse files in the lab's state directory, and
// attaches volumes to the lab's VMs as loop devices.
package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"kubernetes-release/testbed/lab/vm"
)

// Dir is the folder of the files in the lab's state directory.
const Dir = "volumes"

// Store holds the volumes and snapshots of a lab. One process may use it, and one call at a time.
type Store struct {
	StateDir string // of the lab
}

// File is the file of a volume or a snapshot.
func (s Store) File(id string) string { return filepath.Join(s.StateDir, Dir, id) }

// Create creates a volume with the content of a snapshot or of another volume, or empty. Of another volume holds what
// Snapshot says.
func (s Store) Create(id string, bytes int64, source string) error {
	if err := os.MkdirAll(filepath.Join(s.StateDir, Dir), 0o700); err != nil {
		return err
	}
	if source != "" {
		source = s.File(source)
	}
	if err := create(s.File(id), bytes, source); err != nil {
		return fmt.Errorf("creating the file of volume %s: %w", id, errors.Join(err, s.Remove(id)))
	}
	return nil
}

// Snapshot copies a volume. What the VM has not yet written to the device is not in it, as on EBS. Unlike on EBS, what
// is written while the file is copied may be.
func (s Store) Snapshot(volume, snapshot string) error {
	info, err := os.Stat(s.File(volume))
	if err == nil {
		err = create(s.File(snapshot), info.Size(), s.File(volume))
	}
	if err != nil {
		return fmt.Errorf("creating the file of snapshot %s: %w", snapshot, errors.Join(err, s.Remove(snapshot)))
	}
	return nil
}

// Remove removes a volume or a snapshot, if it exists.
func (s Store) Remove(id string) error {
	if err := os.Remove(s.File(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Resize grows a volume and the device of the VM that it is attached to.
func (s Store) Resize(id string, bytes int64) error {
	if err := os.Truncate(s.File(id), bytes); err != nil {
		return err
	}
	for _, d := range s.devices(id) {
		if err := d.grow(); err != nil {
			return err
		}
	}
	return nil
}

// Attach makes a volume a device of the VM with the address. It can be repeated. There is an error if no VM has the
// address.
func (s Store) Attach(id string, address netip.Addr) error {
	machine, err := s.at(address)
	if err != nil {
		return err
	}
	if machine == nil {
		return fmt.Errorf("no VM has the address %s", address)
	}
	d, err := s.device(id)
	if err != nil {
		return fmt.Errorf("volume %s: %w", id, err)
	}
	return machine.AttachVolume(id, d.minor)
}

// devices returns the volume's loop devices, without those that were pulled and are still mounted.
func (s Store) devices(id string) []loop {
	return slices.DeleteFunc(loops(s.File(id)), loop.leaving)
}

// device returns the volume's loop device, or a new one.
func (s Store) device(id string) (loop, error) {
	if present := s.devices(id); len(present) > 0 {
		return present[0], nil
	}
	return newLoop(s.File(id))
}

// Detach takes a volume away from the VM with the address. It reports false, and changes nothing, while the device is
// in use by the VM: mounted in any of its namespaces, or part of another device. With force the device is pulled: all
// further reads and writes of the VM fail.
func (s Store) Detach(id string, address netip.Addr, force bool) (gone bool, err error) {
	devices := s.devices(id)
	for _, d := range devices {
		busy, err := d.busy()
		if err != nil {
			return false, fmt.Errorf("volume %s: %w", id, err)
		}
		if busy && !force {
			return false, nil
		}
	}
	machine, err := s.at(address)
	if err != nil {
		return false, err
	}
	if machine != nil {
		if err := machine.DetachVolume(id); err != nil {
			return false, err
		}
	}
	for _, d := range devices {
		if err := d.remove(); err != nil {
			return false, fmt.Errorf("volume %s: %w", id, err)
		}
	}
	return true, nil
}

// Mounts returns the addresses of the VMs that have a volume mounted, by volume. Devices that were pulled do not count:
// a VM can read and write nothing through them.
func (s Store) Mounts() (map[string][]netip.Addr, error) {
	volumes := map[uint32]string{}
	for _, d := range all() {
		if file := d.file(); filepath.Dir(file) == filepath.Join(s.StateDir, Dir) && !d.leaving() {
			volumes[d.minor] = filepath.Base(file)
		}
	}
	if len(volumes) == 0 {
		return nil, nil
	}
	mounts := map[string][]netip.Addr{}
	err := s.machines(func(machine *vm.VM) error {
		minors, err := machine.LoopMounts()
		for _, minor := range minors {
			if id := volumes[minor]; id != "" && !slices.Contains(mounts[id], machine.Spec.Address) {
				mounts[id] = append(mounts[id], machine.Spec.Address)
			}
		}
		return err
	})
	return mounts, err
}

// at returns the VM with the address, or nil.
func (s Store) at(address netip.Addr) (found *vm.VM, err error) {
	err = s.machines(func(machine *vm.VM) error {
		if machine.Spec.Address == address {
			found = machine
		}
		return nil
	})
	return found, err
}

// machines calls a function for each VM of the lab, of whichever deployment.
func (s Store) machines(do func(*vm.VM) error) error {
	dirs, err := vm.StateDirs(s.StateDir)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := machinesIn(dir, do); err != nil {
			return err
		}
	}
	return nil
}

func machinesIn(dir string, do func(*vm.VM) error) error {
	names, err := vm.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		machine, err := vm.Open(dir, name)
		if errors.Is(err, vm.ErrNotFound) {
			continue // being created or removed
		}
		if err == nil {
			err = do(machine)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// create creates a sparse file with the content of another one, if there is one. An existing file is replaced.
func create(path string, bytes int64, source string) (err error) {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if source != "" {
		if err := copySparse(to, source); err != nil {
			return err
		}
	}
	return to.Truncate(bytes)
}

// copySparse copies the parts of a file that hold data.
func copySparse(to *os.File, source string) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	for offset := int64(0); ; {
		start, err := unix.Seek(int(from.Fd()), offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, end-start)); err != nil {
			return err
		}
		offset = end
	}
}
