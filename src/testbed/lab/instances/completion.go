package instances

import (
	"maps"
	"slices"

	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/director"
)

// Names lists the instances of the last deploy as GROUP/INDEX, for shell completion. It is empty where nothing
// is deployed.
func Names(l *lab.Lab) []string {
	var names []string
	for _, i := range find(l, "") {
		names = append(names, i.ShortName())
	}
	return names
}

// JobNames lists the jobs of an instance, for shell completion. It is empty where they are not known.
func JobNames(l *lab.Lab, instance string) []string {
	for _, i := range find(l, instance) {
		if i.Applied != nil {
			return slices.Sorted(maps.Keys(i.Applied.Jobs))
		}
	}
	return nil
}

func find(l *lab.Lab, name string) []*director.Instance {
	store, err := State(l)
	if err != nil {
		return nil
	}
	found, _ := store.State.Find(name)
	return found
}
