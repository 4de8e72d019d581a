// Package strictjson decodes the release's configuration files, which are rendered by the release itself and so must
// hold exactly what the program knows: unknown keys, keys in another case and keys given twice are errors, as in
// Kubernetes' own strict decoding (sigs.k8s.io/json).
package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	sigsjson "sigs.k8s.io/json"

	"kubernetes-release/internal/spelling"
)

// MaxSize bounds a configuration file, in bytes; the largest rendered ones have a few kilobytes.
const MaxSize = 1 << 20

// ReadFile decodes the file at path into the value that target points to. Errors name the file and list all unknown
// keys.
func ReadFile(path string, target any) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := Unmarshal(content, target); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Unmarshal decodes one JSON value into the value that target points to. The error lists all unknown keys and keys
// given twice, each with its place in the document and the known key that was probably meant. null leaves a field as it
// is.
func Unmarshal(content []byte, target any) error {
	if len(content) > MaxSize {
		return fmt.Errorf("larger than %d bytes", MaxSize)
	}
	if !utf8.Valid(content) {
		return errors.New("not UTF-8") // encoding/json would replace the bytes silently
	}
	if len(strings.TrimSpace(string(content))) == 0 {
		return errors.New("empty; want JSON")
	}
	strict, err := sigsjson.UnmarshalStrict(content, target)
	if err != nil {
		return explain(content, err)
	}
	var problems []error
	for _, problem := range strict {
		problems = append(problems, withHint(problem, reflect.TypeOf(target)))
	}
	return errors.Join(problems...)
}

// explain words the errors of encoding/json for people who see the file and not the program.
func explain(content []byte, err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		if wrongType.Field == "" {
			return fmt.Errorf("want %s, found %s", kind(wrongType.Type), wrongType.Value)
		}
		return fmt.Errorf("%s: want %s, found %s", wrongType.Field, kind(wrongType.Type), wrongType.Value)
	}
	if isSyntax, offset := sigsjson.SyntaxErrorOffset(err); isSyntax {
		before := content[:min(int(offset), len(content))]
		return fmt.Errorf("not JSON, line %d: %w", 1+strings.Count(string(before), "\n"), err)
	}
	return err
}

func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a map"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	default:
		return "a number (" + t.String() + ")"
	}
}

// unknownField is the wording of sigs.k8s.io/json for a key that no field has; index expressions are those of lists and
// maps.
var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// withHint adds to an error about an unknown key the known one that is nearest, or all that there are.
func withHint(problem error, target reflect.Type) error {
	match := unknownField.FindStringSubmatch(problem.Error())
	if match == nil {
		return problem
	}
	path := strings.Split(match[1], ".")
	known := keys(target, path[:len(path)-1])
	if len(known) == 0 {
		return problem
	}
	if near := spelling.Nearest(path[len(path)-1], known); near != "" {
		return fmt.Errorf("%w; did you mean %s?", problem, near)
	}
	return fmt.Errorf("%w; known are %s", problem, strings.Join(known, ", "))
}

// keys lists the JSON keys of the struct that a path leads to, or nothing where the path does not lead to one.
func keys(t reflect.Type, path []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map && len(path) == 0 {
		t = t.Elem()
	}
	if t.Kind() == reflect.Map {
		return keys(t.Elem(), path[1:])
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "-" || !t.Field(i).IsExported() {
			continue
		}
		if name == "" {
			name = t.Field(i).Name
		}
		if len(path) > 0 && strings.HasPrefix(path[0]+"[", name+"[") {
			return keys(t.Field(i).Type, path[1:])
		}
		names = append(names, name)
	}
	if len(path) > 0 {
		return nil
	}
	return names
}
