package components

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-release/release/testfiles"
)

// TestMergedPrograms links two programs into one. Both have the flag --name, at the process's own flag set and one of
// their own, and both have the flags of a package that they share.
func TestMergedPrograms(t *testing.T) {
	source, output := t.TempDir(), t.TempDir()
	file := func(name, content string) { testfiles.Write(t, filepath.Join(source, name), content) }
	file(
		"both/go.mod",
		"module test/both\n\ngo 1.26\n\nrequire example.invalid/up v1.2.3\n\nreplace example.invalid/up => ../up\n",
	)
	file("up/go.mod", "module example.invalid/up\n\ngo 1.26\n")
	file("up/shared/shared.go", `package shared

import "flag"

func Register(flags *flag.FlagSet) *bool { return flags.Bool("version", false, "") }
`)
	program := `package main

import (
	FLAG
	"fmt"
	"os"

	"example.invalid/up/shared"
)

var version = "unknown"

var name = flags.String("name", "DEFAULT", "")

func main() {
	show := shared.Register(flags.CommandLine)
	flags.Parse()
	if *show {
		fmt.Println(version)
		os.Exit(0)
	}
	fmt.Println(greeting(), *name)
}
`
	file("up/cmd/hello/main.go", strings.NewReplacer("FLAG", `flags "flag"`, "DEFAULT", "world").Replace(program))
	file("up/cmd/hello/greeting.go", "package main\n\nfunc greeting() string { return \"hello\" }\n")
	file("up/cmd/hello/greeting_test.go", "package main\n\nnot Go\n")
	file(
		"up/cmd/bye/main.go",
		strings.NewReplacer("FLAG", `"flag"`, "flags.", "flag.", "DEFAULT", "moon", "greeting()", `"bye"`).
			Replace(program),
	)
	file("up/config/widget.yaml", "kind: Widget\n")
	c := Component{
		Manifests: []Manifests{{Module: "example.invalid/up", Files: []string{"config/widget.yaml"}}},
		Name:      "both",
		Pin:       "both",
		Module:    "example.invalid/up",
		Binaries:  []Binary{{"both", "."}},
		Merged: []Binary{
			{"hello", "example.invalid/up/cmd/hello"},
			{"bye", "example.invalid/up/cmd/bye"},
		},
		Links: []string{"hello", "bye"},
	}
	b := Builder{
		Source:      source,
		Output:      output,
		Log:         io.Discard,
		Environment: []string{"GOFLAGS=-mod=mod", "GOPROXY=off"},
	}
	if err := b.Build(t.Context(), []Component{c}); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"hello":             "hello world",
		"hello --name you":  "hello you",
		"bye":               "bye moon",
		"bye --name you":    "bye you",
		"hello --version":   "v1.2.3",
		"bye --name=x -h":   "Usage of bye:",
		"both --name=x":     "Error: unknown name",
		"hello --frobnicat": "flag provided but not defined: -frobnicat",
	} {
		words := strings.Fields(command)
		text, _ := exec.CommandContext(t.Context(), filepath.Join(output, "both", "bin", words[0]), words[1:]...).
			CombinedOutput()
		if !strings.HasPrefix(string(text), want) {
			t.Errorf("%s prints %q, want %q", command, text, want)
		}
	}
	if got := testfiles.Read(
		t, filepath.Join(output, "both", "manifests", "widget.yaml"),
	); string(got) != "kind: Widget\n" {
		t.Errorf("the manifest is %q", got)
	}
}
