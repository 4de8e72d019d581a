package components

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"kubernetes-release/release/execute"
)

// overlay is a program that only exists for one go build: the main packages of several upstream programs, linked into
// one.
//
// The go command gets the files as an overlay of the pin's module. Files of the module cache cannot be replaced (cmd/go
// refuses that), so each main package is copied to a package of the pin's module, NAME, with three changes: its package
// is "program", its function main is Main, and its flags are not those of the process (package flag) but its own, since
// all programs are initialized, whichever runs, and several have a flag with the same name.
type overlay struct {
	// dir has the changed files; module is the path of the pin's module, root its folder.
	dir, module, root string
	// replace maps paths in the pin's module to files in dir.
	replace map[string]string
	// versions maps linker variables to the version of the program's module.
	versions map[string]string
}

// merge writes the merged programs of a component to dir. It returns nil if the component has none.
func (b Builder) merge(ctx context.Context, c Component, dir string) (*overlay, error) {
	if len(c.Merged) == 0 {
		return nil, nil
	}
	root, err := filepath.Abs(filepath.Join(b.Source, c.Pin))
	if err != nil {
		return nil, err
	}
	module, err := execute.Output(b.goCommand(ctx, c, "list", "-m"))
	if err != nil {
		return nil, err
	}
	o := &overlay{
		dir:      dir,
		module:   strings.TrimSpace(string(module)),
		root:     root,
		replace:  map[string]string{},
		versions: map[string]string{},
	}
	for _, program := range c.Merged {
		output, err := execute.Output(b.goCommand(ctx, c, "list", "-json=Dir,GoFiles,Module", program.Package))
		if err != nil {
			return nil, err
		}
		var upstream upstreamProgram
		if err := json.Unmarshal(output, &upstream); err != nil {
			return nil, fmt.Errorf("go list %s: %w", program.Package, err)
		}
		if err := o.add(program.Name, upstream); err != nil {
			return nil, err
		}
	}
	if err := o.write(
		"main.go", render(mainTemplate, map[string]any{"Module": o.module, "Programs": c.Merged}),
	); err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		return nil, err
	}
	return o, os.WriteFile(o.file(), text, 0o644)
}

// upstreamProgram is what go list prints about a main package.
type upstreamProgram struct {
	Dir     string
	GoFiles []string
	Module  struct{ Version string }
}

func (o *overlay) file() string { return filepath.Join(o.dir, "overlay.json") }

// flags are those that the go command requires to see the merged programs.
func (o *overlay) flags() []string {
	if o == nil {
		return nil
	}
	return []string{"-overlay", o.file()}
}

// variables are the linker variables with the programs' versions.
func (o *overlay) variables() map[string]string {
	if o == nil {
		return nil
	}
	return o.versions
}

// add adds a program under a name.
func (o *overlay) add(name string, upstream upstreamProgram) error {
	for _, file := range upstream.GoFiles {
		source, err := os.ReadFile(filepath.Join(upstream.Dir, file))
		if err != nil {
			return err
		}
		changed, versioned, err := asPackage(source, path.Join(o.module, name, "flag"))
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(upstream.Dir, file), err)
		}
		if versioned {
			o.versions[path.Join(o.module, name)+".version"] = upstream.Module.Version
		}
		if err := o.write(filepath.Join(name, file), changed); err != nil {
			return err
		}
	}
	return o.write(filepath.Join(name, "flag", "flag.go"), render(flagTemplate, name))
}

// write writes a file and puts it at a path of the pin's module.
func (o *overlay) write(name string, content []byte) error {
	file := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	o.replace[filepath.Join(o.root, name)] = file
	return os.WriteFile(file, content, 0o644)
}

// asPackage returns a source file of a main package as one of a package "program" that others can import, with the
// flags of another package. It reports whether the file has the variable version.
func asPackage(source []byte, flags string) (changed []byte, versioned bool, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, false, err
	}
	type edit struct {
		node ast.Node
		text string
	}
	edits := []edit{{file.Name, "program"}}
	for _, imported := range file.Imports {
		if imported.Path.Value == `"flag"` {
			edits = append(edits, edit{imported.Path, strconv.Quote(flags)})
		}
	}
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "main" {
				edits = append(edits, edit{d.Name, "Main"})
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					versioned = versioned ||
						slices.ContainsFunc(values.Names, func(n *ast.Ident) bool { return n.Name == "version" })
				}
			}
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.node.Pos(), b.node.Pos()) })
	var out bytes.Buffer
	end := 0
	for _, e := range edits {
		out.Write(source[end:files.Position(e.node.Pos()).Offset])
		out.WriteString(e.text)
		end = files.Position(e.node.End()).Offset
	}
	out.Write(source[end:])
	return out.Bytes(), versioned, nil
}

func render(t *template.Template, data any) []byte {
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		panic(err) // the templates are constants
	}
	return out.Bytes()
}

// mainTemplate runs the program by whose name it was called.
var mainTemplate = template.Must(template.New("main.go").Parse(`package main

import (
	"fmt"
	"os"
	"path/filepath"
{{range $n, $p := .Programs}}
	program{{$n}} "{{$.Module}}/{{$p.Name}}"
{{- end}}
)

func main() {
	switch filepath.Base(os.Args[0]) {
{{- range $n, $p := .Programs}}
	case "{{$p.Name}}":
		program{{$n}}.Main()
{{- end}}
	default:
		fmt.Fprintln(os.Stderr, "Error: unknown name", os.Args[0]+"; call it as one of:
		{{- range .Programs}} {{.Name}}{{end}}")
		os.Exit(2)
	}
}
`))

// flagTemplate stands in for package flag. The compiler reports a function that a program uses and that is missing
// here.
var flagTemplate = template.Must(template.New("flag.go").Parse(`package flag

import (
	"flag"
	"os"
)

type (
	ErrorHandling = flag.ErrorHandling
	Flag          = flag.Flag
	FlagSet       = flag.FlagSet
	Getter        = flag.Getter
	Value         = flag.Value
)

const (
	ContinueOnError = flag.ContinueOnError
	ExitOnError     = flag.ExitOnError
	PanicOnError    = flag.PanicOnError
)

var CommandLine = flag.NewFlagSet("{{.}}", flag.ExitOnError)

var (
	Arg           = CommandLine.Arg
	Args          = CommandLine.Args
	Bool          = CommandLine.Bool
	BoolVar       = CommandLine.BoolVar
	Duration      = CommandLine.Duration
	DurationVar   = CommandLine.DurationVar
	Float64       = CommandLine.Float64
	Float64Var    = CommandLine.Float64Var
	Func          = CommandLine.Func
	Int           = CommandLine.Int
	IntVar        = CommandLine.IntVar
	Int64         = CommandLine.Int64
	Int64Var      = CommandLine.Int64Var
	Lookup        = CommandLine.Lookup
	NArg          = CommandLine.NArg
	NewFlagSet    = flag.NewFlagSet
	Parsed        = CommandLine.Parsed
	PrintDefaults = CommandLine.PrintDefaults
	Set           = CommandLine.Set
	String        = CommandLine.String
	StringVar     = CommandLine.StringVar
	Uint          = CommandLine.Uint
	UintVar       = CommandLine.UintVar
	Uint64        = CommandLine.Uint64
	Uint64Var     = CommandLine.Uint64Var
	Var           = CommandLine.Var
	Visit         = CommandLine.Visit
	VisitAll      = CommandLine.VisitAll
)

func Parse() { _ = CommandLine.Parse(os.Args[1:]) }
`))

// with returns a component's linker variables and those of its merged programs.
func (o *overlay) with(variables map[string]string) map[string]string {
	all := maps.Clone(variables)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, o.variables())
	return all
}
