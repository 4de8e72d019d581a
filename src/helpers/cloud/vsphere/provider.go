// Package vsphere is the provider for VMware vSphere. It determines the provider ID of this VM from its firmware, and
// has another program ask vCenter, so that VMware's library is not in the programs of other clouds.
//
// Package dmi reads the firmware, checks has the checks, vcenter asks vCenter.
package vsphere

import (
	"cmp"
	"context"
	"embed"
	"errors"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/cloud/vsphere/dmi"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/preflight"
)

//go:embed assets
var assets embed.FS

// Provider implements cloud.Checker and cloud.Locator. The zero value is ready for use on a VM; tests replace its
// parts.
type Provider struct {
	// Root is the directory with the machine's /sys; empty: /.
	Root string
	// BOSH is the directory of jobs and packages; empty: bosh.DefaultRoot.
	BOSH bosh.Root
}

var _ cloud.Checker = (*Provider)(nil)

// About implements cloud.Provider.
func (*Provider) About() cloud.About {
	return cloud.About{
		Name: "vsphere", Title: "VMware vSphere", Project: "cloud-provider-vsphere", Removed: "1.30", Flag: "vsphere",
		Manifests: assets, ConfigRequired: true, Driver: csiDriver,
		OpsFile: "vsphere.yml", Page: "vsphere.md", BOSHNames: true,
	}
}

// Checks implements cloud.Checker.
func (*Provider) Checks() []preflight.Check {
	var list []preflight.Check
	for _, c := range checks.All() {
		list = append(list, c.Check)
	}
	return list
}

// Preflight implements cloud.Checker. Names of nodes are BOSH's: vSphere has none of its own, and the cloud controller
// finds a VM by its UUID. Only control VMs ask vCenter, whose password no other VM has.
func (p *Provider) Preflight(ctx context.Context, request cloud.Request) (*cloud.Outcome, error) {
	vm := request.Config.VM
	if vm.InstanceGroup == "" || vm.InstanceID == "" || vm.Address == "" {
		return nil, errors.New("vm is incomplete: nodes are named after the instance group and the instance ID")
	}
	id := vm.Identity()
	facts := &checks.Facts{Request: request.Config}
	if err := request.Config.DecodeCloud(&facts.Settings); err != nil {
		return nil, err
	}
	if facts.Machine, facts.MachineErr = dmi.Read(cmp.Or(p.Root, "/")); facts.MachineErr == nil {
		id.ProviderID = ProviderID(facts.Machine.UUID)
	}
	out := &cloud.Outcome{Identity: &id, Machine: facts.Machine.UUID}
	if request.Config.Mode == preflight.ModeOff {
		return out, nil
	}
	remote := false
	for _, c := range checks.All() {
		switch {
		case !c.AppliesTo(request.Config.Role):
		case !c.Local:
			remote = true
		default:
			if result, on := request.Config.Grade(c.Check, c.Evaluate(facts)); on {
				out.Results = append(out.Results, result)
			}
		}
	}
	if !remote {
		return out, nil
	}
	answer, err := p.ask(ctx, facts, request)
	if err != nil {
		return nil, err
	}
	out.Results = append(out.Results, answer.Results...)
	out.Calls, out.Secrets = answer.Calls, answer.Secrets
	return out, nil
}

// ask has the job's program run the checks that ask vCenter. Without the job nothing is asked, which the report says.
func (p *Provider) ask(ctx context.Context, facts *checks.Facts, request cloud.Request) (*cloud.Outcome, error) {
	question := Question{
		Config: request.Config, Settings: facts.Settings, Machine: facts.Machine,
		File: request.Config.CloudConfigFile,
	}
	if facts.MachineErr != nil {
		question.MachineError = facts.MachineErr.Error()
	}
	var answer cloud.Outcome
	err := p.program().run(ctx, CheckCommand, question, &answer, request.Logger())
	if errors.Is(err, errNoProgram) {
		return notAsked(request.Config), nil
	}
	return &answer, err
}

// notAsked is the outcome on a control VM without the program: its cloud controller runs in pods.
func notAsked(config preflight.Config) *cloud.Outcome {
	out := &cloud.Outcome{}
	for _, c := range checks.All() {
		if c.Local || !c.AppliesTo(config.Role) {
			continue
		}
		skip := preflight.Outcome{Skip: "vCenter is only asked with the job " + job + " on the same VM"}
		if result, on := config.Grade(c.Check, skip); on {
			out.Results = append(out.Results, result)
		}
	}
	return out
}

// ProviderID returns the provider ID of the VM with this UUID, as vCenter shows it (ProviderPrefix in
// pkg/cloudprovider/vsphere/types.go of cloud-provider-vsphere).
func ProviderID(uuid string) string { return "vsphere://" + uuid }
