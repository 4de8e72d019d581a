package vm

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/bosh"
)

// stemcellStart runs what systemd starts on a stemcell, in a VM whose root is a stemcell's image.
//
//go:embed stemcell-start.sh
var stemcellStart []byte

// systemctl substitutes systemctl in a VM of an image without systemd.
//
//go:embed systemctl.sh
var systemctl []byte

// startFile is where a VM of an image has stemcellStart.
const startFile = "/run/lab/stemcell-start"

// maskedUnits would change the machine itself, or the VM's network, which the lab has configured. Units that look for a
// container themselves are not among them.
var maskedUnits = []string{
	"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
	"systemd-udev-trigger.service", "systemd-networkd.service", "systemd-networkd.socket",
	"systemd-networkd-wait-online.service", "systemd-modules-load.service", "chrony.service", "auditd.service",
}

// doubleServices are run by both systemd and runit in stemcells for warden.
var doubleServices = []string{"etc/service/cron", "etc/service/ssh", "etc/sv/cron", "etc/sv/ssh"}

// bootsSystemd reports whether systemd is the VM's init: it runs the agent in the image, and the machine has control
// groups of version 2 only, which newer versions of systemd require.
func (s Spec) bootsSystemd(trees []hierarchy) bool {
	return s.has("usr/lib/systemd/systemd") && s.has("usr/lib/systemd/system/bosh-agent.service") &&
		len(trees) == 1 && trees[0].v2
}

// hasResolver reports whether systemd-resolved listens on the VM's loopback interface, in place of the lab's relay.
func (s Spec) hasResolver() bool { return s.Image != "" && s.has("usr/lib/systemd/systemd-resolved") }

func (s Spec) has(file string) bool {
	_, err := os.Lstat(filepath.Join(s.Image, file))
	return err == nil
}

// imageDirs are what a VM with an image has on the host: changes of the image, what overlayfs works with, the root of
// both, and the ephemeral disk, in which overlayfs can be mounted again.
func (s Spec) imageDirs() (changes, work, root, data string) {
	return s.root(), filepath.Join(s.dir(), "work"), filepath.Join(s.dir(), "merged"), filepath.Join(s.dir(), "data")
}

func populateImage(spec Spec) error {
	changes, work, root, data := spec.imageDirs()
	for _, dir := range []string{changes, work, root, data} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// mountImage mounts the VM's root with its ephemeral disk, and returns its directory.
func mountImage(spec Spec) (string, error) {
	changes, work, root, data := spec.imageDirs()
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", spec.Image, changes, work)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return "", fmt.Errorf("mounting the stemcell's image %s as the root: %w", spec.Image, err)
	}
	if err := bind(data, root, bosh.DefaultRoot.Path("data")); err != nil {
		return "", err
	}
	if _, err := os.Stat("/lib/modules"); err != nil {
		return root, nil //nolint:nilerr // a machine without modules
	}
	return root, bindReadOnly("/lib/modules", root, "usr/lib/modules")
}

// installImage writes files into a VM's root when it is created, and what starts the agent.
func installImage(i instructions, root string, trees []hierarchy) error {
	for name, content := range i.Files {
		if err := replaceFile(filepath.Join(root, name), []byte(content), fileMode(name)); err != nil {
			return err
		}
	}
	if len(i.Files) > 0 { // bosh-dns changes it, and a reboot keeps that
		if err := installResolvConf(i.Spec, root); err != nil {
			return err
		}
	}
	if i.Spec.bootsSystemd(trees) {
		return adaptUnits(root)
	}
	units, err := unitTree(trees)
	if err != nil {
		return err
	}
	script := func(content []byte) []byte {
		return []byte(strings.ReplaceAll(string(content), "UNITS", units.inVM()))
	}
	return errors.Join(
		os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755), // sd_booted(3)
		replaceFile(filepath.Join(root, startFile), stemcellStart, 0o755),
		replaceFile(filepath.Join(root, "usr/bin/systemctl"), script(systemctl), 0o755),
		replaceFile(filepath.Join(root, "usr/bin/systemd-run"), script(systemdRun), 0o755),
	)
}

// fileMode keeps what is the agent's from all but root.
func fileMode(name string) fs.FileMode {
	if strings.HasPrefix(name, bosh.DefaultRoot.Path("bosh")+"/") {
		return 0o600
	}
	return 0o644
}

func installResolvConf(spec Spec, root string) error {
	path := filepath.Join(root, "etc/resolv.conf")
	if !spec.hasResolver() {
		return replaceFile(path, []byte("nameserver "+stubAddress.String()+"\n"), 0o644)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink("/run/systemd/resolve/stub-resolv.conf", path)
}

// replaceFile does not follow a link that the image has in its place.
func replaceFile(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeFile(path, string(content), mode)
}

// adaptUnits makes systemd run what fits a VM of the lab.
func adaptUnits(root string) error {
	dir := filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, unit := range maskedUnits {
		if err := os.Symlink("/dev/null", filepath.Join(dir, unit)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, service := range doubleServices {
		if err := os.RemoveAll(filepath.Join(root, service)); err != nil {
			return err
		}
	}
	return nil
}

// keepClock takes the capability to set the machine's clock from the VM, whose stemcell has a time service.
func keepClock() error {
	if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_TIME, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up the capability to set the clock: %w", err)
	}
	return nil
}
