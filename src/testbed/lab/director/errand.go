package director

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"kubernetes-release/internal/spelling"
)

// ErrandResult is the result of an errand on one instance.
type ErrandResult struct {
	Instance string
	ExitCode int
	// Stdout and Stderr are its output, unless that was written to the caller's writers.
	Stdout, Stderr string
}

// RunErrand runs an errand of the prepared plan. The name is that of a job with bin/run, which runs on every instance
// that has it, or of an instance group with lifecycle errand, whose VMs are created for the errand and deleted
// afterwards unless keepAlive is set. If there is only one instance, output is written to stdout and stderr as it
// appears.
func (d *Director) RunErrand(
	ctx context.Context, plan *Plan, name string, keepAlive bool, stdout, stderr io.Writer,
) ([]ErrandResult, error) {
	results, err := d.runErrand(ctx, plan, name, keepAlive, stdout, stderr)
	succeeded := err == nil && !slices.ContainsFunc(results, func(r ErrandResult) bool { return r.ExitCode != 0 })
	return results, errors.Join(err, d.Store.Update(func(s *State) {
		if s.Errands == nil {
			s.Errands = map[string]string{}
		}
		delete(s.Errands, name)
		if succeeded {
			s.Errands[name] = s.digest()
		}
	}))
}

// ErrandSucceeded reports whether the errand's last run succeeded and nothing has changed since, so that `bosh
// run-errand --when-changed` would not run it again.
func (d *Director) ErrandSucceeded(name string) bool {
	return d.Store.State.Errands[name] == d.Store.State.digest()
}

func (d *Director) runErrand(
	ctx context.Context, plan *Plan, name string, keepAlive bool, stdout, stderr io.Writer,
) ([]ErrandResult, error) {
	for _, group := range plan.Groups {
		if group.Spec.Name == name && group.Spec.IsErrand() {
			return d.runErrandGroup(ctx, plan, group, keepAlive, stdout, stderr)
		}
	}
	var targets []*Instance
	for _, group := range plan.Groups {
		has := slices.ContainsFunc(group.Jobs, func(j *Job) bool { return j.Job.Name == name && j.isErrand() })
		for _, planned := range group.Instances {
			if i := planned.Instance; has && !i.Errand && i.DesiredState == Started && i.VM != nil {
				targets = append(targets, i)
			}
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("Errand '%s' doesn't exist%s; errands are: %s",
			name, spelling.Hint(name, plan.errands()), strings.Join(plan.errands(), ", "))
	}
	return d.runErrandOn(ctx, name, targets, stdout, stderr)
}

// isErrand reports whether the job has bin/run.
func (j *Job) isErrand() bool {
	for _, target := range j.Job.Templates {
		if target == "bin/run" {
			return true
		}
	}
	return false
}

func (p *Plan) errands() []string {
	var names []string
	for _, group := range p.Groups {
		if group.Spec.IsErrand() {
			names = append(names, group.Spec.Name)
		}
		for _, job := range group.Jobs {
			if job.isErrand() && !slices.Contains(names, job.Job.Name) {
				names = append(names, job.Job.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (d *Director) runErrandOn(
	ctx context.Context, job string, targets []*Instance, stdout, stderr io.Writer,
) ([]ErrandResult, error) {
	results := make([]ErrandResult, len(targets))
	numbers := make([]int, len(targets))
	for n := range numbers {
		numbers[n] = n
	}
	err := inParallel(numbers, len(targets), func(n int) error {
		i := targets[n]
		task := d.Progress.Begin("Running errand "+job, i.String())
		var out, problems bytes.Buffer
		outWriter, errWriter := stdout, stderr
		if len(targets) > 1 {
			outWriter, errWriter = &out, &problems
		}
		code, err := d.runErrandScript(ctx, i, job, outWriter, errWriter)
		results[n] = ErrandResult{Instance: i.String(), ExitCode: code, Stdout: out.String(), Stderr: problems.String()}
		if err == nil && code != 0 {
			task.Step("exit code %d", code)
		}
		task.End(err)
		return err
	})
	return results, err
}

func (d *Director) runErrandScript(
	ctx context.Context, i *Instance, job string, stdout, stderr io.Writer,
) (int, error) {
	a, err := d.CPI.Agent(*i.VM)
	if err != nil {
		return 0, err
	}
	code, err := a.RunErrand(ctx, job, stdout, stderr)
	if err != nil {
		return code, fmt.Errorf("running errand '%s' on %s: %w", job, i, err)
	}
	return code, nil
}

// runErrandGroup deploys the group's instances, runs the first errand job of each, and deletes the VMs.
func (d *Director) runErrandGroup(
	ctx context.Context, plan *Plan, group *InstanceGroup, keepAlive bool, stdout, stderr io.Writer,
) (results []ErrandResult, err error) {
	index := slices.IndexFunc(group.Jobs, func(j *Job) bool { return j.isErrand() })
	if index < 0 {
		return nil, fmt.Errorf("none of the jobs of the errand group '%s' has a template bin/run", group.Spec.Name)
	}
	run := &deployment{Director: d, plan: plan, touched: &atomic.Int64{}, fresh: map[string]bool{}}
	var targets []*Instance
	for _, planned := range group.Instances {
		targets = append(targets, planned.Instance)
	}
	if !keepAlive {
		defer func() {
			for _, i := range targets {
				if i.VM == nil {
					continue
				}
				task := d.Progress.Begin("Deleting errand instances", i.String())
				cleanup := d.stopAndDeleteVM(context.WithoutCancel(ctx), i, task)
				task.End(cleanup)
				if err == nil {
					err = cleanup
				}
			}
		}()
	}
	for _, planned := range group.Instances {
		c := &change{planned: planned, state: Started, reasons: []string{"errand"}}
		if err := run.update(ctx, c); err != nil {
			return nil, err
		}
	}
	return d.runErrandOn(ctx, group.Jobs[index].Job.Name, targets, stdout, stderr)
}

// stopAndDeleteVM stops an instance and deletes its VM; the instance is kept.
func (d *Director) stopAndDeleteVM(ctx context.Context, i *Instance, task *Task) error {
	if err := d.stop(ctx, i, task, map[string]string{
		"BOSH_VM_NEXT_STATE": "delete", "BOSH_INSTANCE_NEXT_STATE": "keep", "BOSH_DEPLOYMENT_NEXT_STATE": "keep",
	}); err != nil {
		return err
	}
	return d.deleteVM(ctx, i, task)
}

// DeleteDeployment stops and deletes all instances, as `bosh delete-deployment` does, in reverse order of creation.
// After a failure it continues with the other instances.
func (d *Director) DeleteDeployment(ctx context.Context) []error {
	var problems []error
	instances := slices.Clone(d.Store.State.Instances)
	slices.Reverse(instances)
	for _, i := range instances {
		task := d.Progress.Begin("Deleting instances", i.String())
		err := d.deleteInstance(ctx, i, task, "delete")
		task.End(err)
		if err != nil {
			problems = append(problems, fmt.Errorf("deleting instance %s: %w", i, err))
		}
	}
	return problems
}
