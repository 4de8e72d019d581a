// Package manifest reads deployment manifests and cloud configs. The BOSH CLI's packages apply ops-files, variables and
// the variable store; the result is decoded strictly.
package manifest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"

	"github.com/cloudfoundry/bosh-cli/v7/director/template"
	"github.com/cppforlife/go-patch/patch"
	"gopkg.in/yaml.v2" //nolint:depguard // go-patch works on the types that this version decodes to

	"kubernetes-release/internal/spelling"
)

// Source is a template with its ops-files and variables, as in the flags of `bosh deploy`.
type Source struct {
	// Path is the manifest or cloud config.
	Path string
	// OpsFiles are applied in order.
	OpsFiles []string
	// Vars are NAME=VALUE; the value is YAML. The last one with a name takes precedence.
	Vars []string
	// VarsFiles are YAML files of variables. Vars take precedence over them, and later files over earlier ones.
	VarsFiles []string
	// Defaults are the variables with the lowest precedence; not all of them need to be used.
	Defaults map[string]any
	// Store generates and keeps what `variables:` defines; nil if nothing must be generated.
	Store *Store
}

// Interpolate applies ops-files and variables. Variables without a value are errors, and so are Vars that are not used.
// The result is YAML without those `variables:` that have a value.
func Interpolate(s Source) ([]byte, error) {
	evaluate, err := s.evaluator()
	if err != nil {
		return nil, err
	}
	vars, used, err := s.variables()
	if err != nil {
		return nil, err
	}
	if s.Store != nil {
		patched, err := evaluate(template.StaticVariables{}, template.EvaluateOpts{})
		if err != nil {
			return nil, err
		}
		if err := s.Store.generateAhead(context.Background(), patched); err != nil {
			return nil, s.explain(err, "")
		}
	}
	out, err := evaluate(vars, template.EvaluateOpts{ExpectAllKeys: true})
	if err != nil {
		return nil, err
	}
	if unused := used.unused(); len(unused) > 0 {
		return nil, fmt.Errorf("%s: nothing uses the variables given by -v: %s; check their spelling or leave them out",
			s.Path, strings.Join(unused, ", "))
	}
	return out, nil
}

// AsReceived is the manifest as a Director with a config server receives it from `bosh deploy`: ops-files and the
// variables that the CLI was given are applied, and what Store would generate is still a ((placeholder)).
func AsReceived(s Source) ([]byte, error) {
	evaluate, err := s.evaluator()
	if err != nil {
		return nil, err
	}
	s.Store = nil
	vars, _, err := s.variables()
	if err != nil {
		return nil, err
	}
	return evaluate(vars, template.EvaluateOpts{})
}

// evaluator reads the template and the ops-files, and returns what applies them with variables. Its errors name the
// files.
func (s Source) evaluator() (func(template.Variables, template.EvaluateOpts) ([]byte, error), error) {
	text, err := os.ReadFile(s.Path)
	if err != nil {
		return nil, err
	}
	ops, err := readOps(s.OpsFiles)
	if err != nil {
		return nil, err
	}
	return func(vars template.Variables, options template.EvaluateOpts) ([]byte, error) {
		out, err := template.NewTemplate(text).Evaluate(vars, ops, options)
		if err != nil {
			return nil, s.explain(err, existingItems(text, ops, err))
		}
		return out, nil
	}, nil
}

// explain adds the files that took part, so that a wrong path or a missing variable can be found.
func (s Source) explain(err error, hint string) error {
	with := ""
	if len(s.OpsFiles) > 0 {
		with = " with ops-files " + strings.Join(s.OpsFiles, ", ")
	}
	if strings.Contains(err.Error(), "Expected to find variables") {
		hint = "\ngive them with -v NAME=VALUE or -l FILE, or define them in the manifest's variables"
	}
	return fmt.Errorf("interpolating %s%s: %w%s", s.Path, with, err, hint)
}

// absentItem matches the error of an operation whose path names a missing item of a list: list, key, value.
var absentItem = regexp.MustCompile(`array item for path '([^']*)/([^/=']+)=([^/']+)' but found 0`)

// existingItems names the items of the list in which an operation has not found its item; "" for other errors.
func existingItems(text []byte, ops patch.Op, err error) string {
	parts := absentItem.FindStringSubmatch(err.Error())
	var tree any
	if parts == nil || yaml.Unmarshal(text, &tree) != nil {
		return ""
	}
	path, err := patch.NewPointerFromString(parts[1])
	if err != nil {
		return ""
	}
	list, err := patch.FindOp{Path: path}.Apply(before(tree, ops))
	items, _ := list.([]any)
	if err != nil || len(items) == 0 {
		return ""
	}
	var names []string
	for _, item := range items {
		if fields, ok := item.(map[any]any); ok && fields[parts[2]] != nil {
			names = append(names, fmt.Sprint(fields[parts[2]]))
		}
	}
	return fmt.Sprintf(
		"\nthere is no '%s' in %s%s; there are: %s", parts[3], parts[1], spelling.Hint(parts[3], names),
		strings.Join(names, ", "),
	)
}

// before applies operations up to the first one that fails, and returns the input of that.
func before(tree any, op patch.Op) any {
	list, several := op.(patch.Ops)
	if !several {
		list = patch.Ops{op}
	}
	for _, op := range list {
		next, err := op.Apply(tree)
		if err == nil {
			tree = next
			continue
		}
		if inner, several := op.(patch.Ops); several {
			return before(tree, inner)
		}
		return tree
	}
	return tree
}

func readOps(paths []string) (patch.Op, error) {
	var all patch.Ops
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading ops-file: %w", err)
		}
		var definitions []patch.OpDefinition
		if err := yaml.UnmarshalStrict(text, &definitions); err != nil {
			return nil, fmt.Errorf("ops-file %s: %w", path, err)
		}
		for i := range definitions {
			if definitions[i].Error == nil {
				where := fmt.Sprintf("operation %d of %s failed", i, path)
				definitions[i].Error = &where
			}
		}
		ops, err := patch.NewOpsFromDefinitions(definitions)
		if err != nil {
			return nil, fmt.Errorf("ops-file %s: %w", path, err)
		}
		all = append(all, ops)
	}
	return all, nil
}

// tracked records which of its variables are used. It is used concurrently when secrets are generated.
type tracked struct {
	template.StaticVariables
	used *sync.Map // names
}

func (t tracked) Get(d template.VariableDefinition) (any, bool, error) {
	t.used.Store(d.Name, nil)
	return t.StaticVariables.Get(d)
}

func (t tracked) unused() []string {
	var names []string
	for name := range t.StaticVariables {
		if _, used := t.used.Load(strings.SplitN(name, ".", 2)[0]); !used {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func (s Source) variables() (template.Variables, tracked, error) {
	flags := tracked{template.StaticVariables{}, &sync.Map{}}
	for _, text := range s.Vars {
		var kv template.VarKV
		if err := kv.UnmarshalFlag(text); err != nil {
			return nil, flags, fmt.Errorf("-v %s: %w", text, err)
		}
		flags.StaticVariables[kv.Name] = kv.Value
	}
	sources := []template.Variables{flags}
	for i := len(s.VarsFiles) - 1; i >= 0; i-- {
		var arg template.VarsFileArg
		if err := arg.UnmarshalFlag(s.VarsFiles[i]); err != nil {
			return nil, flags, fmt.Errorf("-l %s: %w", s.VarsFiles[i], err)
		}
		sources = append(sources, arg.Vars)
	}
	sources = append(sources, template.StaticVariables(s.Defaults))
	if s.Store != nil {
		all := append(append([]template.Variables{}, sources...), s.Store)
		s.Store.lookup = template.NewMultiVars(all)
		sources = all
	}
	return template.NewMultiVars(sources), flags, nil
}
