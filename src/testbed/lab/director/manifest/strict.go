package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/spelling"
)

var unknownField = regexp.MustCompile(`^line \d+: field (\S+) not found in type manifest\.(\w+)$`)

// decode decodes YAML into target and refuses keys that target does not have. Errors name file.
func decode(file string, text []byte, target any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	err := decoder.Decode(target)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file is empty", file)
	}
	var typeError *yaml.TypeError
	if !errors.As(err, &typeError) {
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return nil
	}
	keys := map[string][]string{}
	collectKeys(reflect.TypeOf(target), keys)
	var problems []string
	for _, line := range typeError.Errors {
		problems = append(problems, explainField(line, keys))
	}
	return fmt.Errorf("%s: %s", file, strings.Join(problems, "\n  "))
}

func explainField(line string, keys map[string][]string) string {
	parts := unknownField.FindStringSubmatch(line)
	if parts == nil {
		return line
	}
	known := keys[parts[2]]
	text := fmt.Sprintf("unknown key '%s'", parts[1])
	if hint := spelling.Hint(parts[1], known); hint != "" {
		return text + hint
	}
	return text + "; known keys are " + strings.Join(known, ", ")
}

// collectKeys adds the YAML keys of t and all struct types in it to keys.
func collectKeys(t reflect.Type, keys map[string][]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collectKeys(t.Elem(), keys)
	case reflect.Struct:
		if _, seen := keys[t.Name()]; seen {
			return
		}
		keys[t.Name()] = []string{}
		for i := range t.NumField() {
			field := t.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if name == "-" || !field.IsExported() {
				continue
			}
			if name != "" && options != "inline" {
				keys[t.Name()] = append(keys[t.Name()], name)
			}
			collectKeys(field.Type, keys)
		}
	}
}
