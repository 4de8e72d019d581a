// Package vm makes the lab's virtual machines out of Linux namespaces. A VM has its own network, mounts, processes, host name,
// IPC and cgroups, a root of its own with the host's programs in it, an init that reaps children and keeps monit running, and
// an address on the lab's network. It lives on when the process that made it ends, and everything that it consists of can be
// found and removed from its state directory and name alone.
package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/process"
	"kubernetes-release/lab/network"
)

// ErrNotFound is returned by Open for a VM that was never made or has been destroyed.
var ErrNotFound = errors.New("no such VM")

// Spec describes a VM.
type Spec struct {
	Name     string          `json:"name"`      // unique in the lab: letters, digits and dashes, at most 63
	StateDir string          `json:"state_dir"` // the lab's state directory, absolute; the VM's own files are in vms/NAME below it
	Network  network.Network `json:"network"`
	Address  netip.Addr      `json:"address"`            // inside the network's prefix
	MAC      string          `json:"mac,omitempty"`      // empty: derived from the address
	Hostname string          `json:"hostname,omitempty"` // empty: Name; may be a full name with dots

	PersistentDisk string `json:"persistent_disk,omitempty"` // host directory bound at /var/vcap/store; it outlives the VM. Empty: none
	Binds          []Bind `json:"binds,omitempty"`           // more host paths that the VM sees
}

// Bind makes a path of the host visible in a VM.
type Bind struct {
	Source   string `json:"source"` // host path, file or directory
	Target   string `json:"target"` // absolute path in the VM; made where it is missing
	ReadOnly bool   `json:"read_only"`
}

// VM is a machine that exists, running or not.
type VM struct {
	Spec Spec

	record record
}

// RunOptions are the optional parts of a command run in a VM.
type RunOptions struct {
	Env    map[string]string // added to PATH, HOME, USER, LOGNAME, LANG and TERM; nothing else is inherited
	Bare   bool              // Env is the whole environment
	Dir    string            // working directory in the VM; empty means /
	User   string            // a user of the VM (root, vcap); empty means root
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// ExitError is returned by Run for a command that ran and failed.
type ExitError struct {
	Argv []string
	Code int // 128 + signal number where a signal ended it
}

// Error names the command and its exit code.
func (e *ExitError) Error() string { return fmt.Sprintf("%q exited with %d", e.Argv, e.Code) }

// record is what is kept of a VM between processes of the lab, in vms/NAME/vm.json.
type record struct {
	Spec    Spec      `json:"spec"`
	PID     int       `json:"pid"`        // of init, in the host's namespace; 0 before it is started
	Started uint64    `json:"start_time"` // of that process, in clock ticks since boot: tells it from a later one with its number
	Ready   bool      `json:"ready"`      // creation was completed
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
		return fmt.Errorf("VM %s: address %s must be inside the lab's network %s", s.Name, s.Address, s.Network.Prefix())
	case s.Address == s.Network.Gateway() || s.Address == s.Network.HostAddress():
		return fmt.Errorf("VM %s: address %s is the lab's own (gateway %s, host %s)", s.Name, s.Address, s.Network.Gateway(), s.Network.HostAddress())
	case s.PersistentDisk != "" && !filepath.IsAbs(s.PersistentDisk):
		return fmt.Errorf("VM %s: persistent disk %q must be an absolute path", s.Name, s.PersistentDisk)
	}
	if s.MAC != "" {
		if _, err := net.ParseMAC(s.MAC); err != nil {
			return fmt.Errorf("VM %s: MAC address: %w", s.Name, err)
		}
	}
	for _, b := range s.Binds {
		if !filepath.IsAbs(b.Source) || !filepath.IsAbs(b.Target) {
			return fmt.Errorf("VM %s: bind of %q at %q: both must be absolute paths", s.Name, b.Source, b.Target)
		}
	}
	return nil
}

func (s Spec) hostname() string {
	if s.Hostname != "" {
		return s.Hostname
	}
	return s.Name
}

// dir is the VM's own directory on the host.
func (s Spec) dir() string { return filepath.Join(s.StateDir, "vms", s.Name) }

// root is the VM's root directory on the host, on the host's own filesystem: overlay mounts work inside it.
func (s Spec) root() string { return filepath.Join(s.dir(), "root") }

// Dir returns the host directory of the VM's own files.
func (v *VM) Dir() string { return v.Spec.dir() }

// HostPath returns where a file of the VM can be read and written on the host. It holds for what is on the VM's own disk (/etc,
// /var, /tmp …), not for what is mounted in the VM only: /proc, /sys, /dev, /run, /usr, /var/vcap/store and the packages.
func (v *VM) HostPath(path string) string {
	return filepath.Join(v.Spec.root(), filepath.Clean("/"+path))
}

// ConsoleLog returns the host file that the VM's init and monit write to.
func (v *VM) ConsoleLog() string { return consoleLog(v.Spec) }

func consoleLog(s Spec) string { return filepath.Join(s.dir(), "console.log") }

// PID returns the process id of the VM's init as the host sees it, for /proc/PID/ns/* and nsenter.
func (v *VM) PID() int { return v.record.PID }

// Open finds a VM that some process made earlier. The error is ErrNotFound if there is none; a VM whose creation was not completed or
// whose processes have died is returned all the same, to be destroyed.
func Open(stateDir, name string) (*VM, error) {
	spec := Spec{Name: name, StateDir: stateDir}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("VM name %q: must be 1 to 63 letters, digits and dashes, with no dash at either end", name)
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

// List returns the names of the VMs of a lab, made completely or in part.
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

// Alive tells whether the VM was made completely and its init still runs.
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
