package external

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/volume"
)

// gib is a GiB in MiB, in which BOSH has sizes.
const gib = 1024

// createDisk creates a volume with a file system. One whose answer was lost stays until the lab is removed.
func (p *CPI) createDisk(ctx context.Context, c *call) (any, error) {
	var size int
	var properties struct{ Type string }
	var instance string // where the disk will probably be attached; may be null
	if err := c.read(0, &size, &properties, &instance); err != nil {
		return nil, err
	}
	id, err := p.Cloud.CreateDisk(ctx, size, properties.Type, instance)
	if err == nil {
		err = p.format(ctx, id)
	}
	if err != nil && id != "" {
		err = errors.Join(err, p.Cloud.DeleteDisk(context.WithoutCancel(ctx), id))
	}
	return id, err
}

// format creates a file system on a whole disk: partitions would need udev. At boot the agent mounts only a disk with a
// table of partitions (IsPersistentDiskMountable in platform/linux_platform.go), for which ext4 leaves room.
func (p *CPI) format(ctx context.Context, id string) error {
	file := p.file(id)
	if err := run(ctx, "mkfs.ext4", "-q", "-F", file); err != nil {
		return fmt.Errorf("formatting disk %s: %w", id, err)
	}
	return writePartitionTable(file)
}

// file is the file that is a disk.
func (p *CPI) file(id string) string { return volume.Store{StateDir: p.StateDir}.File(id) }

// writePartitionTable writes a table of DOS with one partition into the first sector.
func writePartitionTable(file string) error {
	const table, signature, sector, first, linux = 446, 510, 512, 2048, 0x83
	disk, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := disk.Stat()
	if err == nil {
		content := make([]byte, sector-table)
		content[4] = linux
		binary.LittleEndian.PutUint32(content[8:], first)
		binary.LittleEndian.PutUint32(content[12:], uint32(min(info.Size()/sector-first, 1<<32-1)))
		content[signature-table], content[signature-table+1] = 0x55, 0xaa
		_, err = disk.WriteAt(content, table)
	}
	return errors.Join(err, disk.Close())
}

func (p *CPI) deleteDisk(ctx context.Context, c *call) (any, error) {
	return nil, p.Cloud.DeleteDisk(ctx, c.ID)
}

func (p *CPI) hasDisk(ctx context.Context, c *call) (any, error) {
	_, err := p.Cloud.Disk(ctx, c.ID)
	if errors.Is(err, cpi.ErrNoDisk) {
		return false, nil
	}
	return err == nil, err
}

// attachDisk returns the disk's device in the VM.
func (p *CPI) attachDisk(ctx context.Context, c *call) (any, error) {
	var id, device string
	if err := c.read(1, &id); err != nil {
		return nil, err
	}
	err := p.useComplete(ctx, c, func(m machine, v *vm.VM) error {
		err := p.Cloud.AttachDisk(ctx, id, m.CID)
		if err == nil {
			device, err = v.Device(id)
		}
		return err
	})
	if err == nil && device == "" {
		err = fmt.Errorf("VM %s has no device of disk %s", c.ID, id)
	}
	return device, err
}

func (p *CPI) detachDisk(ctx context.Context, c *call) (any, error) {
	var id string
	if err := c.read(1, &id); err != nil {
		return nil, err
	}
	return nil, p.use(ctx, c, func(m machine, _ *vm.VM) error { return p.Cloud.DetachDisk(ctx, id, m.CID) })
}

func (p *CPI) getDisks(ctx context.Context, c *call) (any, error) {
	if _, err := p.machine(c.ID); err != nil {
		return nil, err
	}
	return p.Cloud.Disks(ctx, c.ID)
}

// resizeDisk grows a disk that is not attached, with its file system. Where that is not supported, the Director copies
// the files to another disk.
func (p *CPI) resizeDisk(ctx context.Context, c *call) (any, error) {
	var size int
	if err := c.read(1, &size); err != nil {
		return nil, err
	}
	size = (size + gib - 1) / gib * gib // as the size of every volume
	disk, err := p.Cloud.Disk(ctx, c.ID)
	switch {
	case err != nil:
		return nil, err
	case size < disk.MiB:
		return nil, errorf(notSupported, "disk %s has %d MiB; it cannot shrink to %d MiB", c.ID, disk.MiB, size)
	case disk.Instance != "":
		return nil, errorf(cloudError, "disk %s is attached to VM %s; detach it first", c.ID, disk.Instance)
	case size > disk.MiB:
		if err := p.Cloud.GrowDisk(ctx, c.ID, size); err != nil {
			return nil, err
		}
	}
	// Also on a disk of that size, on which an earlier call may have been interrupted here.
	if err := run(ctx, "e2fsck", "-f", "-p", p.file(c.ID)); err != nil {
		return nil, fmt.Errorf("checking disk %s: %w", c.ID, err)
	}
	if err := run(ctx, "resize2fs", p.file(c.ID)); err != nil {
		return nil, fmt.Errorf("growing the file system of disk %s: %w", c.ID, err)
	}
	return nil, writePartitionTable(p.file(c.ID))
}

func (p *CPI) setDiskMetadata(ctx context.Context, c *call) (any, error) {
	var metadata map[string]any
	if err := c.read(1, &metadata); err != nil {
		return nil, err
	}
	return nil, p.Cloud.TagDisk(ctx, c.ID, texts(metadata))
}

func (p *CPI) snapshotDisk(ctx context.Context, c *call) (any, error) {
	var metadata map[string]any
	if err := c.read(1, &metadata); err != nil {
		return nil, err
	}
	return p.Cloud.SnapshotDisk(ctx, c.ID, texts(metadata))
}

func (p *CPI) deleteSnapshot(ctx context.Context, c *call) (any, error) {
	return nil, p.Cloud.DeleteSnapshot(ctx, c.ID)
}
