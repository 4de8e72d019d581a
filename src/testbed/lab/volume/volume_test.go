package volume_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
	"kubernetes-release/testbed/lab/volume"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

const (
	id       = "vol-0123456789abcdef0"
	link     = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
	mib      = 1 << 20
	size     = 64 * mib
	snapshot = "snap-0123456789abcdef0"
)

// bed is a VM and the volumes of its lab.
type bed struct {
	*testing.T
	vm    *vm.VM
	store volume.Store
}

func newBed(t *testing.T) *bed {
	t.Helper()
	machine := vmtest.New(t)
	b := &bed{t, machine, volume.Store{StateDir: machine.Spec.StateDir}}
	t.Cleanup(func() { // before the VM is removed
		if err := b.store.Release(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// sh runs a script in the VM.
func (b *bed) sh(script string) (string, error) {
	var out bytes.Buffer
	err := b.vm.Run(b.Context(), []string{"sh", "-euc", script}, vm.RunOptions{Stdout: &out, Stderr: &out})
	return strings.TrimSpace(out.String()), err
}

// wants fails the test unless the script succeeds and writes the text.
func (b *bed) wants(what, script, want string) {
	b.Helper()
	if got, err := b.sh(script); err != nil || got != want {
		b.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}

func (b *bed) detach(force, want bool) {
	b.Helper()
	gone, err := b.store.Detach(id, b.vm.Spec.Address, force)
	b.must(err)
	if gone != want {
		b.Fatalf("detached with force %v: got %v, want %v", force, gone, want)
	}
}

// loops are the loop devices of the lab.
func (b *bed) loops() []string {
	left, err := network.Leftovers(network.Network{Number: b.vm.Spec.Network.Number}, b.vm.Spec.StateDir)
	b.must(err)
	var found []string
	for _, line := range left {
		if strings.HasPrefix(line, "loop device") {
			found = append(found, line)
		}
	}
	return found
}

// TestVolumeOfCinder has the names by which the Cinder CSI driver looks for it (getDevicePathBySerialID in
// pkg/util/mount/mount.go of cloud-provider-openstack), next to one of another ID.
func TestVolumeOfCinder(t *testing.T) {
	const first, second = "1f7a3c52-9d0e-4a6b-8c11-0123456789ab", "2f7a3c52-9d0e-4a6b-8c11-0123456789ab"
	b := newBed(t)
	for _, volume := range []string{first, second} {
		b.must(b.store.Create(volume, size, ""))
		b.must(b.store.Attach(volume, b.vm.Spec.Address))
	}
	b.wants(
		"the names", "cd /dev/disk/by-id; for l in *; do echo $l $(readlink -f $l); done; stat -c %F /dev/vdb",
		"virtio-1f7a3c52-9d0e-4a6b-8 /dev/vdb\nvirtio-2f7a3c52-9d0e-4a6b-8 /dev/vdc\nblock special file",
	)
	gone, err := b.store.Detach(first, b.vm.Spec.Address, false)
	b.must(err)
	if !gone {
		b.Error("the first was not detached")
	}
	b.wants(
		"the other is left", "ls -d /dev/disk/by-id/* /dev/vd*",
		"/dev/disk/by-id/virtio-2f7a3c52-9d0e-4a6b-8\n/dev/vdc",
	)
	_, err = b.store.Detach(second, b.vm.Spec.Address, false)
	b.must(err)
}

func TestVolumeIsADeviceOfTheVM(t *testing.T) {
	b := newBed(t)
	b.must(b.store.Create(id, size, ""))
	b.must(b.store.Attach(id, b.vm.Spec.Address))
	b.must(b.store.Attach(id, b.vm.Spec.Address)) // repeated after an interruption
	b.wants(
		"the names", "readlink -f "+link+"; readlink "+link+"; stat -c %F /dev/nvme1n1",
		"/dev/nvme1n1\n../../nvme1n1\nblock special file",
	)
	b.wants("the size", "blockdev --getsize64 /dev/nvme1n1", "67108864")
	b.wants(
		"a filesystem",
		"mkfs.ext4 -q /dev/nvme1n1; mount /dev/nvme1n1 /mnt; echo kept > /mnt/file; sync; findmnt -no SOURCE /mnt",
		"/dev/nvme1n1",
	)

	b.must(b.store.Snapshot(id, snapshot))
	b.must(b.store.Resize(id, 2*size))
	b.wants("growing while it is mounted", "blockdev --getsize64 /dev/nvme1n1; cat /mnt/file", "134217728\nkept")

	b.detach(false, false)
	b.wants("a mounted device stays", "cat /mnt/file", "kept")
	b.must(b.vm.Kill(t.Context()))
	b.must(b.vm.Boot(t.Context(), nil))
	b.wants("it is there after a reboot", "mount "+link+" /mnt; cat /mnt/file; umount /mnt", "kept")
	b.detach(false, true)
	b.wants("nothing is there", "ls -d /dev/disk/by-id/* /dev/nvme* 2> /dev/null || true", "")
	if left := b.loops(); len(left) > 0 {
		t.Errorf("left after the volume was detached: %q", left)
	}

	const restored = "vol-0123456789abcdef1"
	b.must(b.store.Create(restored, 3*size, snapshot))
	b.must(b.store.Attach(restored, b.vm.Spec.Address))
	b.wants(
		"the content of the snapshot",
		"mount /dev/nvme1n1 /mnt; cat /mnt/file; blockdev --getsize64 /dev/nvme1n1; umount /mnt", "kept\n201326592",
	)
}

func TestForcedDetachmentPullsTheDevice(t *testing.T) {
	b := newBed(t)
	b.must(b.store.Create(id, size, ""))
	b.must(b.store.Attach(id, b.vm.Spec.Address))
	b.wants(
		"a filesystem", "mkfs.ext4 -q /dev/nvme1n1; mount /dev/nvme1n1 /mnt; echo before > /mnt/file; sync; echo ok",
		"ok",
	)
	b.detach(false, false)
	b.detach(true, true)
	if out, err := b.sh("echo after > /mnt/file; sync /mnt/file"); err == nil {
		t.Errorf("the VM could write to the device that was pulled: %s", out)
	}
	b.must(b.store.Attach(id, b.vm.Spec.Address))
	b.wants("the volume is intact", "mkdir /tmp/m; mount "+link+" /tmp/m; cat /tmp/m/file; umount /tmp/m", "before")
	b.detach(false, true) // the dead mount does not matter
	b.wants("the dead mount goes", "umount /mnt; echo ok", "ok")
	if left := b.loops(); len(left) > 0 {
		t.Errorf("left after the dead mount has gone: %q", left)
	}
}

// TestMountsOfSeveralVMsAreSeen mounts the device of one VM in another one, which neither EC2 nor Kubernetes would do.
func TestMountsOfSeveralVMsAreSeen(t *testing.T) {
	b := newBed(t)
	wants := func(when string, want ...netip.Addr) {
		t.Helper()
		mounts, err := b.store.Mounts()
		b.must(err)
		slices.SortFunc(mounts[id], netip.Addr.Compare)
		if !slices.Equal(mounts[id], want) {
			t.Errorf("%s: mounted by %v, want %v", when, mounts[id], want)
		}
	}
	first := b.vm
	second := vmtest.Another(t, first, "two")
	b.must(b.store.Create(id, size, ""))
	b.must(b.store.Attach(id, first.Spec.Address))
	b.wants("a filesystem", "mkfs.ext4 -q /dev/nvme1n1; echo ok", "ok")
	wants("attached only")
	b.wants("mounted", "mount /dev/nvme1n1 /mnt; echo ok", "ok")
	wants("mounted", first.Spec.Address)
	device, err := b.sh("stat -c '%Hr %Lr' /dev/nvme1n1")
	b.must(err)
	b.vm = second
	b.wants("the other VM", "mknod /dev/device b "+device+"; mount /dev/device /mnt; echo ok", "ok")
	wants("mounted by both", first.Spec.Address, second.Spec.Address)
	b.vm = first
	b.wants("unmounted", "umount /mnt; echo ok", "ok")
	wants("mounted by the other VM", second.Spec.Address)
	b.detach(false, false)
	b.detach(true, true)
	wants("pulled")
}

func TestVolumesOfAKilledVMAreReleased(t *testing.T) {
	b := newBed(t)
	b.must(b.store.Create(id, size, ""))
	b.must(b.store.Attach(id, b.vm.Spec.Address))
	b.wants("a filesystem", "mkfs.ext4 -q /dev/nvme1n1; mount /dev/nvme1n1 /mnt; echo ok", "ok")
	if left := b.loops(); len(left) != 1 || !strings.Contains(left[0], filepath.Join(volume.Dir, id)) {
		t.Errorf("the lab's loop devices: %q, want that of the volume", left)
	}
	b.must(b.vm.Destroy(t.Context()))
	b.must(b.store.Release())
	if left := b.loops(); len(left) > 0 {
		t.Errorf("left after the lab was removed: %q", left)
	}
	if _, err := os.Stat(filepath.Join(b.store.StateDir, volume.Dir, id)); err != nil {
		t.Errorf("the volume's content must outlive the VM: %v", err)
	}
	if err := b.store.Attach(id, b.vm.Spec.Address); err == nil {
		t.Error("a volume was attached to no VM")
	}
}
