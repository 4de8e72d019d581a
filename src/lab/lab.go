// Package lab ties the lab together: a state directory, a network of its own, the process that plays the cloud, and a Director
// that deploys a release on VMs made of namespaces. It is the release's test bed; nothing in jobs/ or packages/ knows it.
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
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/filelock"
	"kubernetes-release/internal/logging"
	"kubernetes-release/lab/director"
	"kubernetes-release/lab/network"
)

// Lab is one lab. Its state directory holds all that is known of it.
type Lab struct {
	// Dir is the state directory, absolute.
	Dir     string
	Network network.Network
	// Out and Err are what an operator sees.
	Out, Err io.Writer
	// Terminal says that Out is a terminal.
	Terminal bool
	// Executable is the lab's own program, to be started again for the cloud process.
	Executable string
	// BPM is the stand-in for bpm.
	BPM string

	log *slog.Logger
	// fresh says that this process has made the lab.
	fresh bool
}

// settings is what a lab decides once.
type settings struct {
	Network int `json:"network"`
}

// errNoLab says that there is nothing in the state directory.
var errNoLab = errors.New("there is no lab")

// Open opens the lab in dir. A lab that does not exist yet gets a free network number when create is set; else that is an
// error that says what to do.
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
		Dir: dir, Out: os.Stdout, Err: os.Stderr, Executable: executable,
		BPM: filepath.Join(filepath.Dir(executable), "bpm"), log: slog.New(slog.DiscardHandler),
	}
	text, err := os.ReadFile(l.path("lab.json"))
	switch {
	case err == nil:
		var s settings
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", l.path("lab.json"), err)
		}
		l.Network = network.Network{Number: s.Network}
		return l, l.Network.Check()
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	case !create:
		return l, fmt.Errorf("%w in %s; `bin/lab up` makes one", errNoLab, dir)
	}
	return l, l.settle()
}

// settle chooses a network for the lab, records it and creates it.
func (l *Lab) settle() (err error) {
	if l.Network, err = network.Choose(); err != nil {
		return err
	}
	text, err := json.Marshal(settings{Network: l.Network.Number})
	if err != nil {
		return err
	}
	if err := atomicfile.Write(l.path("lab.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	l.fresh = true
	return l.Network.Create()
}

// abandon undoes settle, for a first deploy that was refused before anything was started.
func (l *Lab) abandon() error {
	if !l.fresh {
		return nil
	}
	return errors.Join(l.Network.Destroy(), os.Remove(l.path("lab.json")))
}

// path gives a path below the state directory.
func (l *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// Lock makes sure that only one command changes the lab at a time. The lock is released when the process ends, however it ends.
func (l *Lab) Lock(command string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	holder := fmt.Sprintf("lab %s, process %d, since %s", command, os.Getpid(), logging.Time(time.Now()))
	release, err = filelock.Acquire(ctx, l.path("lock"), holder, nil)
	if held := (*filelock.HeldError)(nil); errors.As(err, &held) {
		return nil, fmt.Errorf("another command is changing this lab: %s; wait for it, or use --state for a second lab", held.Holder)
	}
	return release, err
}

// lockTimeout is how long a command waits for another one that was killed to exit.
const lockTimeout = 2 * time.Second

// OpenLog appends what commands do to log/lab.log, beside what is shown.
func (l *Lab) OpenLog() error {
	if err := os.MkdirAll(l.path("log"), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path("log", "lab.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	l.log = logging.New(f) // closed by the end of the process
	return nil
}

func (l *Lab) progress() *director.Progress {
	return &director.Progress{Out: l.Out, Log: l.log, Colour: l.Terminal}
}

// IsNoLab says whether an error of Open means that the directory holds no lab.
func IsNoLab(err error) bool { return errors.Is(err, errNoLab) }
