// Package agent does to a VM of the lab what bosh-agent does to a VM of a Director: it puts jobs and packages in place, runs
// lifecycle scripts, drains, and starts and stops processes through the VM's monit. The rules follow the documents of BOSH
// (https://bosh.io/docs/job-lifecycle/ and its neighbours), so that what passes here passes under a Director.
package agent

import (
	"context"
	"io"
	"strings"
)

// Agent is the part of bosh-agent that the Director talks to, for one VM. All methods may be called by any process of the lab:
// what an agent knows of its VM is kept in the VM.
type Agent interface {
	// Apply puts rendered jobs and compiled packages in place, removes those of an earlier spec that are no longer named, and
	// keeps the spec for Start. Nothing is started, and monit learns of the jobs only at Start, as with bosh-agent.
	Apply(ctx context.Context, s ApplySpec) error

	// RunScript runs bin/NAME of every job that has it, all jobs in parallel (pre-start, post-start, post-deploy, pre-stop,
	// post-stop), with env added. Output goes to /var/vcap/sys/log/JOB/NAME.{stdout,stderr}.log. A failure is a
	// *ScriptError, which names the failed jobs with the last lines of what they wrote.
	RunScript(ctx context.Context, name string, env map[string]string) error

	// RunErrand runs bin/run of job, with its output copied to stdout and stderr as it appears. The exit code is the script's;
	// err is set only where it could not be run.
	RunErrand(ctx context.Context, job string, stdout, stderr io.Writer) (exitCode int, err error)

	// Drain runs every job's bin/drain in parallel and waits as their output asks: a number n >= 0 is waited for in seconds, after
	// a number n < 0 the script is called again after -n seconds.
	Drain(ctx context.Context, env map[string]string) error

	// Start gives the applied jobs to monit and tells it to start those of group vcap. State says when they run.
	Start(ctx context.Context) error

	// Stop stops all processes of group vcap and waits until none is left.
	Stop(ctx context.Context) error

	// Unmonitor tells monit to leave the processes of group vcap alone, as the Director does before it drains them, so that a
	// process that ends while it drains isn't started again.
	Unmonitor(ctx context.Context) error

	// State asks monit for the state of the VM's processes.
	State(ctx context.Context) (State, error)
}

// Aggregate states of an instance, in the Director's words.
const (
	// Running means that monit watches every process and found nothing wrong.
	Running = "running"
	// Starting means that at least one process is being started and none has failed.
	Starting = "starting"
	// Failing means that a process isn't running or isn't monitored, though it should be.
	Failing = "failing"
	// Stopped means that the processes were stopped on request.
	Stopped = "stopped"
)

// ApplySpec says what a VM should hold.
type ApplySpec struct {
	Instance Instance  `json:"instance"`
	Jobs     []Job     `json:"jobs"`     // in manifest order
	Packages []Package `json:"packages"` // in any order
}

// Instance is what a VM knows about its place in the deployment; it is kept in /var/vcap/instance and /var/vcap/bosh/spec.json.
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
	Dir         string `json:"dir"`         // host directory that holds monit, bin/, config/…; copied into the VM
}

// Package is one compiled package.
type Package struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Dir         string `json:"dir"` // host directory; bound read-only into the VM, so all VMs share its page cache
}

// State is what monit says of a VM.
type State struct {
	State     string // Running, Starting, Failing or Stopped
	Processes []Process
	// FullDisks names the VM's disks that have no room, by what is on them; looked at only where a process does not run.
	FullDisks []string
}

// Problem says which processes do not run, and whether the reason may be a full disk; empty if all is well.
func (s State) Problem() string {
	var conditions []string // in the order in which monit names processes
	names := map[string][]string{}
	for _, p := range s.Processes {
		if p.State == Running || p.State == Stopped {
			continue
		}
		condition := p.State
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

// Process is monit's view of one service of group vcap.
type Process struct {
	Name    string // monit's service name
	State   string // Running, Starting, Failing or Stopped
	PID     int    // 0 while it doesn't run
	Message string // monit's words about what is wrong, empty if nothing is
}
