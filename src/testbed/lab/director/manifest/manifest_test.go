package manifest

import (
	"strings"
	"testing"
)

// The lab names folders and cgroups after instance groups: one named ../../x kept every later deploy from reading its
// state.
func TestNamesOfInstanceGroups(t *testing.T) {
	for name, valid := range map[string]bool{
		"worker-gpu": true, "diego_cell": true, "../../x": false, "a/b": false, "-worker": false, "": false,
		strings.Repeat("a", 64): false,
	} {
		_, err := Parse("manifest.yml", []byte("name: kubernetes\ninstance_groups:\n- name: '"+name+"'\n"))
		if err == nil {
			t.Fatalf("%q: a manifest without stemcells is accepted", name)
		}
		if refused := strings.Contains(err.Error(), "instance_groups[0]:"); refused == valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
