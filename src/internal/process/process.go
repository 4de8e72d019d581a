// Package process tells processes apart by id and start time, since ids are used again.
package process

import (
	"io/fs"
	"strings"

	"github.com/prometheus/procfs"
)

// Stat is the part of /proc/PID/stat that the callers need; see proc(5).
type Stat struct {
	// State is R, S, D, Z, T, t, X or I.
	State byte
	// Parent is the parent's id.
	Parent int
	// Threads is how many threads the process has; 0 while the kernel takes it away.
	Threads int
	// Started is in clock ticks since boot. Id and start time together name a process.
	Started uint64
}

// Read reads a process's status. For a process that does not exist the error is fs.ErrNotExist or syscall.ESRCH.
func Read(pid int) (Stat, error) {
	if pid <= 0 { // procfs would read its own
		return Stat{}, fs.ErrNotExist
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return Stat{}, err
	}
	stat, err := p.Stat()
	if err != nil {
		return Stat{}, err
	}
	return Stat{State: (stat.State + "?")[0], Parent: stat.PPID, Threads: stat.NumThreads, Started: stat.Starttime}, nil
}

// Ended tells whether a process has ended and only waits to be reaped.
func (s Stat) Ended() bool { return strings.ContainsRune("ZX", rune(s.State)) }

// Runs tells whether the process with this id that was started then still runs.
func Runs(pid int, started uint64) bool {
	stat, err := Read(pid)
	return err == nil && stat.Started == started && !stat.Ended()
}
