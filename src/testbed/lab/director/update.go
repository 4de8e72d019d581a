package director

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab/agent"
)

// change is an instance that must be updated, and why.
type change struct {
	planned *InstancePlan
	// reasons are shown to people; recreate is whether a new VM is required.
	reasons  []string
	recreate bool
	canary   bool
	// state is the state that the instance has after the update.
	state DesiredState
	// tagsOnly is whether nothing but the tags has changed.
	tagsOnly bool
}

// changed lists the group's instances that differ from the plan, in the order of updates.
func (r *deployment) changed(ctx context.Context, group *InstanceGroup) []*change {
	var list []*change
	for _, planned := range group.Instances {
		if planned.Instance.Errand || !r.inScope(planned.Instance) {
			continue
		}
		if c := r.compare(ctx, planned); c != nil {
			list = append(list, c)
		}
	}
	return list
}

// compare returns the change that the instance needs, nil if none.
func (r *deployment) compare(ctx context.Context, planned *InstancePlan) *change {
	i := planned.Instance
	c := &change{planned: planned, state: r.desiredState(i)}
	if c.state != i.DesiredState {
		c.reasons = append(c.reasons, fmt.Sprintf("state: %s to %s", i.DesiredState, c.state))
	}
	if c.state == Detached && i.VM == nil || c.state == Stopped && i.DesiredState == Stopped {
		if len(c.reasons) == 0 {
			return nil
		}
		return c
	}
	if c.state != Started {
		return c
	}
	if i.Applied == nil {
		c.reasons = append(c.reasons, "not deployed yet")
	} else {
		vm := differences(i.Applied.VM, planned.Desired.VM, "")
		c.recreate = len(vm) > 0
		c.reasons = append(c.reasons, vm...)
		c.reasons = append(c.reasons, differences(i.Applied.Jobs, planned.Desired.Jobs, "job ")...)
		c.reasons = append(c.reasons, differences(i.Applied.Packages, planned.Desired.Packages, "package ")...)
	}
	if r.lost(ctx, i) {
		c.recreate = true
		c.reasons = append(c.reasons, "its agent does not answer")
	}
	if r.options.Action == Recreate || r.options.Action == Restart {
		c.reasons = append(c.reasons, string(r.options.Action))
		c.recreate = c.recreate || r.options.Action == Recreate && !r.fresh[i.ID]
	}
	if len(c.reasons) == 0 {
		switch state, err := r.state(ctx, i); {
		case err != nil:
			c.reasons = append(c.reasons, "its processes are unknown ("+err.Error()+")")
		case state != agent.Running:
			c.reasons = append(c.reasons, "its processes are "+string(state))
		}
	}
	if i.VM != nil && !maps.Equal(i.VM.Tags, r.plan.tags(planned)) {
		c.tagsOnly = len(c.reasons) == 0
		c.reasons = append(c.reasons, "tags")
	}
	if len(c.reasons) == 0 {
		return nil
	}
	return c
}

// state asks the VM of an instance for the state of its processes.
func (r *deployment) state(ctx context.Context, i *Instance) (agent.RunState, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	a, err := r.CPI.Agent(*i.VM)
	if err != nil {
		return "", err
	}
	state, err := a.State(ctx)
	return state.State, err
}

// differences returns the keys whose values differ between two maps.
func differences(have, want map[string]string, prefix string) []string {
	all := map[string]string{}
	maps.Copy(all, have)
	maps.Copy(all, want)
	var names []string
	for _, key := range sortedKeys(all) {
		if have[key] != want[key] {
			names = append(names, prefix+key)
		}
	}
	return names
}

// update updates an instance and shows that as a task.
func (r *deployment) update(ctx context.Context, c *change) error {
	i := c.planned.Instance
	name := i.String()
	if c.canary {
		name += " (canary)"
	}
	task := r.Progress.Begin("Updating instance "+i.Group, name)
	r.touched.Add(1)
	if i.Applied != nil || i.DesiredState != c.state {
		task.Step("changed: %s", strings.Join(c.reasons, ", "))
	}
	err := r.updateInstance(ctx, c, task)
	task.End(err)
	if err != nil {
		return fmt.Errorf("updating instance %s: %w", i.String(), err)
	}
	return nil
}

func (r *deployment) updateInstance(ctx context.Context, c *change, task *Task) error {
	i := c.planned.Instance
	if c.tagsOnly {
		return r.setTags(ctx, c.planned, task)
	}
	wasStopped := i.DesiredState == Stopped
	if c.state != Stopped {
		// Nothing counts as applied during the update, so that it is repeated if it is interrupted.
		if err := r.Store.Update(func(*State) { i.Applied = nil }); err != nil {
			return err
		}
	}
	if i.VM != nil && !wasStopped {
		next := "keep"
		if c.recreate || c.state == Detached {
			next = "delete"
		}
		if err := r.stop(ctx, i, task, map[string]string{
			"BOSH_VM_NEXT_STATE": next, "BOSH_INSTANCE_NEXT_STATE": "keep", "BOSH_DEPLOYMENT_NEXT_STATE": "keep",
		}); err != nil {
			return err
		}
	}
	if c.state == Detached && i.VM != nil {
		if err := r.deleteVM(ctx, i, task); err != nil {
			return err
		}
	}
	if err := r.Store.Update(func(*State) { i.DesiredState = c.state }); err != nil {
		return err
	}
	if c.state != Started {
		return r.publish(r.plan)
	}
	if c.recreate || i.VM == nil {
		if err := r.createVM(ctx, c.planned, task); err != nil {
			return err
		}
		if err := r.publish(r.plan); err != nil {
			return err
		}
	}
	if err := r.setTags(ctx, c.planned, task); err != nil {
		return err
	}
	if err := r.apply(ctx, c.planned, task); err != nil {
		return err
	}
	if err := r.start(ctx, c, task); err != nil {
		return err
	}
	return r.Store.Update(func(*State) {
		applied := c.planned.Desired
		i.Applied = &applied
	})
}

// stop stops an instance as a Director does: pre-stop, drain, monit stop, post-stop. It does nothing for a VM without
// jobs or one that is dead.
func (d *Director) stop(ctx context.Context, i *Instance, task *Task, env map[string]string) error {
	if !i.VM.exists() || !i.VM.HasJobs || !d.CPI.HasVM(ctx, *i.VM) {
		return nil
	}
	a, err := d.CPI.Agent(*i.VM)
	if err != nil {
		return err
	}
	task.Step("executing pre-stop")
	if err := script(ctx, a, "pre-stop", env); err != nil {
		return err
	}
	task.Step("executing drain")
	if err := a.Unmonitor(ctx); err != nil {
		return fmt.Errorf("unmonitoring the processes: %w", err)
	}
	if err := withLimit(ctx, drainLimit, func(ctx context.Context) error { return a.Drain(ctx, nil) }); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	task.Step("stopping jobs")
	if err := a.Stop(ctx); err != nil {
		return fmt.Errorf("stopping jobs: %w", err)
	}
	task.Step("executing post-stop")
	return script(ctx, a, "post-stop", nil)
}

// Limits for waits that are unlimited under a Director.
const (
	scriptLimit = 30 * time.Minute
	drainLimit  = time.Hour
)

func script(ctx context.Context, a agent.Agent, name string, env map[string]string) error {
	if err := withLimit(
		ctx, scriptLimit, func(ctx context.Context) error { return a.RunScript(ctx, name, env) },
	); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// withLimit calls do with a deadline, which the error names if it has passed.
func withLimit(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(inner)
	if err != nil && ctx.Err() == nil && errors.Is(inner.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not finished after %s: %w", limit, err)
	}
	return err
}

func (r *deployment) setTags(ctx context.Context, planned *InstancePlan, task *Task) error {
	i, tags := planned.Instance, r.plan.tags(planned)
	if maps.Equal(i.VM.Tags, tags) {
		return nil
	}
	task.Step("setting VM metadata")
	if err := r.CPI.SetTags(ctx, *i.VM, tags); err != nil {
		return fmt.Errorf("setting the VM's tags: %w", err)
	}
	return r.Store.Update(func(*State) { i.VM.Tags = tags })
}

func (r *deployment) apply(ctx context.Context, planned *InstancePlan, task *Task) error {
	i := planned.Instance
	if err := writeJobs(r.jobsDir(i), planned.Rendered); err != nil {
		return err
	}
	if err := r.Store.Update(func(*State) { i.VM.HasJobs = true }); err != nil {
		return err
	}
	a, err := r.CPI.Agent(*i.VM)
	if err != nil {
		return err
	}
	task.Step("installing packages and configuring jobs")
	if err := a.Apply(ctx, r.applySpec(planned)); err != nil {
		return fmt.Errorf("installing jobs and packages: %w", err)
	}
	return nil
}

func (d *Director) applySpec(planned *InstancePlan) agent.ApplySpec {
	i := planned.Instance
	spec := agent.ApplySpec{Instance: agent.Instance{
		Deployment: d.Store.State.Deployment, Group: i.Group, ID: i.ID, Index: i.Index, AZ: i.AZ,
		Address: i.Address.String(), Bootstrap: i.Bootstrap,
	}}
	for _, job := range planned.Rendered {
		spec.Jobs = append(
			spec.Jobs, agent.Job{Name: job.Name, Fingerprint: job.Digest, Dir: filepath.Join(d.jobsDir(i), job.Name)},
		)
	}
	for _, pkg := range planned.Group.packages() {
		spec.Packages = append(
			spec.Packages, agent.Package{Name: pkg.Name, Fingerprint: pkg.Fingerprint, Dir: pkg.Compiled},
		)
	}
	return spec
}

// start starts an instance: pre-start, monit start, waiting until all processes run, post-start.
func (r *deployment) start(ctx context.Context, c *change, task *Task) error {
	i := c.planned.Instance
	a, err := r.CPI.Agent(*i.VM)
	if err != nil {
		return err
	}
	task.Step("executing pre-start")
	if err := script(ctx, a, "pre-start", nil); err != nil {
		return err
	}
	// monit starts bosh-dns after pre-start; as it may start again at any time, it must be able to after the other
	// jobs' start too.
	if err := a.CheckDNS(ctx); err != nil {
		return fmt.Errorf("after pre-start: %w", err)
	}
	task.Step("starting jobs")
	if err := r.startJobs(ctx, a, c, task); err != nil {
		return err
	}
	if err := a.CheckDNS(ctx); err != nil {
		return fmt.Errorf("after the start of the jobs: %w", err)
	}
	task.Step("executing post-start")
	return script(ctx, a, "post-start", nil)
}

// startJobs starts the jobs and waits until they run, at least for the minimum of the watch time, so that processes
// that exit right after their start are noticed, and at most for its maximum.
func (r *deployment) startJobs(ctx context.Context, a agent.Agent, c *change, task *Task) error {
	limits := watchTime(c.planned.Group.Spec.Update, c.canary)
	started := time.Now()
	if err := a.Start(ctx); err != nil {
		return fmt.Errorf("starting jobs: %w", err)
	}
	if err := poll.Sleep(ctx, limits.Min-time.Since(started)); err != nil {
		return err
	}
	if err := r.awaitRunning(ctx, a, started.Add(limits.Max), task); err != nil {
		return fmt.Errorf("'%s' is not running after update: %w; read %s in the VM",
			c.planned.Instance.String(), err, bosh.DefaultRoot.Log("JOB"))
	}
	return nil
}

// reportInterval is how often a wait reports what it waits for.
const reportInterval = 15 * time.Second

// awaitRunning waits until every process runs, and reports from time to time which do not. It checks at least once,
// even after the deadline.
func (d *Director) awaitRunning(ctx context.Context, a agent.Agent, deadline time.Time, task *Task) error {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	reported := d.Progress.now()
	return poll.Until(limited, cmp.Or(d.Poll, 200*time.Millisecond), func(context.Context) error {
		state, err := a.State(ctx) // not limited, or the check after the deadline would always fail
		if err == nil && state.State != agent.Running {
			err = errors.New(cmp.Or(
				state.Problem(), "its state is "+string(state.State)+", and monit names no process",
			))
		}
		if now := d.Progress.now(); err != nil && now.Sub(reported) >= reportInterval {
			task.Step("waiting: %v", err)
			reported = now
		}
		return err
	})
}
