// Package cpi is the lab's counterpart of BOSH's AWS CPI and OpenStack CPI: it creates, tags and deletes VMs. A VM
// consists of namespaces on this machine and an instance in the simulated cloud.
package cpi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/vm"
)

// Launch describes a new instance to the cloud.
type Launch struct {
	Address          string
	Subnet           string // of AWS
	Network          string // of OpenStack
	SecurityGroups   []string
	InstanceType     string
	AvailabilityZone string
	InstanceProfile  string
	// TokensRequired, HopLimit and MetadataTags are the metadata options.
	TokensRequired bool
	HopLimit       int
	MetadataTags   string // enabled or disabled; empty: the account's default
	Tags           map[string]string
	// TargetGroups are the names of the load balancers' target groups that the instance is registered with.
	TargetGroups []string
}

// Cloud is the part of the cloud's API that the CPI uses.
type Cloud interface {
	// Launch launches an instance and returns its id.
	Launch(ctx context.Context, l Launch) (string, error)
	// Register registers an instance with the target group of that name.
	Register(ctx context.Context, id, targetGroup string) error
	// Terminate terminates an instance, if it exists.
	Terminate(ctx context.Context, id string) error
	// Tag adds tags. Like BOSH's CPI it removes none.
	Tag(ctx context.Context, id string, tags map[string]string) error
	// FindByAddress returns the ids of instances with a private address that are not terminated.
	FindByAddress(ctx context.Context, address string) ([]string, error)
}

// CPI creates VMs in a lab.
type CPI struct {
	// StateDir is the lab's state directory.
	StateDir string
	Network  network.Network
	Cloud    Cloud
	// TrustedCA is a file with certificates that VMs trust; none if empty.
	TrustedCA string
	// Prepare completes a VM for a launched instance, before the VM is created; nil does nothing.
	Prepare func(machine *vm.Spec, instance string) error
}

var _ director.CPI = (*CPI)(nil)

// CreateVM launches an instance in the cloud and boots its VM. It first removes what an earlier attempt with the same
// name has left.
func (c *CPI) CreateVM(ctx context.Context, spec director.VMSpec) (string, error) {
	launch, err := launchOf(spec)
	if err != nil {
		return "", err
	}
	if err := c.clear(ctx, spec.Name, launch.Address); err != nil {
		return "", fmt.Errorf("removing the remains of an earlier attempt: %w", err)
	}
	instance, err := c.Cloud.Launch(ctx, launch)
	if err != nil {
		return "", fmt.Errorf("launching the instance: %w", err)
	}
	// The CPI registers before the VM has booted (create in instance_manager.rb and lb_target_group.rb of
	// bosh-aws-cpi-release). It never deregisters: AWS does when the instance is terminated.
	for _, group := range launch.TargetGroups {
		if err := c.Cloud.Register(ctx, instance, group); err != nil {
			return "", errors.Join(
				fmt.Errorf("registering the instance with target group '%s': %w", group, err),
				c.Cloud.Terminate(context.WithoutCancel(ctx), instance),
			)
		}
	}
	machine := vm.Spec{
		Name: spec.Name, StateDir: c.StateDir, Network: c.Network, Address: spec.Instance.Address,
		Hostname:  spec.Instance.ID, // bosh-agent sets the host name to an id too
		TrustedCA: c.TrustedCA,
	}
	if spec.Instance.Disk > 0 {
		machine.PersistentDisk = c.DiskDir(spec.Instance.ID)
	}
	if c.Prepare != nil {
		err = c.Prepare(&machine, instance)
	}
	if err == nil {
		_, err = vm.Create(ctx, machine)
	}
	if err != nil {
		return "", errors.Join(err, c.Cloud.Terminate(context.WithoutCancel(ctx), instance))
	}
	return instance, nil
}

// clear removes a VM by name and instances by address: a run that was interrupted may have left either without the
// other.
func (c *CPI) clear(ctx context.Context, name, address string) error {
	if err := vm.Remove(ctx, c.StateDir, name); err != nil {
		return err
	}
	ids, err := c.Cloud.FindByAddress(ctx, address)
	if err != nil {
		return fmt.Errorf("finding instances with the address %s: %w", address, err)
	}
	for _, id := range ids {
		if err := c.terminate(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (c *CPI) terminate(ctx context.Context, id string) error {
	if err := c.Cloud.Terminate(ctx, id); err != nil {
		return fmt.Errorf("terminating instance %s: %w", id, err)
	}
	return nil
}

// DiskDir is the directory on the host that is an instance's persistent disk.
func (c *CPI) DiskDir(instance string) string { return filepath.Join(c.StateDir, "disks", instance) }

// launchOf reads the cloud properties that the simulated cloud supports, as BOSH's AWS CPI does.
func launchOf(spec director.VMSpec) (Launch, error) {
	l := Launch{Address: spec.Instance.Address.String(), Tags: map[string]string{}}
	p := properties{spec.CloudProperties, nil}
	n := properties{spec.NetworkProperties, nil}
	l.Subnet, l.Network = n.text("subnet"), n.text("net_id")
	l.SecurityGroups = n.list("security_groups")
	if own := p.list("security_groups"); len(own) > 0 {
		l.SecurityGroups = own
	}
	l.InstanceType = p.text("instance_type")
	l.AvailabilityZone = p.text("availability_zone")
	l.InstanceProfile = p.text("iam_instance_profile")
	l.TargetGroups = p.list("lb_target_groups")
	options := properties{p.table("metadata_options"), nil}
	l.TokensRequired = options.text("http_tokens") == "required"
	l.HopLimit = options.number("http_put_response_hop_limit")
	l.MetadataTags = options.text("instance_metadata_tags")
	for key, value := range p.table("tags") {
		l.Tags[key] = fmt.Sprint(value)
	}
	for key, value := range spec.Tags {
		l.Tags[key] = value
	}
	if l.Subnet == "" && l.Network == "" {
		n.problems = append(n.problems, "the network's cloud_properties have no 'subnet', or 'net_id' of OpenStack")
	}
	if problems := append(append(p.problems, n.problems...), options.problems...); len(problems) > 0 {
		return Launch{}, fmt.Errorf("cloud_properties: %s", strings.Join(problems, "; "))
	}
	return l, nil
}

// properties reads typed values and collects errors about values of other types.
type properties struct {
	values   map[string]any
	problems []string
}

func (p *properties) text(key string) string {
	value, ok := p.values[key].(string)
	if !ok && p.values[key] != nil {
		p.problems = append(p.problems, fmt.Sprintf("'%s' is %v; it must be a string", key, p.values[key]))
	}
	return value
}

func (p *properties) number(key string) int {
	value, ok := p.values[key].(int)
	if !ok && p.values[key] != nil {
		p.problems = append(p.problems, fmt.Sprintf("'%s' is %v; it must be a number", key, p.values[key]))
	}
	return value
}

func (p *properties) table(key string) map[string]any {
	value, ok := p.values[key].(map[string]any)
	if !ok && p.values[key] != nil {
		p.problems = append(p.problems, fmt.Sprintf("'%s' is %v; it must be a map", key, p.values[key]))
	}
	return value
}

func (p *properties) list(key string) []string {
	entries, ok := p.values[key].([]any)
	if !ok && p.values[key] != nil {
		p.problems = append(p.problems, fmt.Sprintf("'%s' is %v; it must be a list", key, p.values[key]))
	}
	var list []string
	for _, entry := range entries {
		list = append(list, fmt.Sprint(entry))
	}
	return list
}

// DeleteVM destroys the VM and terminates its instance, as far as they exist. The persistent disk is kept.
func (c *CPI) DeleteVM(ctx context.Context, record director.VM) error {
	if err := vm.Remove(ctx, c.StateDir, record.Name); err != nil {
		return err
	}
	if record.CID == "" {
		return nil
	}
	return c.terminate(ctx, record.CID)
}

// HasVM reports whether the VM runs.
func (c *CPI) HasVM(_ context.Context, record director.VM) bool {
	v, err := vm.Open(c.StateDir, record.Name)
	return err == nil && v.Alive()
}

// SetTags adds the tags to the instance.
func (c *CPI) SetTags(ctx context.Context, record director.VM, tags map[string]string) error {
	return c.Cloud.Tag(ctx, record.CID, tags)
}

// Agent returns the agent of a VM.
func (c *CPI) Agent(record director.VM) (agent.Agent, error) {
	v, err := vm.Open(c.StateDir, record.Name)
	if err != nil {
		return nil, err
	}
	return agent.New(v), nil
}
