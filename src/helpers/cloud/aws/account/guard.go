package account

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	cloudaws "kubernetes-release/cloud/aws"
)

// oneOrMore is a value of a policy that may be in a list: IAM accepts both, and may return either.
type oneOrMore[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *oneOrMore[T]) UnmarshalJSON(text []byte) error {
	var one T
	if err := json.Unmarshal(text, &one); err == nil {
		*l = oneOrMore[T]{one}
		return nil
	}
	return json.Unmarshal(text, (*[]T)(l))
}

// policyDocument is what the guards look at in a policy of a role.
type policyDocument struct{ Statement oneOrMore[policyStatement] }

type policyStatement struct {
	Sid       string
	Action    oneOrMore[string]
	Resource  oneOrMore[string]
	Condition map[string]map[string]json.RawMessage
}

func parsePolicy(text string) (policyDocument, error) {
	var d policyDocument
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return d, fmt.Errorf("the policy cannot be read: %w", err)
	}
	return d, nil
}

// guard keeps Prepare from removing permissions that somebody has added to a role's policy, and from the policy of
// another cluster.
type guard struct {
	account *Account
	policy  inlinePolicy
}

// mayReplace is the reason why the policy must not be replaced by the document that it must have; with Replace it may.
func (g guard) mayReplace(ctx context.Context) error {
	if g.account.Replace {
		return nil
	}
	text, exists, err := g.policy.get(ctx)
	if !exists {
		return err
	}
	current, err := parsePolicy(text)
	if err != nil {
		return err
	}
	wanted, err := parsePolicy(g.policy.document)
	if err != nil {
		return err
	}
	if other := current.otherCluster(g.account.Cluster); other != "" {
		return fmt.Errorf(
			"it has the tag of the cluster %s: give this cluster roles of its own (control_instance_profile and "+
				"worker_instance_profile in %s), or replace the policy with --replace", other, g.account.File,
		)
	}
	if lost := current.lost(wanted); len(lost) > 0 {
		return fmt.Errorf(
			"it would lose %s: add the options that the policy was generated with (cloud-preflight account --help), "+
				"or replace it with --replace", strings.Join(lost, "; "),
		)
	}
	return nil
}

// otherCluster is the name of another cluster whose tag conditions of the policy have, empty if there is none.
func (d policyDocument) otherCluster(own string) string {
	for _, s := range d.Statement {
		for _, keys := range s.Condition {
			for key := range keys {
				if _, name, ok := strings.Cut(key, cloudaws.TagPrefix); ok && name != own {
					return name
				}
			}
		}
	}
	return ""
}

// replaced reports whether a statement is one for volumes or snapshots of a generated policy of before: what it allows
// is in Ec2ChangeDrivers and Ec2ChangeByHand. The others of its name are for security groups.
func (s policyStatement) replaced() bool {
	name := s.name()
	return (name == "Ec2ChangeOwn" || name == "Ec2ChangeTagged") && len(s.Resource) > 0 &&
		!slices.ContainsFunc(s.Resource, func(r string) bool {
			return !strings.HasSuffix(r, ":volume/*") && !strings.HasSuffix(r, ":snapshot/*")
		})
}

// name is the Sid without the number that tells several statements of a name apart.
func (s policyStatement) name() string { return strings.TrimRight(s.Sid, "0123456789") }

// movedTo reports whether a statement of the same name has all resources of s.
func (s policyStatement) movedTo(other policyDocument) bool {
	return len(s.Resource) > 0 && slices.ContainsFunc(other.Statement, func(o policyStatement) bool {
		return s.Sid != "" && o.name() == s.name() &&
			!slices.ContainsFunc(s.Resource, func(r string) bool { return !slices.Contains(o.Resource, r) })
	})
}

// lost is what other does not have: statements, and single keys, buckets and roles in their resources. Patterns of
// resources change with releases.
func (d policyDocument) lost(other policyDocument) []string {
	var lost []string
	for _, s := range d.Statement {
		i := slices.IndexFunc(other.Statement, func(o policyStatement) bool { return s.Sid != "" && o.Sid == s.Sid })
		switch {
		case i >= 0:
			for _, r := range s.Resource {
				if !strings.Contains(r, "*") && !slices.Contains(other.Statement[i].Resource, r) {
					lost = append(lost, fmt.Sprintf("%s in the statement %s", r, s.Sid))
				}
			}
		case s.replaced(), s.movedTo(other):
		case s.Sid != "":
			lost = append(lost, "the statement "+s.Sid)
		default:
			lost = append(lost, "a statement without a Sid, of "+strings.Join(s.Action, ", "))
		}
	}
	return lost
}
