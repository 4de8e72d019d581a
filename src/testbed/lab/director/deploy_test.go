package director

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubernetes-release/testbed/lab/agent"
)

const keep = "pre-stop vm=keep instance=keep deployment=keep"

func position(t *testing.T, events []string, event string) int {
	t.Helper()
	n := slices.Index(events, event)
	if n < 0 {
		t.Fatalf("there is no %q; events:\n  %s", event, strings.Join(events, "\n  "))
	}
	return n
}

func TestFirstDeploy(t *testing.T) {
	b := newBench(t)
	b.deploy()
	events := b.cloud.take()
	wantEvents(t, of(events, "db/0"), "create_vm", "apply", "pre-start", "start", "post-start")
	wantEvents(t, of(events, "web/4"), "create_vm", "apply", "pre-start", "start", "post-start", "post-deploy")

	lastCreate, firstApply := 0, len(events)
	for n, e := range events {
		switch {
		case strings.HasSuffix(e, "create_vm"):
			lastCreate = n
		case strings.HasSuffix(e, "apply"):
			firstApply = min(firstApply, n)
		}
	}
	if lastCreate > firstApply {
		t.Error("a VM was created after the first instance had been updated")
	}
	if position(t, events, "db/2 post-start") > position(t, events, "web/0 apply") {
		t.Error("the update of group web began before that of db had ended")
	}
	if position(t, events, "web/0 post-start") > position(t, events, "web/1 apply") {
		t.Error("the update of the others began before that of the canary had ended")
	}
	hosts, err := os.ReadFile(filepath.Join(b.dir, "instances", b.state().Group("web")[0].ID, "jobs/web/config/hosts"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "hello 10.9.16.11,10.9.32.10,10.9.48.10:5432 q-s0.db.default.shop.bosh\nuncached\n"; string(
		hosts,
	) != want {
		t.Errorf("rendered %q, want %q", hosts, want)
	}
}

func TestDeployWithoutChangesTouchesNothing(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	if touched := b.deploy(); touched != 0 {
		t.Errorf("%d instances touched", touched)
	}
	if events := b.cloud.take(); len(events) > 0 {
		t.Errorf("unexpected: %v", events)
	}
}

// TestFailedPostDeployIsNotRepeated by a deploy that changes nothing, but by a restart of any instance, on all.
func TestFailedPostDeployIsNotRepeated(t *testing.T) {
	b := newBench(t)
	b.cloud.fail = "web/0 post-deploy"
	if _, err := b.run(Options{}); err == nil || !strings.Contains(err.Error(), "post-deploy") {
		t.Fatalf("a failing post-deploy: %v", err)
	}
	b.cloud.take()
	b.deploy()
	wantEvents(t, b.cloud.take())
	if _, err := b.run(Options{Action: Restart, Targets: "db/0"}); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, of(b.cloud.take(), "web/0"), "post-deploy")
}

func TestOnlyChangedInstancesAreUpdated(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	b.op(`[{type: replace, path: "/instance_groups/name=web/jobs/name=web/properties?/greeting", value: hi}]`).deploy()
	events := b.cloud.take()
	if len(of(events, "db/0")) > 0 {
		t.Error("db was touched")
	}
	wantEvents(
		t, of(events, "web/0"), keep, "unmonitor", "drain", "stop", "post-stop", "apply", "pre-start", "start",
		"post-start", "post-deploy",
	)
}

func TestCanariesAndMaxInFlight(t *testing.T) {
	b := newBench(t)
	b.cloud.slow = 30 * time.Millisecond
	b.deploy()
	if b.cloud.maxInFlight != 2 {
		t.Errorf("%d updates at the same time, want 2 (max_in_flight)", b.cloud.maxInFlight)
	}
	b.op(`
- {type: replace, path: /update/max_in_flight, value: 1}
- {type: replace, path: "/instance_groups/name=web/jobs/name=web/properties?/greeting", value: hi}`)
	b.cloud.maxInFlight = 0
	b.deploy()
	if b.cloud.maxInFlight != 1 {
		t.Errorf("%d updates at the same time, want 1", b.cloud.maxInFlight)
	}
}

func TestFailedCanaryStopsTheDeployAndTheNextContinues(t *testing.T) {
	for _, at := range []string{"create_vm", "apply", "pre-start", "start", "post-start"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t)
			b.cloud.fail = "db/0 " + at
			_, err := b.run(Options{})
			if err == nil || !strings.Contains(err.Error(), "injected failure") ||
				!strings.Contains(err.Error(), "db/") {
				t.Fatalf("got %v", err)
			}
			events := b.cloud.take()
			if len(of(events, "web/0")) > 1 {
				t.Errorf("group web was updated after the canary had failed: %v", of(events, "web/0"))
			}
			b.deploy()
			events = b.cloud.take()
			for _, i := range b.state().Instances {
				if i.Applied == nil || i.VM == nil || i.VM.CID == "" {
					t.Errorf("%s is not deployed", i)
				}
			}
			got := of(events, "db/0")
			switch at {
			case "create_vm":
				wantEvents(t, got, "create_vm", "apply", "pre-start", "start", "post-start")
			default:
				wantEvents(
					t, got, keep, "unmonitor", "drain", "stop", "post-stop", "apply", "pre-start", "start",
					"post-start",
				)
			}
			if b.deploy() != 0 {
				t.Error("a third run touched instances")
			}
		})
	}
}

// TestKilledAtAnyPointIsCompletedByTheNextRun records the state file and the cloud, which is what kill -9 leaves, at
// every event of a deploy and an update, and deploys again from each.
func TestKilledAtAnyPointIsCompletedByTheNextRun(t *testing.T) {
	b := newBench(t).op(`
- {type: replace, path: /update/max_in_flight, value: 1}
- {type: replace, path: /instance_groups/name=db/instances, value: 1}
- {type: replace, path: /instance_groups/name=web/instances, value: 1}`)
	path := filepath.Join(b.dir, "state.json")
	type moment struct {
		event string
		file  []byte
		vms   map[string]VMSpec
		state map[string]agent.RunState
		ops   int
	}
	var moments []moment
	observe := func(event string) {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		moments = append(moments, moment{event, file, maps.Clone(b.cloud.vms), maps.Clone(b.cloud.state), len(b.ops)})
	}
	b.cloud.observe = observe
	b.deploy()
	b.op(`
- {type: replace, path: "/instance_groups/name=web/jobs/name=web/properties?", value: {greeting: hi}}
- {type: replace, path: /instance_groups/name=db/vm_extensions, value: []}`).deploy()
	b.cloud.observe = nil
	ops := b.ops
	for _, m := range moments {
		if err := os.WriteFile(path, m.file, 0o600); err != nil {
			t.Fatal(err)
		}
		b.cloud.vms, b.cloud.state, b.ops = m.vms, m.state, ops[:m.ops]
		if _, err := b.run(Options{}); err != nil {
			t.Errorf("killed at %q: %v", m.event, err)
			continue
		}
		if len(b.cloud.vms) != 2 {
			t.Errorf("killed at %q: %d VMs, want 2", m.event, len(b.cloud.vms))
		}
		for _, i := range b.state().Instances {
			if i.Applied == nil || i.VM == nil || b.cloud.vms[i.VM.CID].Name != i.VM.Name ||
				b.cloud.state[i.VM.CID] != "running" {
				t.Errorf("killed at %q: %s is not running", m.event, i)
			}
		}
	}
	if len(moments) < 25 {
		t.Errorf("only %d moments were tried", len(moments))
	}
}

// TestDeadVMIsReplaced: a Director fails on an instance whose agent does not answer, whatever it is to do, and touches
// nothing. With --fix it recreates the VM in the order of updates.
func TestDeadVMIsReplaced(t *testing.T) {
	b := newBench(t)
	b.deploy()
	db := b.state().Group("db")[0]
	delete(b.cloud.vms, db.VM.CID)
	b.cloud.take()
	for _, options := range []Options{{}, {Action: Recreate, Targets: "db/0"}, {Action: Stop, Targets: "web/0"}} {
		_, err := b.run(options)
		if want := db.Name() + ": Timed out sending 'get_state'"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q with a dead VM: %v, want %s", options.Action, err, want)
		}
	}
	wantEvents(t, b.cloud.take())
	if _, err := b.run(Options{Fix: true}); err != nil {
		t.Fatal(err)
	}
	events := b.cloud.take()
	wantEvents(t, of(events, "db/0"), "create_vm", "apply", "pre-start", "start", "post-start")
	again := b.state().Group("db")[0]
	if again.ID != db.ID || again.Address != db.Address {
		t.Errorf("the instance changed: %v, was %v", again, db)
	}
	if len(of(events, "db/1")) > 0 {
		t.Error("another instance was touched")
	}
}

func TestInstanceWithFailingProcessesIsUpdated(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	b.cloud.state[b.state().Group("web")[2].VM.CID] = "failing"
	if touched := b.deploy(); touched != 1 {
		t.Errorf("%d instances touched, want 1", touched)
	}
}

// TestPublishedNamesAreComplete is for the race detector too: instances are updated concurrently, and what is published
// last has all of them.
func TestPublishedNamesAreComplete(t *testing.T) {
	b := newBench(t)
	var published int
	b.publish = func(p *Plan) error {
		count := 0
		for _, group := range p.Groups {
			for _, planned := range group.Instances {
				if i := planned.Instance; i.VM != nil && i.VM.CID != "" {
					count++
				}
			}
		}
		time.Sleep(time.Millisecond) // other updates continue meanwhile
		published = count
		return nil
	}
	b.op(`[{type: replace, path: /update/max_in_flight, value: 5}]`).deploy()
	if _, err := b.run(Options{Action: Recreate}); err != nil {
		t.Fatal(err)
	}
	if published != len(b.cloud.vms) {
		t.Errorf("the last names have %d VMs, there are %d", published, len(b.cloud.vms))
	}
}

// TestWatchTimeWithoutRange: instances are checked once, after the watch time.
func TestWatchTimeWithoutRange(t *testing.T) {
	b := newBench(t)
	b.op(`
- {type: replace, path: "/update/canary_watch_time", value: 0}
- {type: replace, path: "/update/update_watch_time", value: 0}`).deploy()
}

// TestProcessesThatDoNotRunAreNamed during the wait and in the error.
func TestProcessesThatDoNotRunAreNamed(t *testing.T) {
	b := newBench(t)
	b.op(`
- {type: replace, path: "/update/canary_watch_time", value: 1-200}
- {type: remove, path: "/instance_groups/name=web"}`)
	var minutes atomic.Int64
	b.now = func() time.Time { return time.Unix(60*minutes.Add(1), 0) }
	b.cloud.stuck = &agent.State{
		State:     agent.Failing,
		FullDisks: []string{"/var/vcap/store"},
		Processes: []agent.Process{
			{Name: "db", State: agent.Starting},
			{Name: "proxy", State: agent.Running},
			{Name: "log", State: agent.Failing, Message: "no such file"},
		},
	}
	const problem = "db is starting; log is failing (no such file); the VM's disk is full: there is no space left on " +
		"/var/vcap/store"
	_, err := b.run(Options{})
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), ": "+problem) ||
		!strings.Contains(err.Error(), "/var/vcap/sys/log") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(b.output.String(), " L waiting: "+problem+"\n") {
		t.Errorf("no line names the processes:\n%s", b.output.String())
	}
}

func TestChangedVMPropertiesRecreateTheVM(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	b.op(`[{type: replace, path: /instance_groups/name=db/vm_extensions, value: []}]`).deploy()
	wantEvents(
		t, of(b.cloud.take(), "db/1"), "pre-stop vm=delete instance=keep deployment=keep", "unmonitor", "drain", "stop",
		"post-stop", "delete_vm", "create_vm", "apply", "pre-start", "start", "post-start",
	)
}

func TestChangedTagsAreSetWithoutAnUpdate(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	b.op(`[{type: replace, path: "/tags/cost?", value: "1"}]`).deploy()
	wantEvents(t, of(b.cloud.take(), "db/1"), "set_tags")
}

func TestScaleInAndOut(t *testing.T) {
	b := newBench(t)
	b.deploy()
	before := b.state().Group("web")
	b.cloud.take()
	b.op(`[{type: replace, path: /instance_groups/name=web/instances, value: 2}]`).deploy()
	events := b.cloud.take()
	wantEvents(
		t, of(events, "web/4"), "pre-stop vm=delete instance=delete deployment=keep", "unmonitor", "drain", "stop",
		"post-stop", "delete_vm",
	)
	after := b.state().Group("web")
	if len(after) != 2 || after[0].ID != before[0].ID || after[0].AZ == after[1].AZ {
		t.Errorf("left: %v", after)
	}
	b.op(`[{type: replace, path: /instance_groups/name=web/instances, value: 4}]`).deploy()
	zones := map[string]int{}
	for _, i := range b.state().Group("web") {
		zones[i.AZ]++
	}
	if zones["z1"] != 2 || zones["z2"] != 2 {
		t.Errorf("zones: %v", zones)
	}
	b.cloud.take()
	b.op(`[{type: remove, path: /instance_groups/name=web}]`).deploy()
	events = b.cloud.take()
	if len(b.state().Group("web")) != 0 ||
		!strings.Contains(strings.Join(events, "\n"), "web/0 pre-stop vm=delete instance=delete deployment=keep") {
		t.Errorf("the group still exists; events %v", events)
	}
}

func TestActions(t *testing.T) {
	b := newBench(t)
	b.deploy()
	b.cloud.take()
	act := func(action Action, targets string) []string {
		t.Helper()
		if _, err := b.run(Options{Action: action, Targets: targets}); err != nil {
			t.Fatal(err)
		}
		return b.cloud.take()
	}
	events := act(Stop, "web/1")
	wantEvents(t, of(events, "web/1"), keep, "unmonitor", "drain", "stop", "post-stop")
	others := slices.DeleteFunc(slices.Clone(events), func(e string) bool { return strings.HasPrefix(e, "web/1 ") })
	wantEvents(
		t, slices.Sorted(slices.Values(others)), "web/0 post-deploy", "web/2 post-deploy", "web/3 post-deploy",
		"web/4 post-deploy",
	)
	if b.deploy() != 0 {
		t.Error("a deploy touched the stopped instance")
	}
	b.cloud.take()
	wantEvents(t, of(act(Start, "web/1"), "web/1"), "apply", "pre-start", "start", "post-start", "post-deploy")
	wantEvents(
		t, of(act(Detach, "db/2"), "db/2"), "pre-stop vm=delete instance=keep deployment=keep", "unmonitor", "drain",
		"stop", "post-stop", "delete_vm",
	)
	wantEvents(t, of(act(Start, "db/2"), "db/2"), "create_vm", "apply", "pre-start", "start", "post-start")
	wantEvents(
		t, of(act(Restart, "db/2"), "db/2"), keep, "unmonitor", "drain", "stop", "post-stop", "apply", "pre-start",
		"start", "post-start",
	)
	wantEvents(
		t, of(act(Recreate, "db"), "db/0"), "pre-stop vm=delete instance=keep deployment=keep", "unmonitor", "drain",
		"stop", "post-stop", "delete_vm", "create_vm", "apply", "pre-start", "start", "post-start",
	)
	if _, err := b.run(Options{Action: Stop, Targets: "wbe"}); err == nil ||
		!strings.Contains(err.Error(), "there is no instance 'wbe'") {
		t.Errorf("got %v", err)
	}
}

func TestProgressLines(t *testing.T) {
	b := newBench(t)
	b.deploy()
	text := b.output.String()
	for _, want := range []string{
		" | Preparing deployment: Rendering templates\n", " | Creating missing vms: db/",
		" (0) (canary)\n", " (0) (canary) L executing pre-start\n", " (0) (canary) (00:00:0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestBoshDNSMustStart: a deploy fails when bosh-dns could not read the jobs, after pre-start or after the start.
func TestBoshDNSMustStart(t *testing.T) {
	for _, c := range []struct {
		failing int32
		want    string
	}{{1, "after pre-start: cannot read"}, {2, "after the start of the jobs: cannot read"}} {
		b := newBench(t)
		var calls atomic.Int32
		b.cloud.dnsFails = func() error {
			if calls.Add(1) == c.failing {
				return errors.New("cannot read")
			}
			return nil
		}
		if _, err := b.run(Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
}
