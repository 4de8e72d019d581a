package external

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab/cpi"
)

// instances are those that are not terminated.
func (w *world) instances() (list []store.Instance) {
	for _, i := range w.sim.World().Instances {
		if i.State != store.Terminated {
			list = append(list, i)
		}
	}
	return list
}

// TestVM boots a VM from a stemcell, with a persistent disk that outlives reboots and the VM.
func TestVM(t *testing.T) {
	w := newVMWorld(t)
	image := w.must("create_stemcell", stemcell(t), map[string]any{"infrastructure": "warden"}).(string)
	cid := w.createVM(image, 10)
	if w.must("has_vm", cid) != true {
		t.Error("has_vm: false")
	}
	w.refused(cloudError, "in use by VM "+cid, "delete_stemcell", image)
	const script = "cat /var/vcap/data/arguments; hostname; ls -l /var/vcap/bosh/agent.json | cut -c 1-10"
	if got := w.sh(cid, script); got != "-P ubuntu -C /var/vcap/bosh/agent.json\nagent-10\n-rw-------" {
		t.Errorf("the agent was started with %q", got)
	}
	var s settings
	if err := json.Unmarshal([]byte(w.sh(cid, "cat /var/vcap/data/settings.json")), &s); err != nil {
		t.Fatal(err)
	}
	if n := s.Networks["default"]; s.AgentID != "agent-10" || s.VM.Name != cid || n["preconfigured"] != true ||
		n["ip"] != w.address(10) || s.Env["bosh"].(map[string]any)["group"] != "director-kubernetes-control" {
		t.Errorf("the agent's settings are %+v", s)
	}
	w.must("set_vm_metadata", cid, map[string]any{"name": "control/1", "index": 1, "created_at": "now"})
	if i := w.instances()[0]; i.Tags["Name"] != "control/1" || i.Tags["index"] != "1" || i.Tags["owner"] != "me" {
		t.Errorf("tags %v", i.Tags)
	}

	// monit ends by a kill of its unit, and is started again, as by systemd.
	const monit = "cat /var/vcap/data/monit.pid"
	first := w.sh(cid, monit)
	w.sh(cid, "systemctl kill monit")
	w.sh(cid, `test "$(`+monit+`)" != `+first+` && systemctl is-active monit`)
	w.sh(cid, "systemctl stop monit && ! systemctl is-active monit")
	w.sh(cid, "systemctl start monit && systemctl is-active monit")

	disk := w.must("create_disk", 1024, map[string]any{}, cid).(string)
	device := w.must("attach_disk", cid, disk).(string)
	if again := w.must("attach_disk", cid, disk); again != device {
		t.Errorf("attached at %s, then at %v", device, again)
	}
	w.sh(cid, "mkdir -p /var/vcap/store; mount "+device+" /var/vcap/store; echo kept >/var/vcap/store/data; "+
		"echo "+device+" >/var/vcap/bosh/managed_disk_settings.json")
	w.must("reboot_vm", cid)
	if got := w.sh(cid, "cat /var/vcap/store/data"); got != "kept" {
		t.Errorf("after the reboot: %q", got)
	}
	if got := w.must("get_disks", cid).([]any); len(got) != 1 || got[0] != disk {
		t.Errorf("get_disks: %v", got)
	}
	w.refused(cloudError, "is attached to VM "+cid, "resize_disk", disk, 4096)
	w.sh(cid, "umount /var/vcap/store")
	w.must("detach_disk", cid, disk)
	w.refused(diskNotAttached, disk, "detach_disk", cid, disk)

	w.must("delete_vm", cid)
	w.refused(vmNotFound, cid, "delete_vm", cid)
	second := w.createVM(image, 10)
	w.must("attach_disk", second, disk)
	if got := w.sh(second, "mkdir -p /s && mount "+device+" /s && cat /s/data"); got != "kept" {
		t.Errorf("in the next VM: %q", got)
	}
}

// TestLostAnswers: the Director does not know a VM of a call whose answer it has not received, and gives the address to
// another one.
func TestLostAnswers(t *testing.T) {
	w := newVMWorld(t)
	image := w.must("create_stemcell", stemcell(t), nil).(string)
	lost := w.createVM(image, 10)
	w.director = "d2"
	w.refused(cloudError, "is that of VM "+lost+" of another Director (d1)", "create_vm", w.vmArguments(image, 10)...)
	w.director = "d1"
	known := w.createVM(image, 10)
	if w.must("has_vm", lost) != false || w.must("has_vm", known) != true {
		t.Error("the lost VM exists, or the other one does not")
	}
	if list := w.instances(); len(list) != 1 || list[0].ID != known {
		t.Errorf("instances %+v", list)
	}
	// A call that was killed after the launch has left an instance and no VM.
	w.must("delete_vm", known)
	left, err := w.cpi.Cloud.Launch(t.Context(), cpi.Launch{
		Address: w.address(10), Subnet: awssim.LabNodeSubnet(1), InstanceType: "m5.large",
		SecurityGroups: []string{awssim.DirectorSecurityGroup},
	})
	if err != nil {
		t.Fatal(err)
	}
	known = w.createVM(image, 10)
	if list := w.instances(); len(list) != 1 || list[0].ID != known || known == left {
		t.Errorf("instances %+v", list)
	}
}

// TestBootFails: the Director may try again, and nothing is left that keeps it from that.
func TestBootFails(t *testing.T) {
	w := newVMWorld(t)
	broken := w.must("create_stemcell", stemcell(t, "bin/busybox"), nil).(string)
	_, err := w.call("create_vm", w.vmArguments(broken, 10)...)
	if err == nil || err.Type != vmCreationFailed || !err.OKToRetry {
		t.Fatalf("got %+v", err)
	}
	if list := w.instances(); len(list) != 0 {
		t.Errorf("instances %+v", list)
	}
	w.createVM(w.must("create_stemcell", stemcell(t), nil).(string), 10)
}

func TestConcurrentVMs(t *testing.T) {
	w := newVMWorld(t)
	image := w.must("create_stemcell", stemcell(t), nil).(string)
	var group sync.WaitGroup
	for n := range 3 {
		group.Go(func() {
			result, err := w.call("create_vm", w.vmArguments(image, 10+n)...)
			if err != nil {
				t.Error(err)
				return
			}
			cid := result.([]any)[0].(string)
			if got := w.sh(cid, "cat /var/vcap/data/settings.json"); !strings.Contains(got, w.address(10+n)) {
				t.Errorf("the agent's settings: %s", got)
			}
			if _, err := w.call("delete_vm", cid); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if list := w.instances(); len(list) != 0 {
		t.Errorf("instances %+v", list)
	}
}
