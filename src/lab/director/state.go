// Package director deploys a BOSH manifest on the lab's VMs. It follows a Director's order of events: everything is
// checked and rendered before a VM is touched, instances are updated group by group with canaries and max_in_flight,
// and only what has changed is touched.
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
	"sync"

	"kubernetes-release/internal/atomicfile"
)

// Wanted states of an instance, in the Director's words.
const (
	Started  = "started"
	Stopped  = "stopped"
	Detached = "detached"
)

// State is what the director remembers between runs. It is saved whole after every step, so that a run that was cut
// off at any point can be continued by the next.
type State struct {
	Deployment string      `json:"deployment"`
	Instances  []*Instance `json:"instances"`
	// Errands maps each errand to the digest of the deployment that it last succeeded on.
	Errands map[string]string `json:"errands,omitempty"`
}

// digest tells one state of the deployment from another: what every instance runs, and on which VM.
func (s *State) digest() string {
	running := map[string]any{}
	for _, i := range s.Instances {
		if !i.Errand {
			running[i.Name()] = []any{i.Wanted, i.VM, i.Applied}
		}
	}
	text, err := json.Marshal(running)
	if err != nil {
		panic(err) // plain data
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Instance is one instance of a group; it keeps its id, index, AZ, address and disk as long as it lives.
type Instance struct {
	ID        string     `json:"id"`
	Group     string     `json:"group"`
	Index     int        `json:"index"`
	AZ        string     `json:"az"`
	Bootstrap bool       `json:"bootstrap"`
	Network   string     `json:"network"`
	Address   netip.Addr `json:"address"`
	// Errand marks instances of errand groups, which have a VM only while their errand runs.
	Errand bool `json:"errand,omitempty"`
	// Wanted is Started, Stopped or Detached.
	Wanted string `json:"wanted"`
	// Disk is the persistent disk's size in MiB, 0 for none. The disk itself outlives VMs.
	Disk int `json:"disk,omitempty"`
	VM   *VM `json:"vm,omitempty"`
	// Applied is what the instance runs; it is written only when an update has ended well, so that one that
	// was interrupted is done again.
	Applied *Applied `json:"applied,omitempty"`
}

// Name is the Director's name of the instance: group/id.
func (i *Instance) Name() string { return i.Group + "/" + i.ID }

// String is the name with the index, as task lines show it.
func (i *Instance) String() string { return fmt.Sprintf("%s (%d)", i.Name(), i.Index) }

// VM is the machine of an instance.
type VM struct {
	// Name is the lab's name of the VM; it is recorded before the VM is made, so that a half-made one is found.
	Name string `json:"name"`
	// CID is the cloud's id of the VM; empty until creation has ended.
	CID string `json:"cid,omitempty"`
	// HasJobs says that jobs may have been put on the VM, so it has to be stopped properly before a change.
	HasJobs bool `json:"has_jobs,omitempty"`
	// Tags are the tags that the VM has in the cloud.
	Tags map[string]string `json:"tags,omitempty"`
}

// Applied is what was put on an instance, by what tells a change.
type Applied struct {
	// Jobs maps names to a digest of the release job and its rendered files.
	Jobs map[string]string `json:"jobs"`
	// Packages maps names to fingerprints.
	Packages map[string]string `json:"packages"`
	// Machine maps what the VM was made with (cloud properties, network, stemcell, env, disk) to digests: a change
	// means another VM.
	Machine map[string]string `json:"machine"`
}

// Find gives the instances that a name means: group, group/index or group/id (or the beginning of an id, four letters
// at least). An empty name means all.
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
	return nil, fmt.Errorf("there is no instance '%s'; instances are: %s", name, joinLines(known))
}

func (i *Instance) matches(name string) bool {
	if name == "" || name == i.Group || name == i.Name() || name == fmt.Sprintf("%s/%d", i.Group, i.Index) {
		return true
	}
	prefix := i.Group + "/"
	return len(name) >= len(prefix)+4 && len(name) <= len(i.Name()) && i.Name()[:len(name)] == name
}

func joinLines(lines []string) string {
	text := ""
	for _, line := range lines {
		text += "\n  " + line
	}
	return text
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

// Store keeps a State in a file. Its methods may be called at the same time.
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

// while calls do at a time when nobody changes the state.
func (s *Store) while(do func() error) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return do()
}

// Remove takes an instance out of the state.
func (s *Store) Remove(i *Instance) error {
	return s.Update(func(state *State) {
		state.Instances = slices.DeleteFunc(state.Instances, func(other *Instance) bool { return other == i })
	})
}
