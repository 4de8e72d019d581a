// Package process tells processes apart by id and start time, since ids are used again.
package process

import (
	"fmt"
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

// maxLivingReads limits how often Living reads the status of a process that seems to have ended but may be in the
// middle of an exec.
const maxLivingReads = 10

// Living reads the status of a process that has not ended; if there is none with this id, that is an error.
func Living(pid int) (Stat, error) {
	stat, err := Read(pid)
	for reads := 1; err == nil && stat.vanishing() && reads < maxLivingReads; reads++ {
		stat, err = Read(pid)
	}
	if err != nil {
		return Stat{}, err
	}
	if stat.vanishing() || stat.Ended() && stat.Threads <= 1 {
		return Stat{}, fmt.Errorf("process %d has ended (state %c, %d threads)", pid, stat.State, stat.Threads)
	}
	return stat, nil
}

// vanishing tells whether the status is that of a thread while the kernel removes it, when no thread is left to count.
// It was either the last thread of a process, and the next read finds no process; or the first thread of a process in
// which another thread has just taken its place by an exec, and the next read finds that one. Before the exec the first
// thread is a zombie with other threads, whereas a process that has ended is a zombie with one thread.
func (s Stat) vanishing() bool { return s.State == 'X' || s.State == 'Z' && s.Threads == 0 }

// Runs tells whether the process with this id that was started then still runs.
func Runs(pid int, started uint64) bool {
	stat, err := Living(pid)
	return err == nil && stat.Started == started
}
