// Package wire implements three protocols of AWS: EC2's own query protocol, the "AWS query" protocol of Elastic Load
// Balancing, IAM and STS, and the "AWS JSON" protocol of Elastic Container Registry. Requests are flat form parameters
// (Filter.1.Value.2=x, Subnets.member.1=y) and responses XML; for the last, both are JSON. The package decodes
// requests to Go structs and encodes Go structs to responses; it does not depend on the actions.
package wire

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Style is one of the protocols.
type Style int

const (
	// EC2 flattens lists as Name.1, Name.2; its responses have no result element.
	EC2 Style = iota
	// Query writes lists as Name.member.1 and wraps responses in <ActionResult>.
	Query
	// JSON has requests and responses in JSON, and the action in a header.
	JSON
)

// ContentType is that of responses.
func (s Style) ContentType() string {
	if s == JSON {
		return "application/x-amz-json-1.1"
	}
	return "text/xml;charset=UTF-8"
}

// ParseJSON returns the members of a JSON object as form parameters, as the AWS query protocol would write them.
func ParseJSON(body []byte) (url.Values, error) {
	form := url.Values{}
	if len(body) == 0 {
		return form, nil
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("decode a JSON request: %w", err)
	}
	flatten(form, "", object)
	return form, nil
}

func flatten(form url.Values, name string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			flatten(form, join(name, key), member)
		}
	case []any:
		for i, element := range value {
			flatten(form, join(join(name, "member"), strconv.Itoa(i+1)), element)
		}
	case nil: // a member that is missing
	default:
		form.Set(name, fmt.Sprint(value))
	}
}

// maxDepth is the maximum nesting of a parameter's name. The deepest that EC2 documents,
// LaunchTemplateData.NetworkInterface.1.PrivateIpAddresses.1.Primary, has six parts.
const maxDepth = 12

// maxIndex is the maximum position in a list; EC2 accepts at most 1000 ids in a call.
const maxIndex = 10000

// UnknownParameterError names a parameter that the action does not have.
type UnknownParameterError struct{ Name string }

func (e *UnknownParameterError) Error() string {
	return fmt.Sprintf("The parameter %s is not recognized", e.Name)
}

// InvalidParameterError names a parameter whose value does not fit its type, or whose name is malformed.
type InvalidParameterError struct{ Name, Value, Want string }

func (e *InvalidParameterError) Error() string {
	return fmt.Sprintf("Invalid value '%s' for %s. Expected %s.", e.Value, e.Name, e.Want)
}

// Decode sets the fields of the struct that into points to from form parameters. A field gets the parameter with its
// name, or that of its `param:"…"` tag; the fields of embedded structs belong to the outer struct. Fields can be
// string, bool, int, pointers to these (nil if the parameter is missing), structs, slices and maps of strings. Errors
// are *UnknownParameterError or *InvalidParameterError.
func Decode(values url.Values, style Style, into any) error {
	root := &node{}
	for name, all := range values {
		if err := root.insert(name, all[0]); err != nil {
			return err
		}
	}
	d := decoder{style: style}
	if err := d.decode(reflect.ValueOf(into).Elem(), root, ""); err != nil {
		return err
	}
	return root.firstUnused("")
}

// node is a node of the tree that the dotted names form.
type node struct {
	value    string
	hasValue bool
	used     bool
	children map[string]*node
}

func (n *node) insert(name, value string) error {
	parts := strings.Split(name, ".")
	if len(parts) > maxDepth {
		return &UnknownParameterError{Name: name}
	}
	for _, part := range parts {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		child := n.children[part]
		if child == nil {
			child = &node{}
			n.children[part] = child
		}
		n = child
	}
	n.value, n.hasValue = value, true
	return nil
}

// firstUnused returns an error for the first parameter, by name, without a field.
func (n *node) firstUnused(name string) error {
	if n.hasValue && !n.used {
		return &UnknownParameterError{Name: name}
	}
	keys := make([]string, 0, len(n.children))
	for key := range n.children {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		if err := n.children[key].firstUnused(join(name, key)); err != nil {
			return err
		}
	}
	return nil
}

// collect uses all values below a node. Their names can hold dots.
func (n *node) collect(name string, add func(name, value string)) {
	if n.hasValue {
		n.used = true
		add(name, n.value)
	}
	for key, child := range n.children {
		child.collect(join(name, key), add)
	}
}

type decoder struct{ style Style }

func (d decoder) decode(v reflect.Value, n *node, name string) error {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.decode(v.Elem(), n, name)
	case reflect.Struct:
		return d.decodeStruct(v, n, name)
	case reflect.Slice:
		return d.decodeSlice(v, n, name)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		n.collect("", func(key, value string) { v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(value)) })
		return nil
	}
	if !n.hasValue {
		return nil // its children stay unused and are reported
	}
	n.used = true
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.value)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.value)
		if err != nil {
			return &InvalidParameterError{Name: name, Value: n.value, Want: "true or false"}
		}
		v.SetBool(b)
	case reflect.Int:
		i, err := strconv.ParseInt(n.value, 10, 32)
		if err != nil {
			return &InvalidParameterError{Name: name, Value: n.value, Want: "an integer"}
		}
		v.SetInt(i)
	default:
		panic(fmt.Sprintf("wire: cannot decode into %s", v.Type()))
	}
	return nil
}

func (d decoder) decodeStruct(v reflect.Value, n *node, name string) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			if err := d.decodeStruct(v.Field(i), n, name); err != nil {
				return err
			}
			continue
		}
		key := field.Name
		if tag, ok := field.Tag.Lookup("param"); ok {
			key = tag
		}
		if child := n.children[key]; child != nil {
			if err := d.decode(v.Field(i), child, join(name, key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeSlice orders elements by their index and ignores gaps, as AWS does.
func (d decoder) decodeSlice(v reflect.Value, n *node, name string) error {
	if d.style != EC2 {
		if n.hasValue && n.value == "" {
			n.used = true // "Subnets=" is how the protocol writes an empty list
		}
		if n = n.children["member"]; n == nil {
			return nil
		}
		name = join(name, "member")
	}
	indexes := make([]int, 0, len(n.children))
	for key := range n.children {
		index, err := strconv.Atoi(key)
		if err != nil || index < 1 || index > maxIndex || strconv.Itoa(index) != key {
			return &UnknownParameterError{Name: join(name, key)}
		}
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	v.Set(reflect.MakeSlice(v.Type(), len(indexes), len(indexes)))
	for i, index := range indexes {
		key := strconv.Itoa(index)
		if err := d.decode(v.Index(i), n.children[key], join(name, key)); err != nil {
			return err
		}
	}
	return nil
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}
