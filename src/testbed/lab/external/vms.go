package external

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"

	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/vm"
)

// createVM boots a VM. A VM that has the address already was created for the same Director by a call whose answer was
// lost, since a Director gives an address to one VM only. That VM is removed.
func (p *CPI) createVM(ctx context.Context, c *call) (any, error) {
	var stemcell string
	var properties, env map[string]any
	var networks map[string]map[string]any
	var disks []string // which need no place near the VM
	if err := c.read(1, &stemcell, &properties, &networks, &disks, &env); err != nil {
		return nil, err
	}
	if c.Context.VM.Stemcell.APIVersion == 1 {
		return nil, errorf(notSupported,
			"the stemcell has API version 1, whose agent requires a registry; use a stemcell with version 2 or newer")
	}
	image, err := p.image(stemcell)
	if err != nil {
		return nil, err
	}
	address, subnet, err := p.networkOf(networks)
	if err != nil {
		return nil, err
	}
	release, err := p.lock(ctx, address.String())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := p.freeAddress(ctx, c, address); err != nil {
		return nil, err
	}
	prepared := false
	creator := p.creator()
	name := "cpi-" + strings.ReplaceAll(address.String(), ".", "-")
	creator.Prepare = func(spec *vm.Spec, cid string) (err error) {
		spec.Image = image
		spec.Files, err = p.files(image, settings{
			AgentID: c.ID, VM: identity{cid, cid}, Networks: networks, Env: env, Agent: p.agent(c),
		})
		if err == nil {
			err = p.save(machine{CID: cid, Name: name, Address: address, Director: c.Context.Director})
		}
		prepared = err == nil
		return err
	}
	cid, err := creator.CreateVM(ctx, director.VMSpec{
		Name: name, Instance: director.Instance{ID: c.ID, Address: address},
		CloudProperties: whole(properties).(map[string]any), NetworkProperties: subnet, Tags: tagsOf(env),
	})
	if err != nil { // what is left is removed by the next call with the address
		return nil, &Error{Type: vmCreationFailed, Message: err.Error(), OKToRetry: prepared}
	}
	c.log.Info("created", "vm", cid, "address", address, "stemcell", stemcell)
	return []any{cid, networks}, nil
}

// creator creates and deletes VMs as the lab's own Director does.
func (p *CPI) creator() *cpi.CPI {
	return &cpi.CPI{StateDir: p.StateDir, Network: p.Network, Cloud: p.Cloud}
}

// networkOf returns the VM's address in the only network that it can have, and the network's cloud_properties.
func (p *CPI) networkOf(networks map[string]map[string]any) (netip.Addr, map[string]any, error) {
	if len(networks) != 1 {
		return netip.Addr{}, nil, errorf(cloudError, "the VM has %d networks; a VM of the lab has one", len(networks))
	}
	name := slices.Collect(maps.Keys(networks))[0]
	n := networks[name]
	if kind, _ := n["type"].(string); kind != "" && kind != "manual" {
		return netip.Addr{}, nil, errorf(notSupported,
			"network '%s' has type %s; it must be manual, since the lab assigns no addresses", name, kind)
	}
	ip, _ := n["ip"].(string)
	address, err := netip.ParseAddr(ip)
	if err != nil || !p.Network.Prefix().Contains(address) {
		return netip.Addr{}, nil, errorf(cloudError, "network '%s' has the address '%s'; it must be one of the lab's "+
			"network %s: correct the subnets of the cloud config", name, ip, p.Network.Prefix())
	}
	if servers, _ := n["dns"].([]any); len(servers) == 0 {
		n["dns"] = []any{p.Network.Gateway().String()}
	}
	properties, _ := whole(n["cloud_properties"]).(map[string]any)
	return address, properties, nil
}

// freeAddress removes a lost VM of the same Director.
func (p *CPI) freeAddress(ctx context.Context, c *call, address netip.Addr) error {
	known, err := p.machines()
	if err != nil {
		return err
	}
	for _, m := range known {
		switch {
		case m.Address != address:
			continue
		case m.Director != c.Context.Director:
			return errorf(cloudError, "the address %s is that of VM %s of another Director (%s): give the Directors "+
				"of a lab different ranges in their cloud configs", address, m.CID, m.Director)
		}
		c.log.Warn("removing a VM whose creation the Director has not seen", "vm", m.CID, "address", address)
		if err := p.remove(ctx, m); err != nil {
			return fmt.Errorf("removing VM %s, whose creation the Director has not seen: %w", m.CID, err)
		}
	}
	return nil
}

// remove removes a VM and its record, as far as they exist.
func (p *CPI) remove(ctx context.Context, m machine) error {
	if err := p.creator().DeleteVM(ctx, director.VM{Name: m.Name, CID: m.CID}); err != nil {
		return err
	}
	if err := os.Remove(p.machineFile(m.CID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (p *CPI) deleteVM(ctx context.Context, c *call) (any, error) {
	return nil, p.use(ctx, c, func(m machine, _ *vm.VM) error { return p.remove(ctx, m) })
}

// hasVM answers yes for a VM that is powered off: the Director can reboot it.
func (p *CPI) hasVM(ctx context.Context, c *call) (any, error) {
	exists := false
	err := p.use(ctx, c, func(m machine, v *vm.VM) error {
		instances, err := p.Cloud.FindByAddress(ctx, m.Address.String())
		exists = v != nil && slices.Contains(instances, m.CID)
		return err
	})
	if err != nil && typed(err).Type == vmNotFound {
		return false, nil
	}
	return exists, err
}

func (p *CPI) rebootVM(ctx context.Context, c *call) (any, error) {
	return nil, p.useComplete(ctx, c, func(_ machine, v *vm.VM) error {
		if err := v.Kill(ctx); err != nil {
			return err
		}
		return v.Boot(ctx, nil)
	})
}

// setVMMetadata names the instance as BOSH's AWS CPI does.
func (p *CPI) setVMMetadata(ctx context.Context, c *call) (any, error) {
	var metadata map[string]any
	if err := c.read(1, &metadata); err != nil {
		return nil, err
	}
	tags := texts(metadata)
	if tags["name"] != "" {
		tags["Name"] = tags["name"]
		delete(tags, "name")
	}
	return nil, p.use(ctx, c, func(m machine, _ *vm.VM) error { return p.Cloud.Tag(ctx, m.CID, tags) })
}

// instanceTypes are those that vm_resources can get, the smallest first.
var instanceTypes = []struct {
	name     string
	cpu, mib int
}{
	{"t3.micro", 2, 1 << 10}, {"t3.small", 2, 2 << 10}, {"t3.medium", 2, 4 << 10}, {"m5.large", 2, 8 << 10},
	{"m5.xlarge", 4, 16 << 10}, {"m5.2xlarge", 8, 32 << 10}, {"m5.4xlarge", 16, 64 << 10},
}

func (p *CPI) calculateVMCloudProperties(_ context.Context, c *call) (any, error) {
	var wanted struct{ CPU, RAM int }
	if err := c.read(0, &wanted); err != nil {
		return nil, err
	}
	for _, t := range instanceTypes {
		if t.cpu >= wanted.CPU && t.mib >= wanted.RAM {
			return map[string]any{"instance_type": t.name}, nil
		}
	}
	return nil, errorf(cloudError, "vm_resources has cpu %d and ram %d; at most 16 and 65536 are allowed in the lab",
		wanted.CPU, wanted.RAM)
}

// tagsOf returns the tags of the deployment.
func tagsOf(env map[string]any) map[string]string {
	options, _ := env["bosh"].(map[string]any)
	tags, _ := options["tags"].(map[string]any)
	return texts(tags)
}

func texts(values map[string]any) map[string]string {
	list := map[string]string{}
	for key, value := range values {
		list[key] = fmt.Sprint(whole(value))
	}
	return list
}

// whole makes numbers of JSON what YAML's are: int if they have no fraction.
func whole(value any) any {
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) {
			return int(v)
		}
	case map[string]any:
		for key := range v {
			v[key] = whole(v[key])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	}
	return value
}
