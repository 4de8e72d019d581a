// Package vm creates the lab's virtual machines from Linux namespaces. A VM has its own network, mounts, processes,
// host name, IPC and cgroups, a root directory with the host's programs, an init that reaps processes and keeps monit
// running, and an address on the lab's network. It outlives the process that created it, and everything that belongs to
// it can be found and removed by its state directory and name.
package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/process"
	"kubernetes-release/testbed/lab/network"
)

// ErrNotFound is returned by Open for a VM that was never created or has been destroyed.
var ErrNotFound = errors.New("no such VM")

// Spec describes a VM.
type Spec struct {
	Name string `json:"name"` // unique in the lab: letters, digits and dashes, at most 63
	// the lab's state directory, absolute; the VM's own files are in vms/NAME below it
	StateDir string          `json:"state_dir"`
	Network  network.Network `json:"network"`
	Address  netip.Addr      `json:"address"`            // inside the network's prefix
	Hostname string          `json:"hostname,omitempty"` // defaults to Name; may be fully qualified

	// TrustedCA is a file on the host with certificates that the VM trusts beside the host's CAs; none if empty.
	TrustedCA string `json:"trusted_ca,omitempty"`

	// Image is a directory with a stemcell's root file system, on which the VM's root is based in place of the host's
	// programs. Its own init or agent starts what runs in the VM. Files are written into the root, by path, when the
	// VM is created.
	Image string            `json:"image,omitempty"`
	Files map[string]string `json:"-"`

	// host directory that the agent mounts at /var/vcap/store, and which outlives the VM; none if empty
	PersistentDisk string `json:"persistent_disk,omitempty"`
}

// VM is a VM that exists, running or not.
type VM struct {
	Spec Spec

	record record
}

// Name is the VM's name.
func (v *VM) Name() string { return v.Spec.Name }

// RunOptions are the options of a command, which runs as root.
type RunOptions struct {
	Env    map[string]string // added to PATH, HOME, USER, LOGNAME, LANG and TERM; nothing else is inherited
	Bare   bool              // Env is the whole environment
	Dir    string            // working directory in the VM; empty means /
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// ExitError is returned by Run for a command that ran and failed.
type ExitError struct {
	Argv []string
	Code int // 128 + signal number if a signal killed it
}

// Error names the command and its exit code.
func (e *ExitError) Error() string { return fmt.Sprintf("%q exited with %d", e.Argv, e.Code) }

// record is what other processes of the lab need to find the VM; it is in vms/NAME/vm.json.
type record struct {
	Spec Spec `json:"spec"`
	PID  int  `json:"pid"` // of init, in the host's namespace; 0 before it is started
	// of that process, in clock ticks since boot; tells it from a later one with the same PID
	Started uint64    `json:"start_time"`
	Ready   bool      `json:"ready"` // the VM has booted
	Created time.Time `json:"created"`
}

var validName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)

func (s Spec) check() error {
	if err := s.Network.Check(); err != nil {
		return fmt.Errorf("VM %s: %w", s.Name, err)
	}
	switch {
	case !validName.MatchString(s.Name):
		return fmt.Errorf("VM name %q: must be 1 to 63 letters, digits and dashes, with no dash at either end", s.Name)
	case !filepath.IsAbs(s.StateDir):
		return fmt.Errorf("VM %s: state directory %q must be an absolute path", s.Name, s.StateDir)
	case !s.Network.Prefix().Contains(s.Address):
		return fmt.Errorf(
			"VM %s: address %s must be inside the lab's network %s", s.Name, s.Address, s.Network.Prefix(),
		)
	case s.Address == s.Network.Gateway() || s.Address == s.Network.HostAddress():
		return fmt.Errorf(
			"VM %s: address %s is the lab's own (gateway %s, host %s)", s.Name, s.Address, s.Network.Gateway(),
			s.Network.HostAddress(),
		)
	case s.PersistentDisk != "" && !filepath.IsAbs(s.PersistentDisk):
		return fmt.Errorf("VM %s: persistent disk %q must be an absolute path", s.Name, s.PersistentDisk)
	}
	return nil
}

func (s Spec) hostname() string {
	if s.Hostname != "" {
		return s.Hostname
	}
	return s.Name
}

// dir is the VM's directory on the host.
func (s Spec) dir() string { return filepath.Join(s.StateDir, "vms", s.Name) }

// root is the VM's root directory on the host's filesystem, in which overlay mounts work.
func (s Spec) root() string { return filepath.Join(s.dir(), "root") }

// HostPath returns the path on the host of a file on the VM's disk (/etc, /var, /tmp ...). It does not work for what is
// mounted only in the VM: /proc, /sys, /dev, /run, /usr, /var/vcap/store and the packages.
func (v *VM) HostPath(path string) string {
	return filepath.Join(v.Spec.root(), filepath.Clean("/"+path))
}

// consoleLog is the file on the host that the VM's init and monit write to.
func consoleLog(s Spec) string { return filepath.Join(s.dir(), "console.log") }

// PID returns the PID of the VM's init in the host's PID namespace, for /proc/PID/ns/* and nsenter.
func (v *VM) PID() int { return v.record.PID }

// Open finds a VM that any process has created. The error is ErrNotFound if there is none. A VM whose creation was not
// completed, or whose processes have died, is returned too, so that it can be destroyed.
func Open(stateDir, name string) (*VM, error) {
	spec := Spec{Name: name, StateDir: stateDir}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf(
			"VM name %q: must be 1 to 63 letters, digits and dashes, with no dash at either end", name,
		)
	}
	content, err := os.ReadFile(recordFile(spec))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("VM %s in %s: %w", name, stateDir, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", name, err)
	}
	v := &VM{}
	if err := json.Unmarshal(content, &v.record); err != nil {
		return nil, fmt.Errorf("VM %s: decoding %s: %w", name, recordFile(spec), err)
	}
	v.Spec = v.record.Spec
	return v, nil
}

// deploymentsDir has a state directory for each further deployment of a lab.
const deploymentsDir = "deployments"

// DeploymentDir is the state directory of a further deployment of a lab, whose own directory is root.
func DeploymentDir(root, deployment string) string {
	return filepath.Join(root, deploymentsDir, deployment)
}

// StateDirs are the state directories of all deployments of a lab: its own directory, and those of further ones.
func StateDirs(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, deploymentsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing deployments: %w", err)
	}
	dirs := []string{root}
	for _, e := range entries {
		dirs = append(dirs, DeploymentDir(root, e.Name()))
	}
	return dirs, nil
}

// List returns the names of the VMs of a deployment, including those created only in part.
func List(stateDir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(stateDir, "vms"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing VMs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Device returns the device in the VM of an attached volume, "" if it is not attached.
func (v *VM) Device(volume string) (string, error) {
	list, err := v.Spec.volumes()
	for _, attached := range list {
		if attached.ID == volume {
			return "/dev/" + attached.device(), nil
		}
	}
	return "", err
}

// Alive reports whether the VM has booted and its init runs.
func (v *VM) Alive() bool { return v.record.Ready && v.record.initRuns() }

func (r record) initRuns() bool {
	return process.Runs(r.PID, r.Started)
}

func recordFile(s Spec) string { return filepath.Join(s.dir(), "vm.json") }

// save replaces the record atomically.
func (r record) save() error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of VM %s: %w", r.Spec.Name, err)
	}
	if err := atomicfile.Write(recordFile(r.Spec), append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("VM %s: %w", r.Spec.Name, err)
	}
	return nil
}
