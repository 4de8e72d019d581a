package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/filelock"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/vm"
)

// Cloud is the part of the account's API that the CPI uses.
type Cloud interface {
	cpi.Cloud
	AttachDisk(ctx context.Context, id, instance string) error
	CreateDisk(ctx context.Context, mib int, kind, instance string) (string, error)
	DeleteDisk(ctx context.Context, id string) error
	DeleteSnapshot(ctx context.Context, id string) error
	DetachDisk(ctx context.Context, id, instance string) error
	Disk(ctx context.Context, id string) (cpi.Disk, error)
	Disks(ctx context.Context, instance string) ([]string, error)
	GrowDisk(ctx context.Context, id string, mib int) error
	SnapshotDisk(ctx context.Context, id string, tags map[string]string) (string, error)
	TagDisk(ctx context.Context, id string, tags map[string]string) error
}

// CPI answers the calls of Directors on one lab.
type CPI struct {
	StateDir string // the lab's state directory, absolute
	Network  network.Network
	Cloud    Cloud
	// TrustedCA is a file with certificates that VMs trust; none if empty.
	TrustedCA string
	// Agent is for VMs whose cpi-config does not have it.
	Agent Agent
}

// Open opens a lab that exists and has no deployment of its own, and starts its account if it does not run. config is a
// file with the options of agents; none if empty.
func Open(ctx context.Context, state, config string) (*CPI, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab's CPI creates namespaces, which requires root: run it by sudo")
	}
	l, err := lab.Open(state, false)
	if err == nil {
		if _, missing := os.Stat(l.Path("state.json")); missing == nil {
			err = fmt.Errorf("the lab in %s has a deployment of `bin/lab up`", l.Root)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w; `bin/lab empty-account` creates a lab for a Director of your own", err)
	}
	l.Out, l.Err = os.Stderr, os.Stderr // only the answer is for the output
	p := &CPI{StateDir: l.Root, Network: l.Network, Cloud: l.Account().AWS(), TrustedCA: l.Account().TrustedCA()}
	if err := p.readConfig(config); err != nil {
		return nil, fmt.Errorf("the configuration of the lab's CPI, %s: %w", config, err)
	}
	release, err := p.lock(ctx, "account")
	if err != nil {
		return nil, err
	}
	defer release()
	return p, l.Account().Ensure(ctx, l.Progress())
}

func (p *CPI) readConfig(file string) error {
	if file == "" {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, &struct{ Agent *Agent }{&p.Agent})
}

func (p *CPI) path(elements ...string) string {
	return filepath.Join(append([]string{p.StateDir, "cpi"}, elements...)...)
}

// lock lets one call at a time use an object. The kernel releases it when the process ends.
func (p *CPI) lock(ctx context.Context, object string) (release func(), err error) {
	return filelock.Acquire(ctx, p.path("locks", object), fmt.Sprintf("process %d", os.Getpid()), nil)
}

// machine is the record of a VM, by its cloud id. It exists before the VM, and until nothing of it is left.
type machine struct {
	CID      string     `json:"cid"`
	Name     string     `json:"name"` // in the lab
	Address  netip.Addr `json:"address"`
	Director string     `json:"director"`
}

func (p *CPI) machineFile(cid string) string { return p.path("vms", filepath.Base(cid)+".json") }

func (p *CPI) save(m machine) error {
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.Write(p.machineFile(m.CID), append(content, '\n'), 0o600)
}

// machine returns the record of a VM.
func (p *CPI) machine(cid string) (machine, error) {
	m, err := readMachine(p.machineFile(cid))
	if errors.Is(err, fs.ErrNotExist) {
		return machine{}, errorf(vmNotFound, "there is no VM '%s' in the lab %s", cid, p.StateDir)
	}
	return m, err
}

func readMachine(file string) (m machine, err error) {
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &m)
	}
	if err != nil {
		return machine{}, fmt.Errorf("reading the record of a VM, %s: %w", file, err)
	}
	return m, nil
}

// machines returns all records.
func (p *CPI) machines() (list []machine, err error) {
	files, err := filepath.Glob(p.machineFile("*"))
	for _, file := range files {
		m, err := readMachine(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just been deleted
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, err
}

// use calls a function with the VM that a call is about, while no other call changes the VM. The VM is nil if only its
// record is left.
func (p *CPI) use(ctx context.Context, c *call, do func(machine, *vm.VM) error) error {
	m, err := p.machine(c.ID)
	if err != nil {
		return err
	}
	release, err := p.lock(ctx, m.Address.String())
	if err != nil {
		return err
	}
	defer release()
	if m, err = p.machine(c.ID); err != nil { // another call has deleted it in the meantime
		return err
	}
	v, err := vm.Open(p.StateDir, m.Name)
	if err != nil && !errors.Is(err, vm.ErrNotFound) {
		return err
	}
	return do(m, v)
}

// useComplete is use for a call that the VM must exist for.
func (p *CPI) useComplete(ctx context.Context, c *call, do func(machine, *vm.VM) error) error {
	return p.use(ctx, c, func(m machine, v *vm.VM) error {
		if v == nil {
			return errorf(vmNotFound, "VM %s was not created completely, or was deleted in part", m.CID)
		}
		return do(m, v)
	})
}
