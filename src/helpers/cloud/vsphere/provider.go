// Package vsphere is the provider for VMware vSphere. It determines the provider ID of this VM from its firmware, and
// has another program ask vCenter, so that VMware's library is not in the programs of other clouds.
//
// Package dmi reads the firmware, checks has the checks, vcenter asks vCenter.
package vsphere

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/cloud/vsphere/dmi"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/strictjson"
	"kubernetes-release/preflight"
)

//go:embed assets
var assets embed.FS

// job brings the program that asks vCenter.
const job = "vsphere-preflight"

// Provider implements cloud.Checker. The zero value is ready for use on a VM; tests replace its parts.
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
		Manifests: assets, ConfigRequired: true,
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

// Question is what the program cloud-preflight-vsphere reads from its standard input. It answers with a cloud.Outcome.
type Question struct {
	Config  preflight.Config `json:"config"`
	Machine dmi.Machine      `json:"machine"`
	// MachineError says why Machine is empty.
	MachineError string `json:"machine_error"`
	// File is the configuration of the cloud controller.
	File string `json:"file"`
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
	if facts.Machine, facts.MachineErr = dmi.Read(cmp.Or(p.Root, "/")); facts.MachineErr == nil {
		id.ProviderID = "vsphere://" + facts.Machine.UUID
	}
	if request.Identified != nil {
		if err := request.Identified(id); err != nil {
			return nil, err
		}
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

// ask has the program of the job's package ask vCenter. Without the job nothing is asked, which the report says.
func (p *Provider) ask(ctx context.Context, facts *checks.Facts, request cloud.Request) (*cloud.Outcome, error) {
	root := cmp.Or(p.BOSH, bosh.DefaultRoot)
	program := root.Package("cloud-preflight-vsphere", "bin", "cloud-preflight-vsphere")
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return notAsked(request.Config), nil
	}
	question := Question{
		Config: request.Config, Machine: facts.Machine,
		File: request.Config.CloudConfigFile,
	}
	if facts.MachineErr != nil {
		question.MachineError = facts.MachineErr.Error()
	}
	input, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	log := request.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	lines := &lines{log: log}
	command := exec.CommandContext(ctx, program)
	command.Stdin, command.Stderr = bytes.NewReader(input), lines
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, lines.last)
	}
	var answer cloud.Outcome
	if err := strictjson.Unmarshal(output, &answer); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", program, err)
	}
	return &answer, nil
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

// lines logs what a program writes, line by line.
type lines struct {
	log  *slog.Logger
	rest []byte
	last string
}

func (l *lines) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		l.rest, l.last = rest, string(line)
		l.log.Info(l.last)
	}
}
