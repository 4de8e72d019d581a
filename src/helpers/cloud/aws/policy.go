package aws

import (
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// TagPrefix starts the key of the tag that assigns a resource to a cluster; the cluster's name follows.
const TagPrefix = clustertags.Prefix

// InlinePolicyName is the name of the generated inline policy of a role.
const InlinePolicyName = iampolicy.InlineName

// Settings are what only the preflight on AWS reads of its configuration.
type Settings = facts.Settings

// The IAM policies of the cluster's machines.
type (
	// PolicyOptions selects a policy.
	PolicyOptions = iampolicy.Options
	// Policy is an IAM policy document.
	Policy = iampolicy.Policy
	// Statement is one statement of a Policy.
	Statement = iampolicy.Statement
)

// NewPolicy derives the policy for the machines of a role. The error names the invalid option.
func NewPolicy(o PolicyOptions) (Policy, error) { return iampolicy.New(o) }

// DefaultRoleName is the name of the IAM role of machines with a role, unless the operator chooses another.
func DefaultRoleName(role preflight.Role) string { return iampolicy.DefaultRoleName(role) }

// Rare reports whether few machines with a role use an action, so that a check only warns when it is missing.
func Rare(action string, role preflight.Role) bool { return iampolicy.Rare(action, role) }
