package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPersistentDiskMustBeMounted has lines of /proc/self/mountinfo as on a VM, in bpm's container, and in VMs that are
// containers.
func TestPersistentDiskMustBeMounted(t *testing.T) {
	const (
		vm = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" +
			"25 22 8:2 / /var/vcap/data rw - ext4 /dev/sda2 rw\n"
		disk      = "30 22 8:17 / /var/vcap/store rw,relatime shared:9 - ext4 /dev/sdb1 rw\n"
		container = "40 39 0:33 / / rw - tmpfs tmpfs rw\n"
	)
	for _, c := range []struct {
		what, mounts      string
		onVM, insideOfBPM bool // whether the disk is mounted
	}{
		{"mounted", vm + disk, true, true},
		{"not mounted", vm, false, false},
		{"mounted over what was on the VM's own disk",
			vm + "29 22 8:1 /var/vcap/store /var/vcap/store rw - ext4 /dev/sda1 rw\n" + disk, true, true},
		{"another directory with the name as its beginning",
			vm + "30 22 8:17 / /var/vcap/store-2 rw - ext4 /dev/sdb1 rw\n",
			false, false},
		{"a directory of the machine",
			vm + "30 22 254:0 /lab/disks/3f2c /var/vcap/store rw - ext4 /dev/vda rw\n", true, true},
		{"a VM that is a directory of the machine",
			"22 1 254:0 /lab/vms/x/root / rw - ext4 /dev/vda rw\n", false, false},
		{"bpm, mounted", container + "41 40 8:17 /etcd /var/vcap/store/etcd rw - ext4 /dev/sdb1 rw\n", false, true},
		{"bpm, not mounted",
			container + "41 40 8:1 /var/vcap/store/etcd /var/vcap/store/etcd rw - ext4 /dev/sda1 rw\n", false, false},
	} {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(c.mounts), 0o600); err != nil {
			t.Fatal(err)
		}
		config := &Config{PersistentDisk: "/var/vcap/store", UserDirs: []string{"/other", "/var/vcap/store/etcd"}}
		if err := config.checkDisk(file, config.PersistentDisk); (err == nil) != c.onVM {
			t.Errorf("%s: on the VM: %v", c.what, err)
		}
		if err := config.checkUserDirs(file); (err == nil) != c.insideOfBPM {
			t.Errorf("%s: in bpm's container: %v", c.what, err)
		}
		without := &Config{UserDirs: config.UserDirs}
		if without.checkDisk(file, "") != nil || without.checkUserDirs(file) != nil {
			t.Errorf("%s: refused for an instance without a persistent disk", c.what)
		}
	}
}

// TestNothingIsWrittenWithoutTheDisk: neither by check, which creates directories, nor by exec and as after a reboot.
// A launcher that went on would become /bin/false, and the test fail.
func TestNothingIsWrittenWithoutTheDisk(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	config, err := load(t, `{"process": "x", "executable": "/bin/false", "persistent_disk": "`+store+
		`", "private_dir": "`+dir+
		`", "user_id": 1900000003, "capabilities": [], "user_dirs": ["`+store+`/etcd"]}`, "")
	if err != nil {
		t.Fatal(err)
	}
	l := New(os.Stderr)
	for what, err := range map[string]error{
		"check": l.Check(t.Context(), config.path),
		"exec":  l.Exec(t.Context(), config.path),
		"as":    l.As(config.path, []string{"/bin/false"}),
	} {
		if err == nil || !strings.Contains(err.Error(), "the persistent disk is not mounted at "+store) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("%s exists: %v", store, err)
	}
}
