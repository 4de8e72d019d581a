package vm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kubernetes-release/internal/bosh"
)

// UID and GID of vcap in every VM.
const (
	VcapUID = 1000
	VcapGID = 1000
)

// vmPath is the PATH in a VM.
const vmPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// systemDirs hold the host's programs. If they are links into /usr on the host, they are in a VM too.
var systemDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// etcFromHost is what a VM has from the host's /etc: what its programs need, and nothing about the host's name, users
// or access.
var etcFromHost = []string{
	"alternatives",
	"bash.bashrc",
	"ca-certificates",
	"ca-certificates.conf",
	"debian_version",
	"environment",
	"ethertypes",
	"gai.conf",
	"host.conf",
	"inputrc",
	"iproute2",
	"ld.so.cache",
	"ld.so.conf",
	"ld.so.conf.d",
	"locale.alias",
	"localtime",
	"login.defs",
	"magic",
	"mime.types",
	"mke2fs.conf",
	"modprobe.d",
	"netconfig",
	"networks",
	"nsswitch.conf",
	"os-release",
	"pam.conf",
	"pam.d",
	"profile",
	"profile.d",
	"protocols",
	"rpc",
	"security",
	"services",
	"shells",
	"skel",
	"ssl",
	"terminfo",
	"timezone",
	"xattr.conf",
}

// directory is one of a new VM's root directory, owned by root.
type directory struct {
	path string
	mode fs.FileMode
	vcap bool // group vcap
}

// rootDirs are those of a stemcell: /var/vcap/data is the ephemeral disk with /var/vcap/sys on it, /var/vcap/store the
// persistent disk.
var rootDirs = []directory{
	{
		path: "etc/monit",
		mode: 0o755,
	},
	{path: "dev", mode: 0o755},
	{path: "home/vcap", mode: 0o755},
	{path: "media", mode: 0o755},
	{
		path: "mnt",
		mode: 0o755,
	},
	{path: "opt", mode: 0o755},
	{path: "proc", mode: 0o555},
	{path: "root", mode: 0o700},
	{path: "run", mode: 0o755},
	{
		path: "srv",
		mode: 0o755,
	},
	{path: "sys", mode: 0o555},
	{path: "tmp", mode: 0o777 | fs.ModeSticky},
	{path: "usr", mode: 0o755},
	{
		path: "var/cache",
		mode: 0o755,
	},
	{path: "var/lib", mode: 0o755},
	{path: "var/log", mode: 0o755},
	{path: "var/spool", mode: 0o755},
	{path: "var/tmp", mode: 0o777 | fs.ModeSticky},
	{path: bosh.DefaultRoot.Path("bosh"), mode: 0o700},
	{path: bosh.DefaultRoot.Path("instance"), mode: 0o755},
	{
		path: bosh.DefaultRoot.Path("jobs"),
		mode: 0o750,
		vcap: true,
	},
	{path: bosh.DefaultRoot.Path("packages"), mode: 0o755},
	{path: filepath.Join(MonitDir, "job"), mode: 0o700},
	{
		path: bosh.DefaultRoot.Path("data/jobs"),
		mode: 0o750,
		vcap: true,
	},
	{path: bosh.DefaultRoot.Path("data/packages"), mode: 0o755},
	{path: bosh.DefaultRoot.Path("data/tmp"), mode: 0o770, vcap: true},
	{
		path: bosh.DefaultRoot.Path("data/sys/log"),
		mode: 0o755,
		vcap: true,
	},
	{path: bosh.DefaultRoot.Path("data/sys/run"), mode: 0o755, vcap: true},
	{path: bosh.DefaultRoot.Path("store"), mode: 0o755},
}

var rootLinks = map[string]string{
	"etc/mtab":                   "../proc/self/mounts",
	"var/run":                    "/run",
	"var/lock":                   "/run/lock",
	bosh.DefaultRoot.Path("sys"): "data/sys",
}

// populateRoot creates the VM's root directory on the host's filesystem: everything that is not mounted when the VM
// boots.
func populateRoot(spec Spec) error {
	root := spec.root()
	for _, d := range rootDirs {
		path := filepath.Join(root, d.path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		group := 0
		if d.vcap {
			group = VcapGID
		}
		if err := errors.Join(os.Chown(path, 0, group), os.Chmod(path, d.mode)); err != nil {
			return err
		}
	}
	if err := os.Chown(filepath.Join(root, "home/vcap"), VcapUID, VcapGID); err != nil {
		return err
	}
	for link, target := range rootLinks {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return err
		}
	}
	if err := linkSystemDirs(root); err != nil {
		return err
	}
	for _, name := range etcFromHost {
		if err := copyTree(filepath.Join("/etc", name), filepath.Join(root, "etc", name)); err != nil {
			return err
		}
	}
	if err := trust(spec); err != nil {
		return err
	}
	return writeEtc(spec)
}

// caBundle is what programs read the system's CAs from (for Go: crypto/x509/root_linux.go).
const caBundle = "etc/ssl/certs/ca-certificates.crt"

// trust adds TrustedCA to the VM's CAs, as the agent adds the Director's trusted_certs with update-ca-certificates.
func trust(spec Spec) error {
	if spec.TrustedCA == "" {
		return nil
	}
	certificates, err := os.ReadFile(spec.TrustedCA)
	if err != nil {
		return err
	}
	path := filepath.Join(spec.root(), caBundle)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	bundle, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = bundle.Write(certificates)
	return errors.Join(err, bundle.Close())
}

func linkSystemDirs(root string) error {
	for _, name := range systemDirs {
		info, err := os.Lstat("/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
				return err
			}
			continue
		}
		target, err := os.Readlink("/" + name)
		if err == nil {
			err = os.Symlink(target, filepath.Join(root, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type etcFile struct {
	mode    fs.FileMode
	content string
}

// writeEtc writes the files in /etc that differ between VMs.
func writeEtc(spec Spec) error {
	id, password := make([]byte, 16), make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(password)
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	group, err := os.ReadFile("/etc/group")
	if err != nil {
		return err
	}
	short, _, _ := strings.Cut(spec.hostname(), ".")
	names := spec.hostname()
	if short != names {
		names += " " + short
	}
	for name, f := range map[string]etcFile{
		"hostname": {0o644, spec.hostname() + "\n"},
		"hosts": {
			0o644,
			fmt.Sprintf("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n%s %s\n", spec.Address, names),
		},
		"machine-id": {0o444, hex.EncodeToString(id) + "\n"},
		"fstab":      {0o644, ""},
		"passwd": {0o644, systemAccounts(string(passwd)) + fmt.Sprintf("vcap:x:%d:%d:BOSH "+
			"jobs:/home/vcap:/bin/bash\n", VcapUID, VcapGID)},
		"group":         {0o644, systemAccounts(string(group)) + fmt.Sprintf("vcap:x:%d:\n", VcapGID)},
		"shadow":        {0o640, "root:*:19000:0:99999:7:::\nvcap:*:19000:0:99999:7:::\n"},
		"monit/monitrc": {0o600, monitrc},
	} {
		if err := writeFile(filepath.Join(spec.root(), "etc", name), f.content, f.mode); err != nil {
			return err
		}
	}
	if err := writeResolvConf(spec, nil); err != nil {
		return err
	}
	return writeFile(filepath.Join(spec.root(), MonitUserFile), monitUser+":"+hex.EncodeToString(password)+"\n", 0o600)
}

// systemAccounts returns the lines of a passwd or group file whose id is below 1000 or nobody's.
func systemAccounts(file string) string {
	var kept strings.Builder
	for line := range strings.Lines(file) {
		fields := strings.Split(line, ":")
		if len(fields) < 4 || fields[0] == "vcap" {
			continue
		}
		if number, err := strconv.Atoi(fields[2]); err == nil && (number < 1000 || number == 65534) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func writeFile(path, content string, mode fs.FileMode) error {
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// copyTree copies files, directories and symbolic links. A missing source is skipped.
func copyTree(source, target string) error {
	return filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == source {
			return nil
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		to := filepath.Join(target, relative)
		switch {
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, to)
		case entry.Type().IsRegular():
			return CopyFile(path, to)
		}
		return nil
	})
}

// CopyFile copies a file's content and permissions.
func CopyFile(source, target string) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
