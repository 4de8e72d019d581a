package director

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/release/releasetest"
)

// cloud is a CPI whose VMs are entries of a map and whose agents record the calls that they get.
type cloud struct {
	mutex  sync.Mutex
	vms    map[string]VMSpec         // by CID
	state  map[string]agent.RunState // by CID
	events []string
	count  int
	// fail is the event that fails once.
	fail string
	// dnsFails, if set, is asked whether bosh-dns cannot start.
	dnsFails func() error
	// errandCode is the exit code of errands.
	errandCode int
	// stuck, if set, is the state that every agent reports.
	stuck *agent.State
	// inFlight counts updates that run at the same time, between pre-start and post-start, and maxInFlight their
	// maximum.
	inFlight, maxInFlight int
	slow                  time.Duration
	// observe, if set, is called before and after each event takes effect, with the lock held.
	observe func(event string)
}

func newCloud() *cloud { return &cloud{vms: map[string]VMSpec{}, state: map[string]agent.RunState{}} }

func (c *cloud) record(format string, args ...any) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	event := fmt.Sprintf(format, args...)
	c.events = append(c.events, event)
	if c.observe != nil {
		c.observe(event)
	}
	if c.fail != "" && strings.HasPrefix(event, c.fail) {
		c.fail = ""
		return errors.New("injected failure at " + event)
	}
	return nil
}

func (c *cloud) take() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	events := c.events
	c.events = nil
	return events
}

func (c *cloud) CreateVM(_ context.Context, s VMSpec) (string, error) {
	if err := c.record("%s create_vm", s.Instance.ShortName()); err != nil {
		return "", err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.count++
	cid := fmt.Sprintf("i-%d", c.count)
	for old, other := range c.vms {
		if other.Name == s.Name { // left by an attempt that was interrupted
			delete(c.vms, old)
		}
	}
	c.vms[cid] = s
	if c.observe != nil {
		c.observe(s.Instance.ShortName() + " created")
	}
	return cid, nil
}

func (c *cloud) DeleteVM(_ context.Context, vm VM) error {
	c.mutex.Lock()
	s, ok := c.vms[vm.CID]
	delete(c.vms, vm.CID)
	c.mutex.Unlock()
	if !ok {
		return c.record("%s delete_vm of nothing", vm.Name)
	}
	return c.record("%s delete_vm", s.Instance.ShortName())
}

func (c *cloud) HasVM(_ context.Context, vm VM) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_, ok := c.vms[vm.CID]
	return ok
}

func (c *cloud) SetTags(_ context.Context, vm VM, _ map[string]string) error {
	c.mutex.Lock()
	s := c.vms[vm.CID]
	c.mutex.Unlock()
	return c.record("%s set_tags", s.Instance.ShortName())
}

func (c *cloud) Agent(vm VM) (agent.Agent, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	s, ok := c.vms[vm.CID]
	if !ok {
		return nil, fmt.Errorf("no VM %s", vm.CID)
	}
	return &fakeAgent{cloud: c, cid: vm.CID, label: s.Instance.ShortName()}, nil
}

type fakeAgent struct {
	cloud *cloud
	cid   string
	label string
}

func (a *fakeAgent) Apply(_ context.Context, s agent.ApplySpec) error {
	for _, job := range s.Jobs {
		if _, err := os.Stat(filepath.Join(job.Dir, "monit")); err != nil {
			return err
		}
	}
	return a.cloud.record("%s apply", a.label)
}

func (a *fakeAgent) RunScript(_ context.Context, name string, env map[string]string) error {
	c := a.cloud
	c.mutex.Lock()
	switch name {
	case "pre-start":
		c.inFlight++
		c.maxInFlight = max(c.maxInFlight, c.inFlight)
	case "post-start":
		c.inFlight--
	}
	slow := c.slow
	c.mutex.Unlock()
	if name == "pre-start" {
		time.Sleep(slow)
	}
	if len(env) > 0 {
		return a.cloud.record("%s %s vm=%s instance=%s deployment=%s", a.label, name,
			env["BOSH_VM_NEXT_STATE"], env["BOSH_INSTANCE_NEXT_STATE"], env["BOSH_DEPLOYMENT_NEXT_STATE"])
	}
	return a.cloud.record("%s %s", a.label, name)
}

func (a *fakeAgent) RunErrand(_ context.Context, job string, stdout, _ io.Writer) (int, error) {
	fmt.Fprintln(stdout, "checked")
	return a.cloud.errandCode, a.cloud.record("%s errand %s", a.label, job)
}

func (a *fakeAgent) Drain(context.Context, map[string]string) error {
	return a.cloud.record("%s drain", a.label)
}

func (a *fakeAgent) Start(context.Context) error {
	a.cloud.mutex.Lock()
	a.cloud.state[a.cid] = agent.Running
	a.cloud.mutex.Unlock()
	return a.cloud.record("%s start", a.label)
}

func (a *fakeAgent) Stop(context.Context) error {
	a.cloud.mutex.Lock()
	a.cloud.state[a.cid] = agent.Stopped
	a.cloud.mutex.Unlock()
	return a.cloud.record("%s stop", a.label)
}

func (a *fakeAgent) Unmonitor(context.Context) error { return a.cloud.record("%s unmonitor", a.label) }

func (a *fakeAgent) State(context.Context) (agent.State, error) {
	a.cloud.mutex.Lock()
	defer a.cloud.mutex.Unlock()
	if a.cloud.stuck != nil {
		return *a.cloud.stuck, nil
	}
	return agent.State{State: a.cloud.state[a.cid]}, nil
}

func (a *fakeAgent) CheckDNS(context.Context) error {
	if a.cloud.dnsFails == nil {
		return nil
	}
	return a.cloud.dnsFails()
}

func (a *fakeAgent) JobHealth(context.Context) (map[string]agent.RunState, error) { return nil, nil }

// bench is a Director on a fake cloud with the test release.
type bench struct {
	t        *testing.T
	dir      string
	cloud    *cloud
	releases map[string]*release.Release
	output   strings.Builder
	ops      []string
	now      func() time.Time // of the progress lines; nil means time.Now
	publish  func(*Plan) error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	tarball := releasetest.Build(t, "testdata/release", "shop", "1+dev.1")
	r, err := release.Read(context.Background(), tarball, filepath.Join(dir, "releases"), nil)
	if err != nil {
		t.Fatal(err)
	}
	// The fake cloud runs nothing, so packages need not be compiled.
	for _, p := range r.Packages {
		p.Archive, p.Compiled = "", t.TempDir()
	}
	return &bench{t: t, dir: dir, cloud: newCloud(), releases: map[string]*release.Release{"shop": r}}
}

// sharedVars is a variable store for all tests, since generating keys takes long.
var sharedVars = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "director-vars")
	if err != nil {
		panic(err)
	}
	return dir
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(sharedVars())
	os.Exit(code)
}

// op adds an ops-file to the following deploys.
func (b *bench) op(text string) *bench {
	b.t.Helper()
	path := filepath.Join(b.dir, fmt.Sprintf("op-%d.yml", len(b.ops)))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.ops = append(b.ops, path)
	return b
}

func (b *bench) plan() (*Plan, *Store, error) {
	b.t.Helper()
	store, err := OpenState(filepath.Join(b.dir, "state.json"))
	if err != nil {
		return nil, nil, err
	}
	vars, err := manifest.OpenStore(filepath.Join(sharedVars(), "vars.yml"))
	if err != nil {
		return nil, nil, err
	}
	text, err := manifest.Interpolate(manifest.Source{
		Path: "testdata/manifest.yml", OpsFiles: b.ops, Vars: []string{"owner=me"}, Store: vars,
	})
	if err != nil {
		return nil, nil, err
	}
	m, err := manifest.Parse("manifest.yml", text)
	if err != nil {
		return nil, nil, err
	}
	text, err = manifest.Interpolate(
		manifest.Source{Path: "testdata/cloud-config.yml", Defaults: map[string]any{"net": "10.9"}},
	)
	if err != nil {
		return nil, nil, err
	}
	c, err := manifest.ParseCloudConfig("cloud-config.yml", text)
	if err != nil {
		return nil, nil, err
	}
	plan, err := NewPlan(m, c, b.releases, &store.State)
	return plan, store, err
}

func (b *bench) run(options Options) (int, error) {
	b.t.Helper()
	plan, store, err := b.plan()
	if err != nil {
		return 0, err
	}
	d := &Director{
		Dir: b.dir, Store: store, CPI: b.cloud, Compiler: &release.Compiler{Dir: b.dir},
		Progress: &Progress{Out: &b.output, Now: b.now}, Publish: b.publish, Poll: time.Millisecond,
	}
	if err := d.Prepare(context.Background(), plan); err != nil {
		return 0, err
	}
	return d.Deploy(context.Background(), plan, options)
}

func (b *bench) deploy() int {
	b.t.Helper()
	touched, err := b.run(Options{})
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.output.String())
	}
	return touched
}

func (b *bench) state() *State {
	b.t.Helper()
	store, err := OpenState(filepath.Join(b.dir, "state.json"))
	if err != nil {
		b.t.Fatal(err)
	}
	return &store.State
}

// of returns the events of one instance, without its label.
func of(events []string, instance string) []string {
	var list []string
	for _, e := range events {
		if rest, ok := strings.CutPrefix(e, instance+" "); ok {
			list = append(list, rest)
		}
	}
	return list
}

func wantEvents(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
