package boshrelease

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestHelpersShareKubernetesModules checks that the helpers use the module versions of Kubernetes' pin. If one differs, everything that
// uses it is compiled twice.
func TestHelpersShareKubernetesModules(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}")
	list.Dir = "../.."
	for _, command := range helperCommands {
		list.Args = append(list.Args, "./cmd/"+command)
	}
	used, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	edit.Dir = "../../components/kubernetes"
	text, err := edit.Output()
	if err != nil {
		t.Fatal(err)
	}
	var pin struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &pin); err != nil {
		t.Fatal(err)
	}
	pinned := map[string]string{}
	for _, r := range pin.Require {
		pinned[r.Path] = r.Version
	}
	lines := strings.Split(string(used), "\n")
	slices.Sort(lines)
	shared := 0
	for _, line := range slices.Compact(lines) {
		module, version, _ := strings.Cut(line, " ")
		want, ok := pinned[module]
		if !ok {
			continue
		}
		shared++
		if version != want {
			t.Errorf("%s: src/go.mod has %s, the pin of Kubernetes %s", module, version, want)
		}
	}
	if shared < 10 {
		t.Errorf("the helpers and Kubernetes share only %d modules", shared)
	}
}
