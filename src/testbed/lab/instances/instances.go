// Package instances finds the instances of a lab's deployment, and does to their VMs what operators and faults do.
package instances

import (
	"fmt"
	"strings"

	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/vm"
)

// State reads what the director remembers.
func State(l *lab.Lab) (*director.Store, error) {
	store, err := director.OpenState(l.Path("state.json"))
	if err != nil {
		return nil, err
	}
	if len(store.State.Instances) == 0 {
		return nil, fmt.Errorf("nothing is deployed in %s; run `bin/lab up` first", l.Dir)
	}
	return store, nil
}

// Find finds the one instance that a name means, and its VM.
func Find(l *lab.Lab, name string) (*director.Instance, *vm.VM, error) {
	store, err := State(l)
	if err != nil {
		return nil, nil, err
	}
	found, err := store.State.Find(name)
	if err != nil {
		return nil, nil, err
	}
	if len(found) > 1 {
		var list []string
		for _, i := range found {
			list = append(list, i.ShortName())
		}
		return nil, nil, fmt.Errorf("'%s' means several instances: %s", name, strings.Join(list, ", "))
	}
	i := found[0]
	if i.VM == nil {
		return nil, nil, fmt.Errorf("instance %s has no VM (it is %s)", i, i.DesiredState)
	}
	v, err := openVM(l, i)
	return i, v, err
}

func openVM(l *lab.Lab, i *director.Instance) (*vm.VM, error) {
	v, err := vm.Open(l.Dir, i.VM.Name)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", i, err)
	}
	return v, nil
}

// List returns the instances of the deployment.
func List(l *lab.Lab) ([]*director.Instance, error) {
	store, err := State(l)
	if err != nil {
		return nil, err
	}
	return store.State.Instances, nil
}
