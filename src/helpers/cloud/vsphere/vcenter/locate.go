package vcenter

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/preflight"
)

// Custom attributes of a VM that the CPI sets to what the Director says (set_vm_metadata in
// src/vsphere_cpi/lib/cloud/vsphere/cloud.rb of bosh-vsphere-cpi-release, metadata_updater.rb of bosh-director).
const (
	deploymentAttribute = "deployment"
	idAttribute         = "id"
)

// Locate finds the VM of an instance: the one that runs and has the instance's deployment and ID as custom attributes.
// A VM cannot change its own. The addresses would not do: vCenter has them from VMware Tools, so from the VM itself.
// It takes seven calls, whatever the size of the inventory; the answer to one of them has the attributes of all VMs, of
// which vCenter has no index.
func Locate(ctx context.Context, search vsphere.Search, log *slog.Logger) (vsphere.Location, error) {
	secrets := &preflight.Secrets{}
	log = secrets.Logger(log)
	facts := &checks.Facts{}
	ReadConfig(search.File, facts)
	if facts.ConfigErr != nil {
		return vsphere.Location{}, facts.ConfigErr
	}
	session := New(facts, log, secrets)
	defer session.Close(ctx)
	if err := session.connect(ctx); err != nil {
		return vsphere.Location{}, fmt.Errorf("connect to vCenter %s: %w", facts.VCenter.Address(), err)
	}
	if err := session.logIn(ctx); err != nil {
		err = fmt.Errorf("log in to vCenter %s: %w", facts.VCenter.Address(), err)
		if facts.LoginRefused {
			return vsphere.Location{LoginRefused: err.Error()}, nil
		}
		return vsphere.Location{}, err
	}
	candidates, err := session.candidates(ctx, search.Instance.ID)
	if err != nil {
		return vsphere.Location{}, fmt.Errorf(
			"ask vCenter for the VM of instance %s: %s", search.Instance.ID, describe(err),
		)
	}
	return choose(candidates, search.Instance.Deployment, search.Instance.ID), nil
}

// candidate is a VM that runs and has an instance's ID in a custom attribute.
type candidate struct {
	name, uuid string
	attributes map[string]string
}

func (s *Session) candidates(ctx context.Context, instance string) ([]candidate, error) {
	machines, err := s.machines(ctx)
	if err != nil {
		return nil, err
	}
	var refs []types.ManagedObjectReference
	for _, m := range machines {
		if m.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn &&
			slices.ContainsFunc(m.CustomValue, func(v types.BaseCustomFieldValue) bool { return text(v) == instance }) {
			refs = append(refs, m.Self)
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	var found []mo.VirtualMachine
	read, cancel := s.call(ctx, "RetrieveProperties")
	defer cancel()
	err = property.DefaultCollector(s.client).
		Retrieve(read, refs, []string{"name", "config.uuid", "customValue", "availableField"}, &found)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, m := range found {
		if m.Config == nil { // the user may not read it
			return nil, fmt.Errorf("the configuration of the VM %s cannot be read: System.Read", m.Name)
		}
		list = append(list, candidate{m.Name, m.Config.Uuid, attributes(m)})
	}
	return list, nil
}

// machines returns all VMs that the user can see, with their custom attributes and whether they run.
func (s *Session) machines(ctx context.Context) ([]mo.VirtualMachine, error) {
	create, cancel := s.call(ctx, "CreateContainerView")
	defer cancel()
	all, err := view.NewManager(s.client).
		CreateContainerView(create, s.client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		destroy, cancel := s.farewell(ctx, "DestroyView")
		defer cancel()
		if err := all.Destroy(destroy); err != nil {
			s.log.Debug("destroy the view of VMs", "error", describe(err))
		}
	}()
	var machines []mo.VirtualMachine
	retrieve, cancel := s.call(ctx, "RetrieveProperties")
	defer cancel()
	err = all.Retrieve(retrieve, []string{"VirtualMachine"}, []string{"customValue", "runtime.powerState"}, &machines)
	return machines, err
}

// attributes returns a VM's custom attributes by name.
func attributes(m mo.VirtualMachine) map[string]string {
	values := map[string]string{}
	for _, field := range m.AvailableField {
		for _, value := range m.CustomValue {
			if value.GetCustomFieldValue().Key == field.Key {
				values[field.Name] = text(value)
			}
		}
	}
	return values
}

func text(value types.BaseCustomFieldValue) string {
	if v, ok := value.(*types.CustomFieldStringValue); ok {
		return v.Value
	}
	return ""
}

// choose returns the one VM that is the instance's.
func choose(candidates []candidate, deployment, id string) vsphere.Location {
	var fitting []candidate
	var names, others []string
	for _, c := range candidates {
		if c.attributes[deploymentAttribute] == deployment && c.attributes[idAttribute] == id {
			fitting, names = append(fitting, c), append(names, c.name)
			continue
		}
		others = append(others, fmt.Sprintf(
			"%s (%s=%q, %s=%q)", c.name, deploymentAttribute, c.attributes[deploymentAttribute],
			idAttribute, c.attributes[idAttribute],
		))
	}
	wanted := fmt.Sprintf("the custom attributes %s=%q and %s=%q", deploymentAttribute, deployment, idAttribute, id)
	switch {
	case len(fitting) == 1:
		return vsphere.Location{ProviderID: vsphere.ProviderID(fitting[0].uuid)}
	case len(fitting) > 1:
		return vsphere.Location{Refusal: fmt.Sprintf(
			"the VMs %s all run with %s; power off those that are not BOSH's (bosh vms). With vm_strategy "+
				"create-swap-delete, the Director deletes the old one some minutes later (bosh orphaned-vms)",
			strings.Join(names, ", "), wanted,
		)}
	}
	reason := "no VM that runs and that the user of vCenter can see has " + wanted + ", which the vSphere CPI sets"
	if len(others) > 0 {
		reason += "; of the same ID are " + strings.Join(others, ", ")
	}
	return vsphere.Location{Refusal: reason}
}
