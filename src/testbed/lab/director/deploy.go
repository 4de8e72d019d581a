package director

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
)

// VMSpec is what the CPI needs in order to create an instance's VM.
type VMSpec struct {
	// Name is unique in the lab. Instance has the address, AZ and ids.
	Name     string
	Instance Instance
	// CloudProperties are those of AZ, vm_type and vm_extensions; NetworkProperties are those of the subnet.
	CloudProperties   map[string]any
	NetworkProperties map[string]any
	Tags              map[string]string
}

// CPI creates and deletes VMs, as a BOSH CPI does.
type CPI interface {
	// CreateVM creates the VM and returns its cloud id. It first removes what an earlier attempt with the same name has
	// left.
	CreateVM(ctx context.Context, spec VMSpec) (cid string, err error)
	// DeleteVM deletes the VM, if it exists.
	DeleteVM(ctx context.Context, vm VM) error
	// HasVM reports whether the VM exists and runs.
	HasVM(ctx context.Context, vm VM) bool
	// SetTags replaces the VM's tags.
	SetTags(ctx context.Context, vm VM, tags map[string]string) error
	// Agent returns the agent of a VM.
	Agent(vm VM) (agent.Agent, error)
}

// Director deploys plans.
type Director struct {
	// Dir is the lab's state directory.
	Dir      string
	Store    *Store
	CPI      CPI
	Compiler *release.Compiler
	Progress *Progress
	// Publish is called after instances or their addresses have changed, to update DNS. The state does not change
	// during the call. May be nil.
	Publish func(*Plan) error
	// Poll is the interval at which an instance's state is checked during an update; 0 means 200 ms.
	Poll time.Duration
}

// Action is what a command does to instances, in addition to applying the manifest.
type Action string

// Actions of the lab's commands; None is a deploy.
const (
	None     Action = ""
	Restart  Action = "restart"
	Recreate Action = "recreate"
	Stop     Action = "stop"
	Detach   Action = "stop --hard"
	Start    Action = "start"
)

// Options are the options of a deploy.
type Options struct {
	Action Action
	// Targets selects instances (see State.Find) for an action; other instances are not touched. Empty selects all.
	Targets string
	// Fix recreates VMs whose agents do not answer. Without it they are an error.
	Fix bool
}

// createWorkers is how many VMs are created, and how many instances run post-deploy, at the same time.
const createWorkers = 4

// Deploy updates the instances to the prepared plan. It returns how many instances it touched.
func (d *Director) Deploy(ctx context.Context, plan *Plan, options Options) (int, error) {
	targets, err := d.targets(options)
	if err != nil {
		return 0, err
	}
	if err := d.askAgents(ctx, options); err != nil {
		return 0, err
	}
	touched := &atomic.Int64{}
	if options.Action == None {
		if err := d.deleteInstances(ctx, plan, "", plan.Obsolete, len(plan.Obsolete), touched); err != nil {
			return int(touched.Load()), err
		}
	}
	for _, group := range plan.Groups {
		if group.Spec.Update.VMStrategy == "create-swap-delete" {
			d.Progress.Warn(
				"instance group '%s' has vm_strategy create-swap-delete; the lab always uses delete-create",
				group.Spec.Name,
			)
		}
	}
	for _, unknown := range plan.UnknownLinks() {
		d.Progress.Warn("%s; a Director only logs this", unknown)
	}
	if err := d.record(plan); err != nil {
		return int(touched.Load()), err
	}
	if err := d.publish(plan); err != nil {
		return int(touched.Load()), err
	}
	run := &deployment{
		Director: d,
		plan:     plan,
		options:  options,
		targets:  targets,
		touched:  touched,
		fresh:    map[string]bool{},
	}
	if err := run.createMissing(ctx); err != nil {
		return int(touched.Load()), err
	}
	if err := run.updateGroups(ctx); err != nil {
		return int(touched.Load()), err
	}
	// As in update_deployment.rb of bosh-director: a deploy that updates no instance runs no post-deploy scripts, so
	// neither does the repetition of one in which such a script has failed.
	if run.updated.Load() {
		err = run.postDeploy(ctx)
	}
	return int(touched.Load()), err
}

// askAgents asks the agents of all instances, as a Director does before it touches any: one that does not answer is an
// error, unless it is to be fixed (get_state in deployment_plan/agent_state_migrator.rb of bosh-director).
func (d *Director) askAgents(ctx context.Context, options Options) error {
	if options.Fix {
		return nil
	}
	var errs []error
	for _, i := range d.Store.State.Instances {
		if d.lost(ctx, i) {
			errs = append(errs, fmt.Errorf("%s: Timed out sending 'get_state'", i.Name()))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf(
		"%w\nVMs are lost: the option --fix recreates them, `bin/lab reboot` boots them again", errors.Join(errs...),
	)
}

// lost reports whether an instance has a VM that does not run.
func (d *Director) lost(ctx context.Context, i *Instance) bool {
	return !i.Errand && i.VM.exists() && !d.CPI.HasVM(ctx, *i.VM)
}

// targets returns the ids of the instances that an action applies to; nil means all.
func (d *Director) targets(options Options) (map[string]bool, error) {
	if options.Targets == "" {
		return nil, nil
	}
	found, err := d.Store.State.Find(options.Targets)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, i := range found {
		ids[i.ID] = true
	}
	return ids, nil
}

// Prepare renders templates and compiles packages, which touches no VM.
func (d *Director) Prepare(ctx context.Context, plan *Plan) (err error) {
	task := d.Progress.Begin("Preparing deployment", "Rendering templates")
	if err = plan.Render(ctx); err == nil {
		_, err = plan.Aliases()
	}
	task.End(err)
	if err != nil {
		return err
	}
	return d.compile(ctx, plan)
}

func (d *Director) compile(ctx context.Context, plan *Plan) error {
	defer d.Progress.Flush()
	packages := map[*release.Release][]string{}
	for _, group := range plan.Groups {
		for _, job := range group.Jobs {
			for _, name := range job.Job.Packages {
				if !slices.Contains(packages[job.Release], name) {
					packages[job.Release] = append(packages[job.Release], name)
				}
			}
		}
	}
	for _, r := range plan.releases() {
		if err := d.Compiler.Compile(ctx, r, packages[r]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) releases() []*release.Release {
	var list []*release.Release
	for _, group := range p.Groups {
		for _, job := range group.Jobs {
			if !slices.Contains(list, job.Release) {
				list = append(list, job.Release)
			}
		}
	}
	return list
}

// record adds the plan's instances to the state, before anything is created for them.
func (d *Director) record(plan *Plan) error {
	return d.Store.Update(func(s *State) {
		s.Deployment = plan.Manifest.Name
		for _, group := range plan.Groups {
			for _, planned := range group.Instances {
				i := planned.Instance
				if planned.New && !slices.Contains(s.Instances, i) {
					s.Instances = append(s.Instances, i)
				}
				i.Group = group.Spec.Name // migrated_from
				i.Disk = plan.diskSize(group)
			}
		}
	})
}

// publish publishes the plan's instances. The state is locked, so that what is published is consistent and never older
// than what was published before.
func (d *Director) publish(plan *Plan) error {
	if d.Publish == nil {
		return nil
	}
	return d.Store.locked(func() error { return d.Publish(plan) })
}

// deleteInstances stops instances and deletes them with their VMs. Their disks are orphaned.
func (d *Director) deleteInstances(
	ctx context.Context, plan *Plan, group string, list []*Instance, workers int, touched *atomic.Int64,
) error {
	stage := "Deleting unneeded instances"
	if group != "" {
		stage += " " + group
	}
	return inParallel(list, workers, func(i *Instance) error {
		task := d.Progress.Begin(stage, i.String())
		touched.Add(1)
		err := d.deleteInstance(ctx, i, task, "keep")
		task.End(err)
		if err != nil {
			return fmt.Errorf("deleting instance %s: %w", i.Name(), err)
		}
		return d.publish(plan)
	})
}

func (d *Director) deleteInstance(ctx context.Context, i *Instance, task *Task, deployment string) error {
	if i.VM != nil {
		if err := d.stop(ctx, i, task, map[string]string{
			"BOSH_VM_NEXT_STATE":         "delete",
			"BOSH_INSTANCE_NEXT_STATE":   "delete",
			"BOSH_DEPLOYMENT_NEXT_STATE": deployment,
		}); err != nil {
			return err
		}
		if err := d.deleteVM(ctx, i, task); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Dir(d.jobsDir(i))); err != nil {
		return err
	}
	return d.Store.Remove(i)
}

func (d *Director) deleteVM(ctx context.Context, i *Instance, task *Task) error {
	if err := d.destroyVM(ctx, i, task); err != nil {
		return err
	}
	return d.Store.Update(func(*State) { i.VM, i.Applied = nil, nil })
}

// destroyVM deletes an instance's VM, in whatever state it is. The state has the VM still, as one that is deleted.
func (d *Director) destroyVM(ctx context.Context, i *Instance, task *Task) error {
	task.Step("deleting VM %s", i.VM.Name)
	if err := d.Store.Update(func(*State) { i.VM.Deleted = true }); err != nil {
		return err
	}
	if err := d.CPI.DeleteVM(ctx, *i.VM); err != nil {
		return fmt.Errorf("deleting VM %s: %w", i.VM.Name, err)
	}
	return nil
}

// inParallel calls do for each entry, with at most workers at the same time. After a failure it starts no more calls,
// waits for those that run, and returns all errors.
func inParallel[T any](list []T, workers int, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(max(workers, 1))
	failed := &atomic.Bool{}
	errs := make([]error, len(list))
	for n, entry := range list {
		group.Go(func() error {
			if failed.Load() {
				return nil
			}
			if errs[n] = do(entry); errs[n] != nil {
				failed.Store(true)
			}
			return nil
		})
	}
	group.Wait() //nolint:errcheck // errors are in errs
	return errors.Join(errs...)
}

// deployment is one run of Deploy.
type deployment struct {
	*Director
	plan    *Plan
	options Options
	targets map[string]bool
	touched *atomic.Int64
	// updated tells whether this run has updated an instance of any group.
	updated atomic.Bool
	// fresh holds the ids of instances whose VM this run has created.
	fresh map[string]bool
}

// inScope reports whether this run may touch an instance.
func (r *deployment) inScope(i *Instance) bool { return r.targets == nil || r.targets[i.ID] }

// desiredState returns the state that the instance has after this run.
func (r *deployment) desiredState(i *Instance) DesiredState {
	switch {
	case !r.inScope(i):
		return i.DesiredState
	case r.options.Action == Stop:
		return Stopped
	case r.options.Action == Detach:
		return Detached
	case r.options.Action == Start, r.options.Action == Restart, r.options.Action == Recreate:
		return Started
	default:
		return i.DesiredState
	}
}

// createMissing creates the VMs of instances that have none, all before the first instance is updated.
func (r *deployment) createMissing(ctx context.Context) error {
	var missing []*InstancePlan
	for _, group := range r.plan.Groups {
		for _, planned := range group.Instances {
			i := planned.Instance
			if i.Errand || !r.inScope(i) || r.desiredState(i) != Started {
				continue
			}
			if i.VM.exists() {
				continue
			}
			missing = append(missing, planned)
		}
	}
	for _, planned := range missing {
		r.fresh[planned.Instance.ID] = true
	}
	err := inParallel(missing, createWorkers, func(planned *InstancePlan) error {
		task := r.Progress.Begin("Creating missing vms", planned.Instance.String())
		r.touched.Add(1)
		err := r.createVM(ctx, planned, task)
		task.End(err)
		if err != nil {
			return fmt.Errorf("creating the VM of %s: %w", planned.Instance.Name(), err)
		}
		return nil
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	return r.publish(r.plan)
}

// createVM creates an instance's VM, after deleting one that exists, in whatever state it is.
func (r *deployment) createVM(ctx context.Context, planned *InstancePlan, task *Task) error {
	i := planned.Instance
	if i.VM != nil {
		if err := r.destroyVM(ctx, i, task); err != nil {
			return err
		}
	}
	spec := r.vmSpec(planned)
	if err := r.Store.Update(func(*State) { i.VM, i.Applied = &VM{Name: spec.Name}, nil }); err != nil {
		return err
	}
	task.Step("creating VM %s", spec.Name)
	cid, err := r.CPI.CreateVM(ctx, spec)
	if err != nil {
		return err
	}
	return r.Store.Update(func(*State) { i.VM.CID, i.VM.Tags = cid, spec.Tags })
}

func (r *deployment) vmSpec(planned *InstancePlan) VMSpec {
	i := planned.Instance
	return VMSpec{
		Name: VMName(i), Instance: *i,
		CloudProperties:   r.plan.Cloud.CloudProperties(planned.Group.Spec, i.AZ),
		NetworkProperties: r.plan.subnetProperties(i),
		Tags:              r.plan.tags(planned),
	}
}

// VMName returns the lab's name of an instance's VM: its group and the first part of its id.
func VMName(i *Instance) string {
	return strings.ReplaceAll(Canonical(i.Group), ".", "-") + "-" + i.ID[:8]
}

// tags are the tags that the Director sets on a VM, and those of the manifest.
func (p *Plan) tags(planned *InstancePlan) map[string]string {
	i := planned.Instance
	tags := map[string]string{}
	maps.Copy(tags, p.Manifest.Tags)
	maps.Copy(tags, planned.Group.Spec.Tags)
	maps.Copy(tags, map[string]string{
		"director": "lab", "deployment": p.Manifest.Name, "instance_group": i.Group, "job": i.Group, "id": i.ID,
		"index": fmt.Sprint(i.Index), "name": i.Name(), "Name": i.Name(),
	})
	return tags
}

// updateGroups updates the instance groups in manifest order. Consecutive groups with serial: false are updated
// together.
func (r *deployment) updateGroups(ctx context.Context) error {
	for _, batch := range batches(r.plan.Groups) {
		if err := inParallel(
			batch, len(batch), func(g *InstanceGroup) error { return r.updateGroup(ctx, g) },
		); err != nil {
			return err
		}
	}
	return nil
}

func batches(groups []*InstanceGroup) [][]*InstanceGroup {
	var list [][]*InstanceGroup
	parallel := false
	for _, group := range groups {
		if serial := group.Spec.Update.IsSerial(); serial || !parallel {
			list = append(list, []*InstanceGroup{group})
			parallel = !serial
			continue
		}
		list[len(list)-1] = append(list[len(list)-1], group)
	}
	return list
}

func (r *deployment) updateGroup(ctx context.Context, group *InstanceGroup) error {
	if r.options.Action == None {
		workers := group.Spec.Update.MaxInFlight.Of(len(group.Obsolete), 1)
		if err := r.deleteInstances(ctx, r.plan, group.Spec.Name, group.Obsolete, workers, r.touched); err != nil {
			return err
		}
	}
	changed := r.changed(ctx, group)
	if len(changed) > 0 {
		r.updated.Store(true)
	}
	var zones []string
	byZone := map[string][]*change{}
	for _, c := range changed {
		az := c.planned.Instance.AZ
		if !slices.Contains(zones, az) {
			zones = append(zones, az)
		}
		byZone[az] = append(byZone[az], c)
	}
	if group.Spec.Update.InitialStrategy == "parallel" && r.initial(group) {
		zones, byZone = []string{""}, map[string][]*change{"": changed}
	}
	for n, az := range zones {
		if err := r.updateZone(ctx, group, byZone[az], n == 0); err != nil {
			return err
		}
	}
	return nil
}

// initial reports whether none of the group's instances has been deployed.
func (r *deployment) initial(group *InstanceGroup) bool {
	return !slices.ContainsFunc(group.Instances, func(p *InstancePlan) bool { return p.Instance.Applied != nil })
}

// updateZone updates a group's changed instances of one AZ: in the first AZ the canaries first, then the others, with
// at most max_in_flight at the same time.
func (r *deployment) updateZone(ctx context.Context, group *InstanceGroup, changed []*change, canaries bool) error {
	workers := group.Spec.Update.MaxInFlight.Of(len(changed), 1)
	if canaries {
		count := min(group.Spec.Update.Canaries.Of(len(changed), 0), len(changed))
		for _, c := range changed[:count] {
			c.canary = true
		}
		if err := inParallel(changed[:count], workers, func(c *change) error { return r.update(ctx, c) }); err != nil {
			return err
		}
		changed = changed[count:]
	}
	return inParallel(changed, workers, func(c *change) error { return r.update(ctx, c) })
}

// postDeploy runs the post-deploy scripts on every started instance.
func (r *deployment) postDeploy(ctx context.Context) error {
	var list []*Instance
	for _, group := range r.plan.Groups {
		for _, planned := range group.Instances {
			if i := planned.Instance; i.DesiredState == Started && i.VM != nil && !i.Errand &&
				hasScript(planned, "post-deploy") {
				list = append(list, i)
			}
		}
	}
	return inParallel(list, createWorkers, func(i *Instance) error {
		task := r.Progress.Begin("Running post-deploy", i.String())
		a, err := r.CPI.Agent(*i.VM)
		if err == nil {
			err = script(ctx, a, "post-deploy", nil)
		}
		task.End(err)
		if err != nil {
			return fmt.Errorf("post-deploy of %s: %w", i.Name(), err)
		}
		return nil
	})
}

func hasScript(planned *InstancePlan, name string) bool {
	return slices.ContainsFunc(planned.Rendered, func(job RenderedJob) bool { return job.Files["bin/"+name] != nil })
}

// jobsDir is the directory of an instance's rendered jobs on the host.
func (d *Director) jobsDir(i *Instance) string {
	return filepath.Join(d.Dir, "instances", i.ID, "jobs")
}

// watchTime returns the watch time of a canary or another instance.
func watchTime(u manifest.Update, canary bool) manifest.WatchTime {
	if canary {
		return *u.CanaryWatchTime
	}
	return *u.UpdateWatchTime
}
