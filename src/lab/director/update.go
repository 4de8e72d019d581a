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
	"kubernetes-release/lab/agent"
)

// change is an instance that has to be updated, and why.
type change struct {
	planned *Planned
	// reasons are for people; recreate says that another VM is needed.
	reasons  []string
	recreate bool
	canary   bool
	// wanted is the state that the instance should end in.
	wanted string
	// tagsOnly says that the tags are all that has changed.
	tagsOnly bool
}

// changed lists the group's instances that differ from what they should be, in the order of the update.
func (r *deployment) changed(ctx context.Context, group *Group) ([]*change, error) {
	var list []*change
	for _, planned := range group.Instances {
		if planned.Instance.Errand || !r.inScope(planned.Instance) {
			continue
		}
		c, err := r.compare(ctx, planned)
		if err != nil {
			return nil, err
		}
		if c != nil {
			list = append(list, c)
		}
	}
	return list, nil
}

// compare gives what has to change for the instance, nil if nothing.
func (r *deployment) compare(ctx context.Context, planned *Planned) (*change, error) {
	i := planned.Instance
	c := &change{planned: planned, wanted: r.lifecycle(i)}
	if c.wanted != i.Wanted {
		c.reasons = append(c.reasons, "state: "+i.Wanted+" to "+c.wanted)
	}
	if c.wanted == Detached && i.VM == nil || c.wanted == Stopped && i.Wanted == Stopped {
		if len(c.reasons) == 0 {
			return nil, nil
		}
		return c, nil
	}
	if c.wanted != Started {
		return c, nil
	}
	switch {
	case i.Applied == nil:
		c.reasons = append(c.reasons, "not deployed yet")
	default:
		machine := differences(i.Applied.Machine, planned.Wanted.Machine, "")
		c.recreate = len(machine) > 0
		c.reasons = append(c.reasons, machine...)
		c.reasons = append(c.reasons, differences(i.Applied.Jobs, planned.Wanted.Jobs, "job ")...)
		c.reasons = append(c.reasons, differences(i.Applied.Packages, planned.Wanted.Packages, "package ")...)
	}
	if r.options.Action == Recreate || r.options.Action == Restart {
		c.reasons = append(c.reasons, string(r.options.Action))
		c.recreate = c.recreate || r.options.Action == Recreate && !r.fresh[i.ID]
	}
	if len(c.reasons) == 0 {
		if state := r.state(ctx, i); state != agent.Running {
			c.reasons = append(c.reasons, "its processes are "+state)
		}
	}
	if i.VM != nil && !maps.Equal(i.VM.Tags, r.plan.tags(planned)) {
		c.tagsOnly = len(c.reasons) == 0
		c.reasons = append(c.reasons, "tags")
	}
	if len(c.reasons) == 0 {
		return nil, nil
	}
	return c, nil
}

func (r *deployment) state(ctx context.Context, i *Instance) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	a, err := r.CPI.Agent(*i.VM)
	if err != nil {
		return "unknown (" + err.Error() + ")"
	}
	state, err := a.State(ctx)
	if err != nil {
		return "unknown (" + err.Error() + ")"
	}
	return state.State
}

// differences names the keys under which two maps differ.
func differences(have, want map[string]string, prefix string) []string {
	all := maps.Clone(have)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, want)
	var names []string
	for _, key := range sortedKeys(all) {
		if a, b := have[key], want[key]; a != b {
			names = append(names, prefix+key)
		}
	}
	return names
}

// update brings one instance to what it should be and shows it as a task.
func (r *deployment) update(ctx context.Context, c *change) error {
	i := c.planned.Instance
	name := i.String()
	if c.canary {
		name += " (canary)"
	}
	task := r.Progress.Begin("Updating instance "+i.Group, name)
	r.touched.Add(1)
	if i.Applied != nil || i.Wanted != c.wanted {
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
	wasStopped := i.Wanted == Stopped
	if c.wanted != Stopped {
		// While the update is under way nothing counts as applied, so that one that is cut off is done again.
		if err := r.Store.Update(func(*State) { i.Applied = nil }); err != nil {
			return err
		}
	}
	if i.VM != nil && !wasStopped {
		next := "keep"
		if c.recreate || c.wanted == Detached {
			next = "delete"
		}
		if err := r.stop(ctx, i, task, map[string]string{
			"BOSH_VM_NEXT_STATE": next, "BOSH_INSTANCE_NEXT_STATE": "keep", "BOSH_DEPLOYMENT_NEXT_STATE": "keep",
		}); err != nil {
			return err
		}
	}
	if c.wanted == Detached && i.VM != nil {
		if err := r.deleteVM(ctx, i, task); err != nil {
			return err
		}
	}
	if err := r.Store.Update(func(*State) { i.Wanted = c.wanted }); err != nil {
		return err
	}
	if c.wanted != Started {
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
		wanted := c.planned.Wanted
		i.Applied = &wanted
	})
}

// stop runs the end of an instance's life as a Director does: pre-stop, drain, monit stop, post-stop. A VM that never had jobs, or
// that is dead, has nothing to stop.
func (d *Director) stop(ctx context.Context, i *Instance, task *Task, env map[string]string) error {
	if i.VM == nil || !i.VM.HasJobs || i.VM.CID == "" || !d.CPI.HasVM(ctx, *i.VM) {
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
		return fmt.Errorf("telling monit to leave the processes alone: %w", err)
	}
	if err := limited(ctx, drainLimit, func(ctx context.Context) error { return a.Drain(ctx, nil) }); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	task.Step("stopping jobs")
	if err := limited(ctx, stopLimit, a.Stop); err != nil {
		return fmt.Errorf("stopping jobs: %w", err)
	}
	task.Step("executing post-stop")
	return script(ctx, a, "post-stop", nil)
}

// Limits of what a Director would wait for without end.
const (
	scriptLimit = 30 * time.Minute
	drainLimit  = time.Hour
	stopLimit   = 10 * time.Minute
)

func script(ctx context.Context, a agent.Agent, name string, env map[string]string) error {
	if err := limited(ctx, scriptLimit, func(ctx context.Context) error { return a.RunScript(ctx, name, env) }); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// limited calls do with a deadline and says so when that was the reason.
func limited(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := do(inner)
	if err != nil && ctx.Err() == nil && errors.Is(inner.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("it did not end within %s: %w", limit, err)
	}
	return err
}

func (r *deployment) setTags(ctx context.Context, planned *Planned, task *Task) error {
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

func (r *deployment) apply(ctx context.Context, planned *Planned, task *Task) error {
	i := planned.Instance
	if err := write(r.jobsDir(i), planned.Rendered); err != nil {
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
		return fmt.Errorf("putting jobs and packages in place: %w", err)
	}
	return nil
}

func (d *Director) applySpec(planned *Planned) agent.ApplySpec {
	i := planned.Instance
	spec := agent.ApplySpec{Instance: agent.Instance{
		Deployment: d.Store.State.Deployment, Group: i.Group, ID: i.ID, Index: i.Index, AZ: i.AZ,
		Address: i.Address.String(), Bootstrap: i.Bootstrap,
	}}
	for _, job := range planned.Rendered {
		spec.Jobs = append(spec.Jobs, agent.Job{Name: job.Name, Fingerprint: job.Digest, Dir: filepath.Join(d.jobsDir(i), job.Name)})
	}
	for _, pkg := range planned.Group.packages() {
		spec.Packages = append(spec.Packages, agent.Package{Name: pkg.Name, Fingerprint: pkg.Fingerprint, Dir: pkg.Compiled})
	}
	return spec
}

// start runs the beginning of an instance's life: pre-start, monit start, the wait until everything runs, post-start.
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
	task.Step("starting jobs")
	if err := r.startJobs(ctx, a, c, task); err != nil {
		return err
	}
	task.Step("executing post-start")
	return script(ctx, a, "post-start", nil)
}

// startJobs starts the jobs and waits as the watch time says: not shorter than its minimum, so that what falls over at once is
// noticed, and not longer than its maximum.
func (r *deployment) startJobs(ctx context.Context, a agent.Agent, c *change, task *Task) error {
	limits := watch(c.planned.Group.Spec.Update, c.canary)
	begun := time.Now()
	if err := a.Start(ctx); err != nil {
		return fmt.Errorf("starting jobs: %w", err)
	}
	if err := sleep(ctx, limits.Min-time.Since(begun)); err != nil {
		return err
	}
	if err := r.awaitRunning(ctx, a, begun.Add(limits.Max), task); err != nil {
		return fmt.Errorf("'%s' is not running after update: %w; read %s in the VM",
			c.planned.Instance.String(), err, bosh.DefaultRoot.Log("JOB"))
	}
	return nil
}

// reportInterval is how often a wait reports what it waits for.
const reportInterval = 15 * time.Second

// awaitRunning waits until every process runs, and reports from time to time which do not. It checks at least once, even
// after the deadline.
func (d *Director) awaitRunning(ctx context.Context, a agent.Agent, deadline time.Time, task *Task) error {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	reported := d.Progress.now()
	return poll.Until(limited, cmp.Or(d.Poll, 200*time.Millisecond), func(context.Context) error {
		state, err := a.State(ctx) // not limited, or the check after the deadline would always fail
		if err == nil && state.State != agent.Running {
			err = errors.New(cmp.Or(state.Problem(), "its state is "+state.State+", and monit names no process"))
		}
		if now := d.Progress.now(); err != nil && now.Sub(reported) >= reportInterval {
			task.Step("waiting: %v", err)
			reported = now
		}
		return err
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
