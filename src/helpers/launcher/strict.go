package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"kubernetes-release/internal/spelling"
)

const (
	// maxConfigSize bounds a configuration file; the largest rendered ones have a few kilobytes.
	maxConfigSize = 1 << 20
	// maxDepth bounds the nesting of a configuration; ours need four levels.
	maxDepth = 16
)

// decodeStrict decodes JSON as encoding/json does, but takes nothing silently: unknown keys, keys in another case, keys
// given twice and text after the value are errors. The error lists everything wrong, each with its place in the document,
// and for an unknown key the one that was probably meant. A null leaves a field as it is.
func decodeStrict(content []byte, target any) error {
	if len(content) > maxConfigSize {
		return fmt.Errorf("it has %d bytes, allowed are %d", len(content), maxConfigSize)
	}
	if !utf8.Valid(content) {
		return errors.New("it is not UTF-8")
	}
	if err := checkSyntax(content); err != nil {
		return err
	}
	var w shapeWalker
	w.walk("", content, reflect.TypeOf(target).Elem())
	if len(w.problems) > 0 {
		return errors.Join(w.problems...)
	}
	return json.Unmarshal(content, target)
}

// checkSyntax walks the tokens once: is it JSON, one value, no key twice, not too deep?
func checkSyntax(content []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := checkValue(decoder, "", 0); err != nil {
		if errors.Is(err, io.EOF) {
			if len(bytes.TrimSpace(content)) == 0 {
				return errors.New("it is empty")
			}
			err = io.ErrUnexpectedEOF
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line := 1 + bytes.Count(content[:min(int(syntax.Offset), len(content))], []byte("\n"))
			return fmt.Errorf("it is not JSON, line %d: %w", line, err)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("it is not JSON: it ends in the middle")
		}
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON value")
	}
	return nil
}

func checkValue(decoder *json.Decoder, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: nested deeper than %d levels", path, maxDepth)
	}
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return err
			}
			name := key.(string) // the decoder accepts nothing else there
			if seen[name] {
				return fmt.Errorf("%s is given twice", join(path, name))
			}
			seen[name] = true
			if err := checkValue(decoder, join(path, name), depth+1); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; decoder.More(); i++ {
			if err := checkValue(decoder, fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = decoder.Token() // the closing delimiter
	return err
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// shapeWalker compares a document with the Go type that it is for.
type shapeWalker struct{ problems []error }

func (w *shapeWalker) problem(path, format string, arguments ...any) {
	message := fmt.Sprintf(format, arguments...)
	if path != "" {
		message = path + ": " + message
	}
	w.problems = append(w.problems, errors.New(message))
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (w *shapeWalker) walk(path string, raw json.RawMessage, t reflect.Type) {
	if string(bytes.TrimSpace(raw)) == "null" {
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case reflect.PointerTo(t).Implements(unmarshaler):
		if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
			w.problem(path, "%v", err)
		}
	case t.Kind() == reflect.Struct:
		w.walkStruct(path, raw, t)
	case t.Kind() == reflect.Map:
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			w.problem(path, "want a map, found %s", excerpt(raw))
			return
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			w.walk(join(path, key), object[key], t.Elem())
		}
	case t.Kind() == reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			w.problem(path, "want a list, found %s", excerpt(raw))
			return
		}
		for i, element := range list {
			w.walk(fmt.Sprintf("%s[%d]", path, i), element, t.Elem())
		}
	default:
		if json.Unmarshal(raw, reflect.New(t).Interface()) != nil {
			w.problem(path, "want a %s, found %s", t.Kind(), excerpt(raw))
		}
	}
}

func (w *shapeWalker) walkStruct(path string, raw json.RawMessage, t reflect.Type) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		w.problem(path, "want a map, found %s", excerpt(raw))
		return
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			fields[name] = t.Field(i).Type
		}
	}
	known := slices.Sorted(maps.Keys(fields))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		field, ok := fields[key]
		if ok {
			w.walk(join(path, key), object[key], field)
			continue
		}
		if near := spelling.Nearest(key, known); near != "" {
			w.problem(join(path, key), "unknown key; did you mean %s?", near)
		} else {
			w.problem(join(path, key), "unknown key; allowed are %s", strings.Join(known, ", "))
		}
	}
}

// excerpt shows a JSON value in a message, shortened.
func excerpt(raw []byte) string {
	const most = 60
	text := string(bytes.TrimSpace(raw))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
