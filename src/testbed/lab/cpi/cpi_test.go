package cpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/director/manifest"
	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/release/releasetest"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/network/networktest"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

// account is a cloud that only records instances.
type account struct {
	mutex     sync.Mutex
	instances map[string]cpi.Launch
	count     int
	// registered are the ids of instances that were registered with the target group api, the only one.
	registered []string
}

func (a *account) Launch(_ context.Context, l cpi.Launch) (string, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.count++
	id := fmt.Sprintf("i-%d", a.count)
	a.instances[id] = l
	return id, nil
}

func (a *account) Register(_ context.Context, id, targetGroup string) error {
	if targetGroup != "api" {
		return errors.New("no such group")
	}
	a.registered = append(a.registered, id)
	return nil
}

func (a *account) Terminate(_ context.Context, id string) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.instances, id)
	return nil
}

func (a *account) Tag(context.Context, string, map[string]string) error { return nil }

func (a *account) FindByAddress(_ context.Context, address string) ([]string, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var ids []string
	for id, l := range a.instances {
		if l.Address == address {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// world is a network and a Director on real VMs.
type world struct {
	t       *testing.T
	dir     string
	network network.Network
	account *account
	out     bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), account: &account{instances: map[string]cpi.Launch{}}}
	t.Cleanup(w.nothingLeft)
	w.network = networktest.New(t)
	t.Cleanup(w.destroy)
	return w
}

func (w *world) destroy() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := vm.List(w.dir)
	if err != nil {
		w.t.Error(err)
	}
	for _, name := range list {
		v, err := vm.Open(w.dir, name)
		if err == nil {
			err = v.Destroy(ctx)
		}
		if err != nil {
			w.t.Errorf("destroying VM %s: %v", name, err)
		}
	}
}

// nothingLeft checks that nothing is left after VMs and network have been removed; processes may take a moment to exit.
func (w *world) nothingLeft() {
	if w.t.Skipped() {
		return
	}
	err := poll.Within(context.Background(), 10*time.Second, 100*time.Millisecond, func(context.Context) error {
		left, err := vm.Leftovers(w.network, w.dir)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left behind: %v", left)
		}
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
}

const testdata = "../director/testdata"

func (w *world) deploy(tarball string, options director.Options, ops ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	d, plan := w.plan(tarball, ops)
	if err := d.Prepare(ctx, plan); err != nil {
		w.t.Fatal(err)
	}
	if _, err := d.Deploy(ctx, plan, options); err != nil {
		w.t.Fatalf("%v\n%s", err, w.out.String())
	}
}

func (w *world) plan(tarball string, ops []string) (*director.Director, *director.Plan) {
	w.t.Helper()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	r, err := release.Read(context.Background(), tarball, filepath.Join(w.dir, "releases"), nil)
	must(err)
	vars, err := manifest.OpenStore(filepath.Join(w.dir, "vars.yml"))
	must(err)
	var files []string
	for n, op := range ops {
		path := filepath.Join(w.dir, fmt.Sprintf("op-%d.yml", n))
		must(os.WriteFile(path, []byte(op), 0o644))
		files = append(files, path)
	}
	text, err := manifest.Interpolate(
		manifest.Source{Path: testdata + "/manifest.yml", OpsFiles: files, Vars: []string{"owner=me"}, Store: vars},
	)
	must(err)
	m, err := manifest.Parse("manifest.yml", text)
	must(err)
	text, err = manifest.Interpolate(
		manifest.Source{
			Path:     testdata + "/cloud-config.yml",
			Defaults: map[string]any{"net": fmt.Sprintf("10.%d", w.network.Number)},
		},
	)
	must(err)
	cloud, err := manifest.ParseCloudConfig("cloud-config.yml", text)
	must(err)
	store, err := director.OpenState(filepath.Join(w.dir, "state.json"))
	must(err)
	plan, err := director.NewPlan(m, cloud, map[string]*release.Release{"shop": r}, &store.State)
	must(err)
	return &director.Director{
		Dir:      w.dir,
		Store:    store,
		Progress: &director.Progress{Out: &w.out},
		CPI:      &cpi.CPI{StateDir: w.dir, Network: w.network, Cloud: w.account},
		Compiler: &release.Compiler{
			Dir:     filepath.Join(w.dir, "compiled"),
			Logs:    filepath.Join(w.dir, "log"),
			Workers: 2,
		},
	}, plan
}

// on runs a command on an instance and returns its output.
func (w *world) on(group string, index int, argv ...string) string {
	w.t.Helper()
	store, err := director.OpenState(filepath.Join(w.dir, "state.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := vm.Open(w.dir, store.State.Group(group)[index].VM.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	if err := v.Run(ctx, argv, vm.RunOptions{Stdout: &out, Stderr: &out}); err != nil {
		w.t.Errorf("%s/%d: %q: %v\n%s", group, index, argv, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

func TestDeployOnRealVMs(t *testing.T) {
	w := newWorld(t)
	tarball := releasetest.Build(t, testdata+"/release", "shop", "1")
	smaller := `
- {type: replace, path: /instance_groups/name=db/instances, value: 2}
- {type: replace, path: /instance_groups/name=web/instances, value: 1}`
	w.deploy(tarball, director.Options{}, smaller)

	if seen := w.on(
		"web", 0, "cat", "/var/vcap/data/seen",
	); !strings.HasPrefix(seen, fmt.Sprintf("hello 10.%d.16.11,10.%d.32.10:5432", w.network.Number, w.network.Number)) {
		t.Errorf("pre-start saw %q", seen)
	}
	w.on("web", 0, "test", "-e", "/var/vcap/data/deployed")
	first := w.on("db", 0, "cat", "/var/vcap/sys/run/db/db.pid")
	w.on("db", 0, "kill", "-0", first)
	w.on("db", 0, "sh", "-c", "echo kept > /var/vcap/store/data")

	w.deploy(tarball, director.Options{}, smaller)
	if again := w.on("db", 0, "cat", "/var/vcap/sys/run/db/db.pid"); again != first {
		t.Errorf("the process was restarted by a deploy without changes: %s, then %s", first, again)
	}

	w.deploy(tarball, director.Options{Action: director.Recreate, Targets: "db/0"}, smaller)
	if data := w.on("db", 0, "cat", "/var/vcap/store/data", "/var/vcap/store/events"); data != "kept\ndrained" {
		t.Errorf("the persistent disk holds %q", data)
	}
	if len(w.account.instances) != 3 {
		t.Errorf("the cloud has %d instances, want 3", len(w.account.instances))
	}

	// A VM that has died is recreated, with --fix.
	store, err := director.OpenState(filepath.Join(w.dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := vm.Open(w.dir, store.State.Group("db")[1].VM.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.deploy(tarball, director.Options{Fix: true}, smaller)
	w.on("db", 1, "sh", "-c", "kill -0 $(cat /var/vcap/sys/run/db/db.pid)")
}

// An instance that cannot be registered with its load balancer is terminated; the VM is not booted.
func TestRegistersWithTargetGroups(t *testing.T) {
	cloud := &account{instances: map[string]cpi.Launch{}}
	c := &cpi.CPI{StateDir: t.TempDir(), Cloud: cloud}
	spec := director.VMSpec{
		Name: "x", Instance: director.Instance{ID: "1", Address: netip.MustParseAddr("10.0.0.5")},
		NetworkProperties: map[string]any{"subnet": "subnet-1"},
		CloudProperties:   map[string]any{"lb_target_groups": []any{"api", "typo"}},
	}
	_, err := c.CreateVM(context.Background(), spec)
	if err == nil || !strings.Contains(err.Error(), "target group 'typo': no such group") {
		t.Errorf("error %v", err)
	}
	if !slices.Equal(cloud.registered, []string{"i-1"}) || len(cloud.instances) != 0 {
		t.Errorf("registered %q, left behind %v", cloud.registered, cloud.instances)
	}
}

func TestRefusesInvalidCloudProperties(t *testing.T) {
	c := &cpi.CPI{StateDir: t.TempDir(), Cloud: &account{instances: map[string]cpi.Launch{}}}
	spec := director.VMSpec{
		Name:     "x",
		Instance: director.Instance{ID: "1", Address: netip.MustParseAddr("10.0.0.5")},
		CloudProperties: map[string]any{
			"instance_type":    5,
			"security_groups":  "sg-1",
			"metadata_options": map[string]any{"http_put_response_hop_limit": "one"},
		},
	}
	_, err := c.CreateVM(context.Background(), spec)
	for _, want := range []string{
		"'instance_type' is 5; it must be a string", "'security_groups' is sg-1; it must be a list",
		"'http_put_response_hop_limit' is one; it must be a number", "the network's cloud_properties have no 'subnet'",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
