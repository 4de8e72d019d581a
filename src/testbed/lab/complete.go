package lab

import (
	"fmt"
	"maps"
	"slices"

	"kubernetes-release/testbed/lab/director"
)

// InstanceNames lists the instances of the last deploy as GROUP/INDEX, for shell completion. It is empty where nothing
// is deployed.
func (l *Lab) InstanceNames() []string {
	var names []string
	for _, i := range l.find("") {
		names = append(names, fmt.Sprintf("%s/%d", i.Group, i.Index))
	}
	return names
}

// JobNames lists the jobs of an instance, for shell completion. It is empty where they are not known.
func (l *Lab) JobNames(instance string) []string {
	for _, i := range l.find(instance) {
		if i.Applied != nil {
			return slices.Sorted(maps.Keys(i.Applied.Jobs))
		}
	}
	return nil
}

func (l *Lab) find(name string) []*director.Instance {
	store, err := director.OpenState(l.path("state.json"))
	if err != nil {
		return nil
	}
	found, _ := store.State.Find(name)
	return found
}
