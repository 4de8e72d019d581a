package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kubernetes-release/internal/strictjson"
)

// Scalar is a JSON string, number or boolean as the text of a command line or an environment variable; null is unset.
type Scalar struct {
	text string
	set  bool
	// err is why the JSON value cannot be used. UnmarshalJSON does not return it, because only the validation of what
	// contains the value can name its place in the file.
	err error
}

// UnmarshalJSON never fails: see err.
func (s *Scalar) UnmarshalJSON(raw []byte) error {
	*s = decodeScalar(bytes.TrimSpace(raw))
	return nil
}

// decodeScalar accepts scalars without NUL, which no argument of a process can contain. A number keeps its spelling.
func decodeScalar(raw []byte) Scalar {
	if string(raw) == "null" {
		return Scalar{}
	}
	if raw[0] == '{' || raw[0] == '[' {
		return Scalar{err: fmt.Errorf("must be a string, number or boolean, found %s", excerpt(raw))}
	}
	if raw[0] != '"' {
		return Scalar{text: string(raw), set: true}
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return Scalar{err: err}
	}
	if strings.ContainsRune(text, 0) {
		return Scalar{err: fmt.Errorf("%s contains NUL, which no command line can", excerpt(raw))}
	}
	return Scalar{text: text, set: true}
}

// Value is the value of a flag: a scalar, a list of scalars, or a map of scalars. The zero Value, JSON's null, leaves
// the flag out.
type Value struct {
	set      bool
	elements []string
	// repeated tells that the elements cannot share one argument because one of them contains a comma.
	repeated bool
	// err is as that of Scalar.
	err error
}

// UnmarshalJSON never fails: see err.
func (v *Value) UnmarshalJSON(raw []byte) error {
	*v = Value{}
	switch raw = bytes.TrimSpace(raw); raw[0] {
	case '[':
		v.set, v.err = true, v.decodeList(raw)
	case '{':
		v.set, v.err = true, v.decodeMap(raw)
	default:
		scalar := decodeScalar(raw)
		*v = Value{set: scalar.set, elements: []string{scalar.text}, err: scalar.err}
	}
	return nil
}

func (v *Value) decodeList(raw []byte) error {
	var list []Scalar
	if err := strictjson.Unmarshal(raw, &list); err != nil {
		return err
	}
	for i, scalar := range list {
		if scalar.err == nil && !scalar.set {
			scalar.err = errors.New("is null: remove it or set a value")
		}
		if scalar.err != nil {
			return fmt.Errorf("element %d: %w", i, scalar.err)
		}
		v.add(scalar.text)
	}
	return nil
}

func (v *Value) decodeMap(raw []byte) error {
	var pairs map[string]Scalar
	if err := strictjson.Unmarshal(raw, &pairs); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if key == "" || strings.ContainsAny(key, "=,\x00") {
			return fmt.Errorf("key %q: a key must not be empty or contain '=', ',' or NUL", key)
		}
		if err := pairs[key].err; err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		if pairs[key].set {
			v.add(key + "=" + pairs[key].text)
		}
	}
	return nil
}

func (v *Value) add(element string) {
	v.elements = append(v.elements, element)
	v.repeated = v.repeated || strings.Contains(element, ",")
}

// arguments renders the value for the flag with a name: --name=value. Elements are joined by commas, or, if one of them
// contains a comma, become one argument each. An empty list or map renders --name=, an unset value nothing.
func (v Value) arguments(name string) []string {
	if !v.set {
		return nil
	}
	if !v.repeated {
		return []string{"--" + name + "=" + strings.Join(v.elements, ",")}
	}
	var arguments []string
	for _, element := range v.elements {
		arguments = append(arguments, "--"+name+"="+element)
	}
	return arguments
}

// excerpt shortens a JSON value for a message.
func excerpt(raw []byte) string {
	const limit = 60
	text := string(raw)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
