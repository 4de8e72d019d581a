package layout

import (
	"os/exec"
	"strings"
	"testing"
)

// TestWhatShipsIsTestedAsItShips: the test bed must compile shipped packages with the versions of modules that they
// ship with.
func TestWhatShipsIsTestedAsItShips(t *testing.T) {
	ships := modules(t, "../../helpers", "./...")
	tested := modules(t, "..", "-test", "./...")
	compared := 0
	for module, version := range ships {
		other, used := tested[module]
		if !used {
			continue
		}
		compared++
		if other != version {
			t.Errorf(
				"%s: src/helpers/go.mod has %s, src/testbed/go.mod %s; require that version, or exclude the newer "+
					"one there",
				module, version, other,
			)
		}
	}
	if compared < 50 {
		t.Errorf("only %d modules were compared", compared)
	}
}

// modules returns the versions of the modules that packages are compiled from.
func modules(t *testing.T, dir string, packages ...string) map[string]string {
	t.Helper()
	list := exec.CommandContext(
		t.Context(),
		"go",
		append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}"}, packages...)...)
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", dir, err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if module, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok && version != "v0.0.0" {
			versions[module] = version
		}
	}
	return versions
}
