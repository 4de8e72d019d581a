// Package lab ties the lab together: a state directory, a network of its own, the process that plays the cloud, and a Director
// that deploys a release on VMs made of namespaces. It is the release's test bed; nothing in jobs/ or packages/ knows it.
package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/progress"
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
	// Verbose shows each variable, package and step of a deploy.
	Verbose bool
	// Executable is the lab's own program, to be started again for the cloud process.
	Executable string
	// BPM is the stand-in for bpm.
	BPM string

	log *slog.Logger
	// display and shown are what the command that runs is shown on; see StartDisplay.
	display *progress.Display
	shown   *director.Progress
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

// settle chooses the lab's network, makes it and writes it down. Labs that are made at the same time take turns, so that no two
// choose the same.
func (l *Lab) settle() error {
	turn, err := os.Open("/run")
	if err != nil {
		return err
	}
	defer turn.Close()
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for other labs to choose their network: %w", err)
	}
	if l.Network, err = network.Choose(); err != nil {
		return err
	}
	text, err := json.Marshal(settings{Network: l.Network.Number})
	if err != nil {
		return err
	}
	if err := director.WriteFile(l.path("lab.json"), append(text, '\n'), 0o644); err != nil {
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
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(l.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f, lockPatience); err != nil {
		holder, _ := os.ReadFile(l.path("lock"))
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another command is at work on this lab: %s; wait for it, or use --state for a second lab", strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("locking %s: %w", l.path("lock"), err)
	}
	// Only for the message above; a full disk must not keep a lab from being removed.
	note := fmt.Sprintf("lab %s, process %d, since %s\n", command, os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	if f.Truncate(0) == nil {
		f.WriteAt([]byte(note), 0) //nolint:errcheck // see above
	}
	return func() { f.Close() }, nil
}

// lockPatience is how long a command waits for one that was killed to be gone.
const lockPatience = 2 * time.Second

func flock(f *os.File, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// OpenLog appends what commands do to log/lab.log, beside what is shown.
func (l *Lab) OpenLog() error {
	if err := os.MkdirAll(l.path("log"), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path("log", "lab.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	l.log = slog.New(slog.NewTextHandler(f, nil)) // closed by the end of the process
	return nil
}

// IsNoLab says whether an error of Open means that the directory holds no lab.
func IsNoLab(err error) bool { return errors.Is(err, errNoLab) }
