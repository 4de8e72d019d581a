// Package value has the part of go-cmp's package of that name that is replaced, see Replaced in
// src/release/components/component.go.
package value

import "reflect"

// TypeString returns the name of a type for messages; with qualified, the path of its package in place of the package's
// name. go-cmp's own function writes the methods of an interface without a name as well.
func TypeString(t reflect.Type, qualified bool) string {
	if qualified && t.Name() != "" && t.PkgPath() != "" {
		return `"` + t.PkgPath() + `".` + t.Name()
	}
	return t.String()
}
