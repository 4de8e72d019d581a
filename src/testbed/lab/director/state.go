// Package director deploys a BOSH manifest on the lab's VMs. It follows the Director's order of events: everything is
// checked and rendered before a VM is touched, instance groups are updated one after another with canaries and
// max_in_flight, and only instances that have changed are updated.
package director

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"

	"kubernetes-release/internal/atomicfile"
)

// DesiredState is what an instance is to be, named as the Director does.
type DesiredState string

// Desired states of an instance. The VM of one that is detached is deleted.
const (
	Started  DesiredState = "started"
	Stopped  DesiredState = "stopped"
	Detached DesiredState = "detached"
)

// State is what the Director keeps between runs. All of it is saved after every step, so that a run that was
// interrupted at any point can be continued by the next.
type State struct {
	Deployment string      `json:"deployment"`
	Instances  []*Instance `json:"instances"`
	// Errands maps each errand to the digest of the deployment on which it last succeeded.
	Errands map[string]string `json:"errands,omitempty"`
}

// digest identifies what every instance runs, and on which VM.
func (s *State) digest() string {
	running := map[string]any{}
	for _, i := range s.Instances {
		if !i.Errand {
			running[i.Name()] = []any{i.DesiredState, i.VM, i.Applied}
		}
	}
	text, err := json.Marshal(running)
	if err != nil {
		panic(err) // impossible for plain data
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Instance is one instance of an instance group. It keeps its id, index, AZ, address and disk until it is deleted.
type Instance struct {
	ID        string     `json:"id"`
	Group     string     `json:"group"`
	Index     int        `json:"index"`
	AZ        string     `json:"az"`
	Bootstrap bool       `json:"bootstrap"`
	Network   string     `json:"network"`
	Address   netip.Addr `json:"address"`
	// Errand marks instances of errand groups, which have a VM only while their errand runs.
	Errand       bool         `json:"errand,omitempty"`
	DesiredState DesiredState `json:"wanted"`
	// Disk is the size of the persistent disk in MiB, 0 for none. The disk outlives VMs.
	Disk int `json:"disk,omitempty"`
	VM   *VM `json:"vm,omitempty"`
	// Applied is what the instance runs. It is set only when an update has succeeded, so that an update that failed or
	// was interrupted is repeated.
	Applied *Applied `json:"applied,omitempty"`
}

// Name is the Director's name of the instance: group/id.
func (i *Instance) Name() string { return i.Group + "/" + i.ID }

// ShortName returns GROUP/INDEX, which people type.
func (i *Instance) ShortName() string { return fmt.Sprintf("%s/%d", i.Group, i.Index) }

// String is the name with the index, as task lines show it.
func (i *Instance) String() string { return fmt.Sprintf("%s (%d)", i.Name(), i.Index) }

// VM is the VM of an instance.
type VM struct {
	// Name is the lab's name of the VM. It is recorded before the VM is created, so that a VM that was created in part
	// is found.
	Name string `json:"name"`
	// CID is the cloud's id of the VM; empty until the VM has been created.
	CID string `json:"cid,omitempty"`
	// HasJobs is whether jobs may have been installed on the VM, which then must be stopped before a change.
	HasJobs bool `json:"has_jobs,omitempty"`
	// Tags are the tags that the VM has in the cloud.
	Tags map[string]string `json:"tags,omitempty"`
	// Deleted is whether its deletion has started.
	Deleted bool `json:"deleted,omitempty"`
}

// exists reports whether the VM was created and its deletion has not started. It may have been lost since.
func (v *VM) exists() bool { return v != nil && v.CID != "" && !v.Deleted }

// Applied is what an instance runs, as digests by which changes are recognized.
type Applied struct {
	// Jobs maps names to a digest of the release job and its rendered files.
	Jobs map[string]string `json:"jobs"`
	// Packages maps names to fingerprints.
	Packages map[string]string `json:"packages"`
	// VM maps what the VM was created with (cloud properties, network, stemcell, env, disk) to digests: a change
	// requires a new VM.
	VM map[string]string `json:"machine"`
}

// Find returns the instances that a name selects: GROUP, GROUP/INDEX or GROUP/ID (or at least the first four characters
// of an id). An empty name selects all.
func (s *State) Find(name string) ([]*Instance, error) {
	var found []*Instance
	for _, i := range s.Instances {
		if i.matches(name) {
			found = append(found, i)
		}
	}
	if len(found) > 0 || name == "" {
		return found, nil
	}
	var known []string
	for _, i := range s.Instances {
		known = append(known, i.String())
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("there is no instance '%s': nothing is deployed; run `bin/lab up` first", name)
	}
	return nil, fmt.Errorf("there is no instance '%s'; instances are:\n  %s", name, strings.Join(known, "\n  "))
}

func (i *Instance) matches(name string) bool {
	if name == "" || name == i.Group || name == i.Name() || name == i.ShortName() {
		return true
	}
	return len(name) >= len(i.Group+"/")+4 && strings.HasPrefix(i.Name(), name)
}

// Group lists the group's instances by index.
func (s *State) Group(name string) []*Instance {
	var list []*Instance
	for _, i := range s.Instances {
		if i.Group == name {
			list = append(list, i)
		}
	}
	sort.Slice(list, func(a, b int) bool { return list[a].Index < list[b].Index })
	return list
}

// Store keeps a State in a file. Its methods can be called concurrently.
type Store struct {
	path  string
	mutex sync.Mutex
	State State
}

// OpenState reads the state file; a missing file is an empty state.
func OpenState(path string) (*Store, error) {
	s := &Store{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &s.State); err != nil {
		return nil, fmt.Errorf("reading the lab's state %s: %w; `bin/lab down` removes the lab", path, err)
	}
	return s, nil
}

// Update changes the state and saves it.
func (s *Store) Update(change func(*State)) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change(&s.State)
	text, err := json.MarshalIndent(&s.State, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(s.path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("saving the lab's state: %w", err)
	}
	return nil
}

// locked calls do while the state does not change.
func (s *Store) locked(do func() error) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return do()
}

// Remove removes an instance from the state.
func (s *Store) Remove(i *Instance) error {
	return s.Update(func(state *State) {
		state.Instances = slices.DeleteFunc(state.Instances, func(other *Instance) bool { return other == i })
	})
}
