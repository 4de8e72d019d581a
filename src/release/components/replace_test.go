package components

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-release/release/testfiles"
)

// TestReplacedFiles builds a program of a module of which one file is replaced. Nothing else of the module changes, and
// neither the module nor the pin.
func TestReplacedFiles(t *testing.T) {
	source, output := t.TempDir(), t.TempDir()
	file := func(name, content string) { testfiles.Write(t, filepath.Join(source, name), content) }
	pinned := "module test/pin\n\ngo 1.26\n\nrequire example.invalid/up v1.2.3\n\nreplace example.invalid/up => ../up\n"
	file("pin/go.mod", pinned)
	file("pin/go.sum", "")
	file("pin/name.go", "package name\n\nconst Name = \"replaced\"\n")
	file("up/go.mod", "module example.invalid/up\n\ngo 1.26\n")
	original := "package name\n\nconst Name = \"original\"\n"
	file("up/name/name.go", original)
	file("up/name/other.go", "package name\n\nconst Other = \"other\"\n")
	file("up/say/main.go", `package main

import "example.invalid/up/name"

func main() { print(name.Name, " ", name.Other) }
`)
	c := Component{
		Name: "say", Pin: "pin", Module: "example.invalid/up",
		Binaries: []Binary{{"say", "example.invalid/up/say"}},
		Replaced: []Replacement{{Module: "example.invalid/up", File: "name/name.go", With: "name.go"}},
	}
	b := Builder{
		Source: source, Output: output, Log: io.Discard, Environment: []string{"GOPROXY=off"},
	}
	if err := b.Build(t.Context(), []Component{c}); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), filepath.Join(output, "say", "bin", "say")).CombinedOutput()
	if err != nil || string(text) != "replaced other" {
		t.Errorf("the program says %q, %v", text, err)
	}
	for name, want := range map[string]string{"pin/go.mod": pinned, "up/name/name.go": original} {
		if got := testfiles.Read(t, filepath.Join(source, name)); string(got) != want {
			t.Errorf("%s was changed:\n%s", name, got)
		}
	}
	c.Replaced[0].File = "name/moved.go"
	if err := b.Build(t.Context(), []Component{c}); err == nil ||
		!strings.Contains(err.Error(), "name/moved.go of example.invalid/up") {
		t.Errorf("got %v for a file that the module does not have", err)
	}
}
