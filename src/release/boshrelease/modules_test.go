package boshrelease

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const kubernetesPin = "../../components/kubernetes/go.mod"

// requirements returns the versions that a go.mod requires.
func requirements(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", path).Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var module struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &module); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, r := range module.Require {
		versions[r.Path] = r.Version
	}
	return versions
}

// TestKubernetesKeepsItsModules checks that what else is in the binary does not change what the Kubernetes programs are
// compiled from.
func TestKubernetesKeepsItsModules(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.GoMod}}", "k8s.io/kubernetes")
	list.Dir = filepath.Dir(kubernetesPin)
	path, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	pinned := requirements(t, kubernetesPin)
	compared := 0
	for module, want := range requirements(t, strings.TrimSpace(string(path))) {
		version, ok := pinned[module]
		if !ok || want == "v0.0.0" { // a staging module, see the pin's own comment
			continue
		}
		compared++
		if version != want {
			t.Errorf("%s: Kubernetes requires %s, its pin %s; exclude that version in the pin", module, want, version)
		}
	}
	if compared < 100 {
		t.Errorf("only %d modules were compared", compared)
	}
}

// TestGatewayConformanceOfTheController checks that the conformance tests of Gateway API are of the version that the
// controller was built for.
func TestGatewayConformanceOfTheController(t *testing.T) {
	const module = "sigs.k8s.io/gateway-api"
	controller := requirements(t, "../../components/aws-load-balancer-controller/go.mod")[module]
	suite := requirements(t, "../../tools/gateway-conformance/go.mod")
	if tests := suite[module+"/conformance"]; controller == "" || controller != tests || controller != suite[module] {
		t.Errorf(
			"the controller has Gateway API %s, and the tests are of %s with the API of %s", controller, tests,
			suite[module],
		)
	}
}

// TestHelpersShareKubernetesModules checks that the helpers use the module versions of Kubernetes' pin. If one differs,
// everything that uses it is compiled twice.
func TestHelpersShareKubernetesModules(t *testing.T) {
	list := exec.CommandContext(
		t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}",
	)
	list.Dir = "../../helpers"
	for _, command := range helperCommands {
		list.Args = append(list.Args, "./cmd/"+command)
	}
	used, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	pinned := requirements(t, kubernetesPin)
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
			t.Errorf("%s: src/helpers/go.mod has %s, the pin of Kubernetes %s", module, version, want)
		}
	}
	if shared < 10 {
		t.Errorf("the helpers and Kubernetes share only %d modules", shared)
	}
}

// TestConformanceIsOfTheReleasesKubernetes checks that the tests of make conformance are those of the Kubernetes that
// the release has.
func TestConformanceIsOfTheReleasesKubernetes(t *testing.T) {
	pinned := requirements(t, kubernetesPin)
	compared := 0
	for module, version := range requirements(t, "../../tools/conformance/go.mod") {
		want := pinned[module]
		if want == "" || !strings.HasPrefix(module, "k8s.io/") {
			continue
		}
		compared++
		if version != want {
			t.Errorf("tools/conformance has %s %s, components/kubernetes %s", module, version, want)
		}
	}
	if pinned["k8s.io/kubernetes"] == "" || compared < 10 {
		t.Errorf("%d modules were compared", compared)
	}
}
