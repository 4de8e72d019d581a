package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scalar is a JSON string, number or boolean as the text that a command line or an environment variable takes; null is unset.
type Scalar struct {
	Text string
	Set  bool
}

// UnmarshalJSON accepts scalars without NUL bytes, which no argument of a process can hold. A number keeps its spelling.
func (s *Scalar) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return errors.New("empty value")
	case string(raw) == "null":
		*s = Scalar{}
		return nil
	case raw[0] == '{' || raw[0] == '[':
		return fmt.Errorf("want a string, number or boolean, found %s", excerpt(raw))
	case raw[0] != '"':
		*s = Scalar{Text: string(raw), Set: true}
		return nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	if strings.ContainsRune(text, 0) {
		return fmt.Errorf("%s holds a NUL byte, which no command line can", excerpt(raw))
	}
	*s = Scalar{Text: text, Set: true}
	return nil
}

// Value is what a flag is set to: a scalar, a list of scalars, or a map of scalars. The zero Value, JSON's null, leaves the flag out.
type Value struct {
	set      bool
	elements []string
	// repeated tells that the elements cannot share one argument: one of them holds a comma.
	repeated bool
}

// UnmarshalJSON accepts what a flag can take; nested lists and maps are errors.
func (v *Value) UnmarshalJSON(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) > 0 && raw[0] == '[':
		return v.decodeList(raw)
	case len(raw) > 0 && raw[0] == '{':
		return v.decodeMap(raw)
	}
	var scalar Scalar
	if err := scalar.UnmarshalJSON(raw); err != nil {
		return err
	}
	*v = Value{set: scalar.Set, elements: []string{scalar.Text}}
	return nil
}

func (v *Value) decodeList(raw []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	*v = Value{set: true}
	for i, element := range list {
		var scalar Scalar
		if err := scalar.UnmarshalJSON(element); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		if !scalar.Set {
			return fmt.Errorf("element %d is null: leave it out, or give a value", i)
		}
		v.add(scalar.Text)
	}
	return nil
}

func (v *Value) decodeMap(raw []byte) error {
	var pairs map[string]json.RawMessage
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return err
	}
	*v = Value{set: true}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if key == "" || strings.ContainsAny(key, "=,\x00") {
			return fmt.Errorf("key %q: a key is not empty and holds neither '=' nor ',' nor NUL", key)
		}
		var scalar Scalar
		if err := scalar.UnmarshalJSON(pairs[key]); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		if scalar.Set {
			v.add(key + "=" + scalar.Text)
		}
	}
	return nil
}

func (v *Value) add(element string) {
	v.elements = append(v.elements, element)
	v.repeated = v.repeated || strings.Contains(element, ",")
}

// arguments renders the value for the flag of a name: --name=value. Elements are joined by commas, or, when one of them
// holds a comma itself, given as one argument each. An empty list or map renders --name=, an unset value nothing.
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

// Duration is a time that JSON writes in Go's notation, such as "90s" or "10m".
type Duration time.Duration

// UnmarshalJSON accepts positive durations.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("%s is not a duration: write a string with a unit, such as \"90s\" or \"10m\"", excerpt(raw))
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed <= 0 {
		return fmt.Errorf("%q is not a duration: write a positive number with a unit, such as \"90s\" or \"10m\"", text)
	}
	*d = Duration(parsed)
	return nil
}

// or returns the duration, or another where none is set.
func (d Duration) or(other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return time.Duration(d)
}

// Limit is a resource limit, soft and hard alike; math.MaxUint64, which JSON writes as "unlimited", is none.
type Limit uint64

// UnmarshalJSON accepts whole numbers from 0 and "unlimited".
func (l *Limit) UnmarshalJSON(raw []byte) error {
	if string(raw) == `"unlimited"` {
		*l = unlimited
		return nil
	}
	n, err := strconv.ParseUint(string(raw), 10, 63)
	if err != nil {
		return fmt.Errorf("%s is not a limit: write a whole number or \"unlimited\"", excerpt(raw))
	}
	*l = Limit(n)
	return nil
}

func (l Limit) String() string {
	if l == unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(uint64(l), 10)
}
