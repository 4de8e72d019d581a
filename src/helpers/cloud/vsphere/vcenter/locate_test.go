package vcenter_test

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/cloud/vsphere/vcenter"
	"kubernetes-release/node"
)

const instanceID = "0a1b2c3d-0000-4000-8000-000000000001"

// machine returns a VM of vcsim by its name.
func (w *world) machine(name string) *simulator.VirtualMachine {
	w.t.Helper()
	for _, object := range w.model.Map().All("VirtualMachine") {
		if vm := object.(*simulator.VirtualMachine); vm.Name == name {
			return vm
		}
	}
	w.t.Fatalf("no VM %s", name)
	return nil
}

// setAttributes replaces a VM's custom attributes.
func setAttributes(vm *simulator.VirtualMachine, attributes map[string]string) {
	vm.AvailableField, vm.CustomValue = nil, nil
	for i, name := range slices.Sorted(maps.Keys(attributes)) {
		key := int32(100 + i)
		vm.AvailableField = append(
			vm.AvailableField, types.CustomFieldDef{Key: key, Name: name, ManagedObjectType: "VirtualMachine"},
		)
		vm.CustomValue = append(vm.CustomValue, &types.CustomFieldStringValue{
			CustomFieldValue: types.CustomFieldValue{Key: key}, Value: attributes[name],
		})
	}
}

// ofInstance is what the Director says of a VM.
func ofInstance() map[string]string {
	return map[string]string{
		"deployment": "prod", "director": "bosh", "id": instanceID, "job": "worker", "index": "0",
		"name": "worker/" + instanceID,
	}
}

func (w *world) locate() (vsphere.Location, error) {
	w.t.Helper()
	w.configure()
	var log bytes.Buffer
	location, err := vcenter.Locate(w.t.Context(), vsphere.Search{
		Instance: node.Instance{Deployment: "prod", ID: instanceID}, File: w.question.File,
	}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if strings.Contains(log.String(), password) {
		w.t.Errorf("the log has the password: %s", log.String())
	}
	return location, err
}

// TestLocate expects the VM that the CPI has marked as the instance's, and a refusal if that is not clearly one.
func TestLocate(t *testing.T) {
	const other = "DC0_C0_RP0_VM1"
	for name, test := range map[string]struct {
		change func(w *world)
		want   []string // of the refusal; the provider ID if none
	}{
		"one": {func(*world) {}, nil},
		"others have other IDs": {func(w *world) {
			attributes := ofInstance()
			attributes["id"] = "0a1b2c3d-0000-4000-8000-000000000002"
			setAttributes(w.machine(other), attributes)
		}, nil},
		"a replica that does not run": {func(w *world) {
			replica := w.machine(other)
			setAttributes(replica, ofInstance())
			replica.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOff
		}, nil},
		"two that run": {
			func(w *world) { setAttributes(w.machine(other), ofInstance()) },
			[]string{"DC0_C0_RP0_VM0", other, "bosh vms", `deployment="prod"`, instanceID},
		},
		"it does not run": {
			func(w *world) { w.vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOff },
			[]string{"no VM that runs", "the vSphere CPI sets"},
		},
		"of another deployment": {func(w *world) {
			attributes := ofInstance()
			attributes["deployment"] = "staging"
			setAttributes(w.vm, attributes)
		}, []string{"no VM that runs", `DC0_C0_RP0_VM0 (deployment="staging", id="` + instanceID + `")`}},
		"the ID in another attribute": {func(w *world) {
			attributes := ofInstance()
			attributes["note"], attributes["id"] = attributes["id"], ""
			setAttributes(w.vm, attributes)
		}, []string{"no VM that runs", `DC0_C0_RP0_VM0 (deployment="prod", id="")`}},
		"no attributes": {
			func(w *world) { setAttributes(w.vm, nil) }, []string{"no VM that runs", `id="` + instanceID + `"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			setAttributes(w.vm, ofInstance())
			test.change(w)
			location, err := w.locate()
			if err != nil {
				t.Fatal(err)
			}
			if test.want == nil {
				if location != (vsphere.Location{ProviderID: "vsphere://" + vmUUID}) {
					t.Errorf("%+v", location)
				}
				if calls := w.calls.Load(); calls != 7 {
					t.Errorf("%d calls, want 7", calls)
				}
				return
			}
			for _, want := range test.want {
				if !strings.Contains(location.Refusal, want) || location.ProviderID != "" {
					t.Errorf("%+v, want a refusal with %q", location, want)
				}
			}
		})
	}
}

// TestLocateFails: what may be otherwise in a minute is an error, not a refusal.
func TestLocateFails(t *testing.T) {
	for want, change := range map[string]func(w *world){
		"connect to vCenter 127.0.0.1:":      func(w *world) { w.config["port"] = 1 },
		`unknown field "vcenter.vc.pasword"`: func(w *world) { w.config["pasword"] = "" },
	} {
		w := newWorld(t)
		setAttributes(w.vm, ofInstance())
		change(w)
		location, err := w.locate()
		if err == nil || !strings.Contains(err.Error(), want) || location != (vsphere.Location{}) {
			t.Errorf("%+v, %v; want %q", location, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "wrong-password") {
			t.Errorf("the error has the password: %v", err)
		}
	}
}

// TestLocateTellsARefusedLogin: whoever asks must not repeat it.
func TestLocateTellsARefusedLogin(t *testing.T) {
	w := newWorld(t)
	w.config["password"] = "wrong-password"
	location, err := w.locate()
	if err != nil || !strings.Contains(location.LoginRefused, "log in to vCenter") ||
		strings.Contains(location.LoginRefused, "wrong-password") {
		t.Errorf("%+v, %v", location, err)
	}
}

// TestLocateEndsWhenNobodyWaits leaves no session, of which vCenter has a limit.
func TestLocateEndsWhenNobodyWaits(t *testing.T) {
	w := newWorld(t)
	ctx := w.hang("CreateContainerView", 0)
	w.configure()
	location, err := vcenter.Locate(ctx, vsphere.Search{
		Instance: node.Instance{Deployment: "prod", ID: instanceID}, File: w.question.File,
	}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "context canceled") || location != (vsphere.Location{}) {
		t.Errorf("%+v, %v", location, err)
	}
	if w.logouts.Load() != 1 {
		t.Errorf("%d sessions were ended", w.logouts.Load())
	}
}
