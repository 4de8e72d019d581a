package account

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// withValue returns a YAML or JSON document with another text for a key at its top. Everything else stays as it is,
// comments and layout too.
func withValue(document []byte, key, value string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, err
	}
	node := valueOf(&root, key)
	if node == nil {
		return nil, errors.New("it is not a key at the top of the document")
	}
	quote := map[yaml.Style]string{yaml.SingleQuotedStyle: `'`, yaml.DoubleQuotedStyle: `"`}[node.Style]
	written := []byte(quote + node.Value + quote)
	start := offset(document, node.Line, node.Column)
	if node.Kind != yaml.ScalarNode || !bytes.HasPrefix(document[start:], written) {
		return nil, errors.New("its value is an alias, or has a tag, an anchor or an escaped character")
	}
	changed := slices.Concat(document[:start], []byte(quote+value+quote), document[start+len(written):])
	return changed, differOnlyIn(key, value, document, changed)
}

// valueOf is the value of a key at the top of a document, nil if there is none.
func valueOf(document *yaml.Node, key string) *yaml.Node {
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	pairs := document.Content[0].Content
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i].Value == key {
			return pairs[i+1]
		}
	}
	return nil
}

// offset is where a line and a column of a text are, both counted from 1, columns in characters. It is the end of the
// text if there is no such place.
func offset(text []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			return len(text)
		}
		at += next + 1
	}
	for ; column > 1 && at < len(text); column-- {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return at
}

// differOnlyIn is an error if anything but the value of one key has changed, such as an alias of it.
func differOnlyIn(key, value string, before, after []byte) error {
	var old, changed map[string]any
	if err := errors.Join(yaml.Unmarshal(before, &old), yaml.Unmarshal(after, &changed)); err != nil {
		return err
	}
	old[key] = value
	for name := range changed {
		if !reflect.DeepEqual(old[name], changed[name]) {
			return fmt.Errorf("%s depends on it", name)
		}
	}
	return nil
}
