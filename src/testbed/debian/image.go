// Package debian boots a stock Debian in QEMU: Debian's own kernel and systemd, control groups of version 2 alone, and
// an ext4 root, without a network. Tests see there what no namespace of a test machine shows.
package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// suite is Debian's release, and mirror where debootstrap downloads it.
const (
	suite  = "bookworm"
	mirror = "http://deb.debian.org/debian"
)

// packages are what a machine for the lab has: an init system, the kernel, and of ci/setup.sh's what runs clusters.
var packages = []string{
	"systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "linux-image-cloud-amd64", "initramfs-tools",
	"apparmor", "ca-certificates", "curl", "jq", "ruby", "monit", "conntrack", "e2fsprogs", "ethtool", "iproute2",
	"iptables", "kmod", "nftables", "socat", "util-linux", "xfsprogs", "xz-utils", "busybox-static", "procps", "strace",
}

// files are those of the image that no package has.
var files = map[string]string{
	"etc/hostname": "debian\n",
	"etc/hosts":    "127.0.0.1 localhost debian\n",
	"etc/fstab":    "/dev/vda / ext4 defaults 0 1\n/dev/vdb " + Checkout + " ext4 defaults 0 2\n",
	"etc/systemd/system/guest.service": `[Unit]
Description=Runs what a test asks for
RequiresMountsFor=` + Checkout + `
After=multi-user.target

[Service]
ExecStart=` + Checkout + `/bin/guest /dev/virtio-ports/` + port + `
TasksMax=infinity
LimitNOFILE=1048576
`,
}

// links are symbolic links of the image: units that are started, and those that are not. A getty would write to the
// console, and apt downloads.
var links = map[string]string{
	"etc/systemd/system/multi-user.target.wants/guest.service": "/etc/systemd/system/guest.service",
	"etc/systemd/system/serial-getty@ttyS0.service":            "/dev/null",
	"etc/systemd/system/getty@tty1.service":                    "/dev/null",
	"etc/systemd/system/apt-daily.timer":                       "/dev/null",
	"etc/systemd/system/apt-daily-upgrade.timer":               "/dev/null",
}

// Image is the disk of a machine, which all machines share, and its kernel.
type Image struct{ Disk, Kernel, Initrd string }

// diskSize is that of a sparse file.
const diskSize = "16G"

// BuildImage makes an image in a directory, unless it is there. It takes two minutes, and needs root, debootstrap and
// Debian's mirror.
func BuildImage(ctx context.Context, dir string, progress func(string)) (Image, error) {
	inputs := sha256.New()
	fmt.Fprintln(inputs, suite, mirror, packages, files, links, diskSize)
	target := filepath.Join(dir, "image-"+hex.EncodeToString(inputs.Sum(nil))[:16])
	image := Image{
		Disk: filepath.Join(target, "disk.ext4"), Kernel: filepath.Join(target, "vmlinuz"),
		Initrd: filepath.Join(target, "initrd.img"),
	}
	if _, err := os.Stat(target); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return image, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return image, err
	}
	work, err := os.MkdirTemp(dir, "making-")
	if err != nil {
		return image, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	root := filepath.Join(work, "root")
	started := time.Now()
	progress(fmt.Sprintf("debootstrap of %s from %s, which takes two minutes", suite, mirror))
	if err := command(
		ctx, "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), suite, root, mirror,
	); err != nil {
		return image, err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return image, err
		}
	}
	for name, to := range links {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(to, path)); err != nil {
			return image, err
		}
	}
	ready := filepath.Join(work, "ready")
	if err := os.Mkdir(ready, 0o755); err != nil {
		return image, err
	}
	for pattern, to := range map[string]string{"boot/vmlinuz-*": image.Kernel, "boot/initrd.img-*": image.Initrd} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		if len(found) != 1 {
			return image, fmt.Errorf("%s of the new system are %q: must be one file", pattern, found)
		}
		if err := command(ctx, "cp", found[0], filepath.Join(ready, filepath.Base(to))); err != nil {
			return image, err
		}
	}
	if err := MakeDisk(ctx, filepath.Join(ready, filepath.Base(image.Disk)), root); err != nil {
		return image, err
	}
	progress(fmt.Sprintf("the image is made, in %s", time.Since(started).Round(time.Second)))
	return image, os.Rename(ready, target)
}

// MakeDisk writes a disk image with the files of a directory in an ext4 file system.
func MakeDisk(ctx context.Context, file, dir string) error {
	return command(ctx, "mkfs.ext4", "-q", "-F", "-d", dir, file, diskSize)
}

// command runs a program; the error has its output.
func command(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		const most = 2000
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out[max(0, len(out)-most):])
	}
	return nil
}
