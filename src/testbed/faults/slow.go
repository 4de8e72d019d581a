package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/lab/vm"
)

// slowDown delays each synchronization of a process's files with the disk until ctx ends. Kernels of test machines may
// lack what delays a whole disk (dm-delay), so strace delays the process's system calls.
func slowDown(ctx context.Context, v *vm.VM, pid int, delay time.Duration) error {
	var out bytes.Buffer
	command := append(DelayCalls("fsync,fdatasync,sync_file_range,msync", delay), "-p", strconv.Itoa(pid))
	err := v.Run(ctx, command, vm.RunOptions{Stdout: &out, Stderr: &out})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	return fmt.Errorf("strace has ended: %w: %s", err, tail.Lines(out.String(), 5))
}

// DelayCalls returns the command that delays a process and its children after each of these system calls; -p PID
// follows.
func DelayCalls(calls string, delay time.Duration) []string {
	return []string{
		"strace", "-f", "-q", "-o", "/dev/null", "-e", "trace=" + calls,
		"-e", fmt.Sprintf("inject=%s:delay_exit=%d", calls, delay.Microseconds()),
	}
}

// traced returns nil once strace has taken over a process.
func traced(ctx context.Context, c *Cluster, m *machine, pid int) error {
	_, err := c.in(
		ctx, m, "sh", "-c", fmt.Sprintf("grep -v '^TracerPid:.0$' /proc/%d/status | grep -q ^TracerPid:", pid),
	)
	return err
}

// slowDisk delays etcd's disk on all VMs for a while.
func slowDisk(ctx context.Context, c *Cluster) ([]Part, error) {
	slow, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(c.control()))
	for _, m := range c.control() {
		processes, err := c.processes(ctx, m)
		if err != nil {
			return nil, err
		}
		v, err := c.vm(m)
		if err != nil {
			return nil, err
		}
		go func() { ended <- slowDown(slow, v, processes["etcd"], fsyncDelay) }()
		if err := poll.Within(
			ctx, time.Minute, 100*time.Millisecond,
			func(ctx context.Context) error { return traced(ctx, c, m, processes["etcd"]) },
		); err != nil {
			return nil, fmt.Errorf("strace of etcd on %s: %w", m.name, err)
		}
	}
	leader, err := c.etcdLeader(ctx)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	var slowest time.Duration
	for time.Since(started) < slowTime {
		sent := time.Now()
		if err := writable(ctx, c.control()); err != nil {
			return nil, fmt.Errorf("with a slow disk: %w", err)
		}
		slowest = max(slowest, time.Since(sent))
		if err := poll.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	now, err := c.etcdLeader(ctx)
	if err == nil && now != leader {
		err = fmt.Errorf("etcd's leader has moved from %s to %s", leader.name, now.name)
	}
	stop()
	for range c.control() {
		err = errors.Join(err, <-ended)
	}
	return []Part{{"slowest write while each fsync takes " + fsyncDelay.String(), slowest}}, err
}

const (
	fsyncDelay = 100 * time.Millisecond
	slowTime   = 30 * time.Second
)
