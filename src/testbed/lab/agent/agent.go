// Package agent does for a VM of the lab what bosh-agent does for a VM of a Director: it installs jobs and packages,
// runs lifecycle scripts, drains, and starts and stops processes through the VM's monit. It follows BOSH's
// documentation (https://bosh.io/docs/job-lifecycle/ and related pages), so that what passes here passes under a
// Director.
package agent

import (
	"context"
	"io"
	"strings"
)

// Agent is the part of bosh-agent that the Director calls, for one VM. Any process of the lab may call its methods: the
// agent keeps its state in the VM.
type Agent interface {
	// Apply installs rendered jobs and compiled packages, removes those that only an earlier spec names, and keeps the
	// spec for Start. It starts nothing, and leaves monit without services until Start, as bosh-agent does. Like Start
	// it reloads monit, which ends every process that is in the control group of monit's unit.
	Apply(ctx context.Context, s ApplySpec) error

	// RunScript runs bin/NAME (pre-start, post-start, post-deploy, pre-stop or post-stop) of every job that has it, in
	// parallel, with env added to the environment. Output goes to /var/vcap/sys/log/JOB/NAME.{stdout,stderr}.log. If a
	// script fails the error is a *ScriptError.
	RunScript(ctx context.Context, name string, env map[string]string) error

	// RunErrand runs bin/run of job and copies its output to stdout and stderr as it is written. The exit code is the
	// script's; err is set only if it could not be run.
	RunErrand(ctx context.Context, job string, stdout, stderr io.Writer) (exitCode int, err error)

	// Drain runs every job's bin/drain in parallel and waits as long as each prints: if it prints n >= 0, for n
	// seconds; if n < 0, the script is called again after -n seconds. The exit code does not matter.
	Drain(ctx context.Context, env map[string]string) error

	// Start configures monit for the applied jobs and tells it to start the services of group vcap. It does not wait
	// until they run; State reports that.
	Start(ctx context.Context) error

	// Stop stops the services of group vcap and waits until none has a process, at most five minutes.
	Stop(ctx context.Context) error

	// Unmonitor tells monit to stop monitoring the services of group vcap, as bosh-agent does before it drains them, so
	// that a process that exits while it drains is not restarted. It does not wait until monit has done so.
	Unmonitor(ctx context.Context) error

	// State returns the state of the VM's processes, from monit.
	State(ctx context.Context) (State, error)

	// CheckDNS does what the bosh-dns of the VM does whenever it starts: it reads all jobs as vcap. The error names
	// what bosh-dns cannot read.
	CheckDNS(ctx context.Context) error

	// JobHealth runs the health scripts of the jobs that have one, and returns Running or Failing by job.
	JobHealth(ctx context.Context) (map[string]RunState, error)
}

// RunState is the state of an instance or of one of its processes, named as the Director does.
type RunState string

// States of an instance and of its processes.
const (
	// Running means that monit monitors every process and found no error.
	Running RunState = "running"
	// Starting means that at least one process is starting and none has failed.
	Starting RunState = "starting"
	// Failing means that a process is not running or not monitored.
	Failing RunState = "failing"
	// Stopped means that the processes were stopped on request.
	Stopped RunState = "stopped"
)

// ApplySpec is the desired content of a VM.
type ApplySpec struct {
	Instance Instance  `json:"instance"`
	Jobs     []Job     `json:"jobs"`     // in manifest order
	Packages []Package `json:"packages"` // in any order
}

// Instance identifies a VM's instance in the deployment; it is written to /var/vcap/bosh/spec.json, and in part to
// /var/vcap/instance.
type Instance struct {
	Deployment string `json:"deployment"`
	Group      string `json:"group"`
	ID         string `json:"id"`
	Index      int    `json:"index"`
	AZ         string `json:"az"`
	Address    string `json:"address"`
	Bootstrap  bool   `json:"bootstrap"`
}

// Job is one rendered job.
type Job struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"` // changes whenever a rendered file changes
	Dir         string `json:"dir"`         // on the host, with monit, bin/, config/ ...; copied into the VM
}

// Package is one compiled package.
type Package struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	// on the host; bind-mounted read-only into the VM, so that all VMs share its page cache
	Dir string `json:"dir"`
}

// State is the state of a VM's processes.
type State struct {
	State     RunState // Running, Starting, Failing or Stopped
	Processes []Process
	// FullDisks are the mount points of the VM's disks that are full; checked only if a process does not run.
	FullDisks []string
}

// Problem says which processes do not run, and which disks are full. It is empty if all processes run.
func (s State) Problem() string {
	var conditions []string // in monit's order
	names := map[string][]string{}
	for _, p := range s.Processes {
		if p.State == Running || p.State == Stopped {
			continue
		}
		condition := string(p.State)
		if p.Message != "" {
			condition += " (" + p.Message + ")"
		}
		if names[condition] == nil {
			conditions = append(conditions, condition)
		}
		names[condition] = append(names[condition], p.Name)
	}
	var parts []string
	for _, condition := range conditions {
		verb := " is "
		if len(names[condition]) > 1 {
			verb = " are "
		}
		parts = append(parts, strings.Join(names[condition], ", ")+verb+condition)
	}
	for _, disk := range s.FullDisks {
		parts = append(parts, "the VM's disk is full: there is no space left on "+disk)
	}
	return strings.Join(parts, "; ")
}

// Process is one service of monit's group vcap.
type Process struct {
	Name    string   // monit's service name
	State   RunState // Running, Starting, Failing or Stopped
	PID     int      // 0 if it does not run
	Message string   // monit's error message; may be empty
}
