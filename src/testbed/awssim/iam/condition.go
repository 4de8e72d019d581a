package iam

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// operator is a parsed condition operator: ForAnyValue:StringNotLikeIfExists.
type operator struct {
	set      string // "", ForAnyValue, ForAllValues
	compare  func(want, got string) bool
	negated  bool
	ifExists bool
	null     bool
}

// comparisons are the operators that the policies of Kubernetes' AWS components use.
var comparisons = map[string]operator{
	"StringEquals":              {compare: equal},
	"StringNotEquals":           {compare: equal, negated: true},
	"StringEqualsIgnoreCase":    {compare: strings.EqualFold},
	"StringNotEqualsIgnoreCase": {compare: strings.EqualFold, negated: true},
	"StringLike":                {compare: Match},
	"StringNotLike":             {compare: Match, negated: true},
	"ArnEquals":                 {compare: Match},
	"ArnLike":                   {compare: Match},
	"ArnNotEquals":              {compare: Match, negated: true},
	"ArnNotLike":                {compare: Match, negated: true},
	"Bool":                      {compare: strings.EqualFold},
	"NumericEquals":             {compare: numeric(func(got, want float64) bool { return got == want })},
	"NumericNotEquals":          {compare: numeric(func(got, want float64) bool { return got == want }), negated: true},
	"NumericLessThan":           {compare: numeric(func(got, want float64) bool { return got < want })},
	"NumericLessThanEquals":     {compare: numeric(func(got, want float64) bool { return got <= want })},
	"NumericGreaterThan":        {compare: numeric(func(got, want float64) bool { return got > want })},
	"NumericGreaterThanEquals":  {compare: numeric(func(got, want float64) bool { return got >= want })},
	"Null":                      {null: true},
}

// numeric compares numbers. What is none is not equal to any.
func numeric(holds func(got, want float64) bool) func(want, got string) bool {
	return func(want, got string) bool {
		w, wantErr := strconv.ParseFloat(want, 64)
		g, gotErr := strconv.ParseFloat(got, 64)
		return wantErr == nil && gotErr == nil && holds(g, w)
	}
}

func equal(want, got string) bool { return want == got }

func parseOperator(name string) (operator, error) {
	base, set := name, ""
	if before, after, found := strings.Cut(name, ":"); found {
		if before != "ForAnyValue" && before != "ForAllValues" {
			return operator{}, fmt.Errorf("operator %q: must have ForAnyValue: or ForAllValues: before the colon", name)
		}
		set, base = before, after
	}
	base, ifExists := strings.CutSuffix(base, "IfExists")
	op, ok := comparisons[base]
	if !ok {
		return operator{}, fmt.Errorf("operator %q is not supported", name)
	}
	op.set, op.ifExists = set, ifExists
	return op, nil
}

// hold reports whether all operators and keys of the block are satisfied.
func (c Conditions) hold(context map[string][]string) bool {
	for name, keys := range c {
		op, err := parseOperator(name)
		if err != nil {
			return false // Validate refuses such policies before they are used
		}
		for key, want := range keys {
			if !op.holds(want, lookup(context, key)) {
				return false
			}
		}
	}
	return true
}

// lookup finds a context key. IAM's key names are case-insensitive.
func lookup(context map[string][]string, key string) []string {
	if values, ok := context[key]; ok {
		return values
	}
	for name, values := range context {
		if strings.EqualFold(name, key) {
			return values
		}
	}
	return nil
}

func (op operator) holds(want, got []string) bool {
	if op.null {
		return len(want) > 0 && strings.EqualFold(want[0], "true") == (len(got) == 0)
	}
	if len(got) == 0 {
		// A missing key fails positive operators, and satisfies negated ones, …IfExists and ForAllValues.
		return op.set == "ForAllValues" || op.set == "" && op.negated || op.ifExists
	}
	for _, value := range got {
		ok := op.one(want, value)
		switch {
		case op.set == "ForAllValues" && !ok:
			return false
		case op.set != "ForAllValues" && ok:
			return true
		}
	}
	return op.set == "ForAllValues"
}

// one compares a value of the request with the accepted ones: it must match any for positive operators, and none for
// negated ones.
func (op operator) one(want []string, value string) bool {
	for _, w := range want {
		if op.compare(w, value) {
			return !op.negated
		}
	}
	return op.negated
}

// Conditions maps operator (StringEquals) to condition key (aws:ResourceTag/team) to accepted values.
type Conditions map[string]map[string]Strings

// ConditionKeys are the keys of all conditions in policies, sorted, each once.
func ConditionKeys(policies []Policy) []string {
	var all []string
	for _, p := range policies {
		for _, s := range p.Statement {
			for _, keys := range s.Condition {
				all = slices.AppendSeq(all, maps.Keys(keys))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Strings is a list that documents can write as a single string (or, in conditions, as a bool).
type Strings []string

// UnmarshalJSON accepts "x", true and ["x", "y"].
func (s *Strings) UnmarshalJSON(data []byte) error {
	var one any
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	list, ok := one.([]any)
	if !ok {
		list = []any{one}
	}
	*s = make(Strings, 0, len(list))
	for _, v := range list {
		switch v := v.(type) {
		case string:
			*s = append(*s, v)
		case bool, float64:
			*s = append(*s, fmt.Sprint(v))
		default:
			return fmt.Errorf("%v: must be a string or a list of strings", v)
		}
	}
	return nil
}
