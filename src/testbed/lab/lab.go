// Package lab is a lab on one machine: a state directory, a network of its own, the process that simulates the cloud,
// and what commands show. The packages below it deploy a release there by a Director, on VMs made of namespaces, and
// use and remove what was deployed. It is the release's test bed; jobs/ and packages/ do not depend on it.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/filelock"
	"kubernetes-release/internal/logging"
	"kubernetes-release/release/progress"
	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/vm"
)

// Lab is one lab, as commands on one of its deployments see it. All its state is in its directory.
type Lab struct {
	// Root is the lab's directory, absolute.
	Root string
	// Dir is the state directory of the deployment: Root, or a directory below it of a further deployment.
	Dir     string
	Network network.Network
	// Out and Err are the operator's terminal.
	Out, Err io.Writer
	// Verbose shows each variable, package and step of a deploy.
	Verbose bool
	// Executable is this program, which also runs as the cloud process.
	Executable string
	// BPM is the program that substitutes bpm.
	BPM string
	// Log receives what commands show and more; it is discarded until OpenLog.
	Log *slog.Logger

	// display and shown are what the command that runs is shown on; see StartDisplay.
	display *progress.Display
	shown   *director.Progress
	// created is whether this process has created the lab.
	created bool
}

// settings are chosen when a lab is created.
type settings struct {
	Network int `json:"network"`
}

// errNoLab means that the state directory holds no lab.
var errNoLab = errors.New("there is no lab")

// Open opens the lab in dir. If there is none it is created if create is set, with a free network; otherwise the error
// satisfies IsNoLab.
func Open(dir string, create bool) (*Lab, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &Lab{
		Root: dir, Dir: dir, Out: os.Stdout, Err: os.Stderr, Executable: executable,
		BPM: filepath.Join(filepath.Dir(executable), "bpm"), Log: slog.New(slog.DiscardHandler),
	}
	text, err := os.ReadFile(l.Path("lab.json"))
	switch {
	case err == nil:
		var s settings
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", l.Path("lab.json"), err)
		}
		l.Network = network.Network{Number: s.Network}
		return l, l.Network.Check()
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	case !create:
		return l, fmt.Errorf("%w in %s; `bin/lab up` creates one", errNoLab, dir)
	}
	return l, l.create()
}

// deploymentName is what the name of a further deployment can be.
var deploymentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// OpenDeployment opens the lab in dir, as Open does, for commands on a further deployment of its Director, or on the
// first one if name is empty. Deployments of a lab share its network and its account.
func OpenDeployment(dir, name string, create bool) (*Lab, error) {
	if name != "" && !deploymentName.MatchString(name) {
		return nil, fmt.Errorf("deployment '%s': must be letters, digits, dashes and underscores", name)
	}
	l, err := Open(dir, create)
	if name != "" && l != nil {
		l.Dir = vm.DeploymentDir(l.Root, name)
	}
	return l, err
}

// Deployments are the lab as commands on each of its deployments see it.
func (l *Lab) Deployments() ([]*Lab, error) {
	dirs, err := vm.StateDirs(l.Root)
	var all []*Lab
	for _, dir := range dirs {
		deployment := *l
		deployment.Dir = dir
		all = append(all, &deployment)
	}
	return all, err
}

// create chooses a network for the lab, records it and creates it.
func (l *Lab) create() (err error) {
	if l.Network, err = network.Choose(); err != nil {
		return err
	}
	text, err := json.Marshal(settings{Network: l.Network.Number})
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(l.Root, "lab.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	l.created = true
	return l.Network.Create()
}

// Abandon undoes create, for a first deploy that failed before anything was started.
func (l *Lab) Abandon() error {
	if !l.created {
		return nil
	}
	return errors.Join(l.Network.Destroy(), os.Remove(filepath.Join(l.Root, "lab.json")))
}

// Account is the lab's AWS account.
func (l *Lab) Account() account.Account {
	return account.Account{Dir: l.Root, Network: l.Network, Executable: l.Executable}
}

// Path returns a path below the state directory of the deployment.
func (l *Lab) Path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// Lock lets one command at a time change the lab. The kernel releases the lock when the process exits.
func (l *Lab) Lock(command string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	holder := fmt.Sprintf("lab %s, process %d, since %s", command, os.Getpid(), logging.Time(time.Now()))
	release, err = filelock.Acquire(ctx, filepath.Join(l.Root, "lock"), holder, nil)
	if held := (*filelock.HeldError)(nil); errors.As(err, &held) {
		return nil, fmt.Errorf(
			"another command is changing this lab: %s; wait for it, or use --state for a second lab", held.Holder,
		)
	}
	return release, err
}

// lockTimeout is how long a command waits for another one that was killed to exit.
const lockTimeout = 2 * time.Second

// OpenLog opens log/lab.log, to which commands append what they show and more.
func (l *Lab) OpenLog() error {
	if err := os.MkdirAll(l.Path("log"), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.Path("log", "lab.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	l.Log = logging.New(f) // closed when the process exits
	return nil
}

// IsNoLab reports whether an error of Open means that the directory holds no lab.
func IsNoLab(err error) bool { return errors.Is(err, errNoLab) }

// VarsStore is the file of generated variables.
func (l *Lab) VarsStore() string { return l.Path("vars.yml") }
