// Package iam evaluates identity-based IAM policies as AWS documents it: an explicit Deny wins, then any Allow, else
// the request is implicitly denied. It supports the elements Effect, Action, NotAction, Resource, NotResource and
// Condition. It refuses policy documents with other elements, so that no policy is enforced only in part.
package iam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Policy is a policy document.
type Policy struct {
	Version   string     `json:"Version,omitempty"`
	ID        string     `json:"Id,omitempty"`
	Statement Statements `json:"Statement"`
}

// Statements is a list of statements; documents can have a single statement instead of a list.
type Statements []Statement

// Statement is a rule of a policy.
type Statement struct {
	Sid         string     `json:"Sid,omitempty"`
	Effect      string     `json:"Effect"`
	Action      Strings    `json:"Action,omitempty"`
	NotAction   Strings    `json:"NotAction,omitempty"`
	Resource    Strings    `json:"Resource,omitempty"`
	NotResource Strings    `json:"NotResource,omitempty"`
	Condition   Conditions `json:"Condition,omitempty"`
}

// UnmarshalJSON accepts one statement or a list, and refuses unknown elements.
func (s *Statements) UnmarshalJSON(data []byte) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] != '[' {
		data = slices.Concat([]byte("["), data, []byte("]"))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var list []Statement
	if err := dec.Decode(&list); err != nil {
		return err
	}
	*s = list
	return nil
}

// Validate returns an error for the first element that IAM would refuse or that this package does not support.
func (p Policy) Validate() error {
	if len(p.Statement) == 0 {
		return fmt.Errorf("policy has no Statement")
	}
	for i, s := range p.Statement {
		where := fmt.Sprintf("Statement[%d]", i)
		if s.Effect != "Allow" && s.Effect != "Deny" {
			return fmt.Errorf("%s: Effect %q: must be Allow or Deny", where, s.Effect)
		}
		if (len(s.Action) == 0) == (len(s.NotAction) == 0) {
			return fmt.Errorf("%s: must have exactly one of Action and NotAction", where)
		}
		if (len(s.Resource) == 0) == (len(s.NotResource) == 0) {
			return fmt.Errorf("%s: must have exactly one of Resource and NotResource", where)
		}
		for _, action := range slices.Concat(s.Action, s.NotAction) {
			if action != "*" && !strings.Contains(action, ":") {
				return fmt.Errorf("%s: Action %q: must be SERVICE:ACTION", where, action)
			}
		}
		for operator := range s.Condition {
			if _, err := parseOperator(operator); err != nil {
				return fmt.Errorf("%s: Condition: %w", where, err)
			}
		}
	}
	return nil
}

// Request is an action on a resource.
type Request struct {
	Action   string              // for example ec2:CreateTags
	Resource string              // an ARN, or "*" for actions without resource-level permissions
	Context  map[string][]string // condition key to values; keys are compared without regard to case
}

// Decision is the result of the evaluation of a Request.
type Decision int

const (
	// ImplicitDeny means that no statement allows the request.
	ImplicitDeny Decision = iota
	// Allowed means that a statement allows it and none denies it.
	Allowed
	// ExplicitDeny means that a Deny statement matches.
	ExplicitDeny
)

// Evaluate evaluates a request with all of an identity's policies.
func Evaluate(policies []Policy, r Request) Decision {
	decision := ImplicitDeny
	for _, p := range policies {
		for _, s := range p.Statement {
			if !s.matches(r) {
				continue
			}
			if s.Effect == "Deny" {
				return ExplicitDeny
			}
			decision = Allowed
		}
	}
	return decision
}

func (s Statement) matches(r Request) bool {
	action := len(s.Action) > 0 && matchAny(s.Action, r.Action, true) ||
		len(s.NotAction) > 0 && !matchAny(s.NotAction, r.Action, true)
	resource := len(s.Resource) > 0 && matchAny(s.Resource, r.Resource, false) ||
		len(s.NotResource) > 0 && !matchAny(s.NotResource, r.Resource, false)
	return action && resource && s.Condition.hold(r.Context)
}
