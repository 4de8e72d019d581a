package external

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/render"
)

// TestCalls sends requests as a Director does, and as none does.
func TestCalls(t *testing.T) {
	w := newWorld(t)
	content, err := os.ReadFile("testdata/calls.json")
	if err != nil {
		t.Fatal(err)
	}
	var calls []struct {
		Name    string
		Request json.RawMessage
		Result  any
		Error   string
	}
	if err := json.Unmarshal(content, &calls); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		answer := w.send(string(c.Request))
		if answer.Error == nil {
			answer.Error = &Error{}
		}
		if answer.Error.Type != c.Error || answer.Error.OKToRetry || !reflect.DeepEqual(answer.Result, c.Result) {
			t.Errorf("%s: got %+v with error %+v", c.Name, answer.Result, *answer.Error)
		}
	}
	for _, request := range []string{"", "{", "[]", `"info"`} {
		if answer := w.send(request); answer.Error == nil || answer.Error.Type != cpiError {
			t.Errorf("%q: got %+v", request, answer)
		}
	}
}

// TestDisks has no VM. Calls are repeated as after a lost answer.
func TestDisks(t *testing.T) {
	w := newWorld(t)
	disk := w.must("create_disk", 1500, map[string]any{"type": "gp3"}, nil).(string) // 2 GiB
	if w.must("has_disk", disk) != true {
		t.Error("has_disk: false")
	}
	file := w.cpi.file(disk)
	kinds := func() string {
		out, _ := exec.Command("blkid", "-p", "-o", "export", "-s", "TYPE", "-s", "PTTYPE", file).CombinedOutput()
		return strings.Join(strings.Fields(string(out)), " ")
	}
	if got := kinds(); !strings.Contains(got, "TYPE=ext4 PTTYPE=dos") {
		t.Errorf("the agent would not mount the disk at boot: %s", got)
	}
	w.must("set_disk_metadata", disk, map[string]any{"deployment": "k", "instance_index": 0})
	if tags := w.sim.World().Volumes[0].Tags; tags["deployment"] != "k" || tags["instance_index"] != "0" {
		t.Errorf("tags %v", tags)
	}
	w.refused(notSupported, "cannot shrink to 1024 MiB", "resize_disk", disk, 1024)
	for range 2 {
		w.must("resize_disk", disk, 3000)
	}
	info, err := os.Stat(file)
	if err != nil || info.Size() != 3<<30 || !strings.Contains(kinds(), "TYPE=ext4 PTTYPE=dos") {
		t.Errorf("after the resize: %v, %v, %s", info, err, kinds())
	}
	out, err := exec.Command("dumpe2fs", "-h", file).Output()
	if err != nil || !strings.Contains(string(out), " 786432\n") { // blocks of 4 KiB
		t.Errorf("the file system has not grown to 3 GiB: %v\n%s", err, out)
	}
	snapshot := w.must("snapshot_disk", disk, map[string]any{"deployment": "k"}).(string)
	if s := w.sim.World().Snapshots[0]; s.ID != snapshot || s.Tags["deployment"] != "k" {
		t.Errorf("snapshot %+v", s)
	}
	w.must("delete_snapshot", snapshot)
	w.refused(diskNotFound, "", "delete_snapshot", snapshot)
	w.must("delete_disk", disk)
	w.refused(diskNotFound, disk, "delete_disk", disk)
	w.refused(diskNotFound, disk, "resize_disk", disk, 4096)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file of the disk: %v", err)
	}
}

func TestConcurrentDisks(t *testing.T) {
	w := newWorld(t)
	var group sync.WaitGroup
	var mutex sync.Mutex
	disks := map[any]bool{}
	for range 6 {
		group.Go(func() {
			disk, err := w.call("create_disk", 1024, map[string]any{}, nil)
			mutex.Lock()
			defer mutex.Unlock()
			if disks[disk] = true; err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(disks) != 6 {
		t.Errorf("disks %v", disks)
	}
}

func TestStemcells(t *testing.T) {
	w := newWorld(t)
	interrupted := w.cpi.path("stemcells", "stemcell-1"+incomplete)
	if err := os.MkdirAll(interrupted, 0o755); err != nil {
		t.Fatal(err)
	}
	image := stemcell(t)
	one := w.must("create_stemcell", image, map[string]any{}).(string)
	two := w.must("create_stemcell", image, nil).(string)
	if one == two {
		t.Error("two stemcells have the same id: the deletion of one would delete both")
	}
	if _, err := os.Stat(interrupted); !os.IsNotExist(err) {
		t.Errorf("what an interrupted call has left: %v", err)
	}
	for range 2 {
		w.must("delete_stemcell", one)
	}
	if _, err := w.cpi.image(two); err != nil {
		t.Error(err)
	}
	w.refused(cloudError, "the stemcell's image has no /var/vcap/bosh/bin/bosh-agent", "create_stemcell",
		stemcell(t, "var/vcap/bosh/bin/bosh-agent"), nil)
	other := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(other, []byte("QFI"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.refused(cloudError, "must be a gzipped tar archive", "create_stemcell", other, nil)
	if left, _ := filepath.Glob(w.cpi.path("stemcells", "*")); len(left) != 1 {
		t.Errorf("left %q", left)
	}
}

// TestNetworks: what the lab cannot do is refused before anything is created.
func TestNetworks(t *testing.T) {
	w := newWorld(t)
	image := w.must("create_stemcell", stemcell(t), nil).(string)
	for _, c := range []struct {
		kind, message string
		change        func(networks map[string]any, network map[string]any)
	}{
		{notSupported, "has type dynamic; it must be manual", func(_, n map[string]any) { n["type"] = "dynamic" }},
		{cloudError, "has the address '10.9.0.4'; it must be one of the lab's network 10.20.0.0/16",
			func(_, n map[string]any) { n["ip"] = "10.9.0.4" }},
		{cloudError, "has 2 networks", func(all, n map[string]any) { all["second"] = n }},
		{cloudError, "has 0 networks", func(all, _ map[string]any) { delete(all, "default") }},
	} {
		arguments := w.vmArguments(image, 10)
		networks := arguments[3].(map[string]any)
		c.change(networks, networks["default"].(map[string]any))
		w.refused(c.kind, c.message, "create_vm", arguments...)
	}
	arguments := w.vmArguments(image, 10)
	arguments[2] = map[string]any{"instance_type": 5}
	w.refused(vmCreationFailed, "'instance_type' is 5; it must be a string", "create_vm", arguments...)
	if n := len(w.sim.World().Instances); n != 0 {
		t.Errorf("%d instances", n)
	}
}

// TestAgentsConfiguration: the options of a cpi-config win over those of the CPI's own.
func TestAgentsConfiguration(t *testing.T) {
	w := newWorld(t)
	w.cpi.Agent = Agent{Mbus: "nats://own"}
	dir := w.must("create_stemcell", stemcell(t), nil).(string)
	image, err := w.cpi.image(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{}
	for want, request := range map[string]string{
		"nats://own": `{}`, "nats://x": `{"context": {"agent": {"mbus": "nats://x"}}}`,
	} {
		c.Context.Agent = nil
		if err := json.Unmarshal([]byte(request), c); err != nil || w.cpi.agent(c).Mbus != want {
			t.Errorf("%s: %+v, %v", request, w.cpi.agent(c), err)
		}
	}
	text, err := agentConfig(image)
	const want = `{"Platform":{"Linux":{"BindMountPersistentDisk":false,"SkipDiskSetup":true,"UseDefaultTmpDir":true,` +
		`"UsePreformattedPersistentDisk":true}},"Infrastructure":{"Settings":{"Sources":[{"SettingsPath":` +
		`"/var/vcap/bosh/warden-cpi-agent-env.json","Type":"File"}],"UseRegistry":false}}}`
	if err != nil || text != want {
		t.Errorf("agent.json %s, %v", text, err)
	}
}

// TestRelease renders the job as a Director does, and makes a call with it.
func TestRelease(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "release.tgz")
	var written [2]string
	for i := range written {
		if err := WriteRelease(file, "/opt/bin/lab", "/srv/my lab"); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		written[i] = string(content)
	}
	if written[0] != written[1] {
		t.Error("the same release differs")
	}
	r, err := release.Read(t.Context(), file, filepath.Join(dir, "releases"), nil)
	if err != nil {
		t.Fatal(err)
	}
	job := r.Jobs[jobName]
	if r.Name != releaseName || job == nil || len(r.Packages) != 0 {
		t.Fatalf("release %+v", r)
	}
	agent := map[string]any{
		"mbus": "nats://x", "ntp": []any{}, "blobstore": map[string]any{"provider": "dav", "options": map[string]any{}},
	}
	rendered, problems, err := render.Jobs(t.Context(), []render.Job{{
		Name: jobName, Dir: job.Dir, Templates: job.Templates, Context: map[string]any{"properties": map[string]any{
			jobName: map[string]any{"command": []any{"/bin/echo", "a  b;"}, "agent": agent},
		}},
	}})
	if err != nil || problems[0] != nil {
		t.Fatal(err, problems)
	}
	p := &CPI{}
	config := filepath.Join(dir, "cpi.json")
	if err := os.WriteFile(config, rendered[0].Files["config/cpi.json"], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.readConfig(config); err != nil || p.Agent.Mbus != "nats://x" || p.Agent.Blobstore.Provider != "dav" {
		t.Errorf("configuration %+v, %v", p.Agent, err)
	}
	if os.Geteuid() != 0 {
		return // it would use sudo
	}
	out, err := exec.Command("bash", "-c", string(rendered[0].Files["bin/cpi"])).CombinedOutput()
	if want := "a  b; --config /var/vcap/jobs/lab_cpi/config/cpi.json\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}
