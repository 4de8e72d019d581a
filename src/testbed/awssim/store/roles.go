package store

import (
	"cmp"
	"strings"

	"kubernetes-release/testbed/awssim/iam"
)

// RoleARN is the ARN of a role with its path.
func (w *World) RoleARN(r Role) string {
	return w.ARN("iam", "", "role"+cmp.Or(r.Path, "/")+r.Name)
}

// PoliciesOf are all policies of a role.
func (w *World) PoliciesOf(role *Role) []iam.Policy {
	var policies []iam.Policy
	for _, name := range SortedKeys(role.Policies) {
		policies = append(policies, role.Policies[name])
	}
	for _, arn := range role.Attached {
		if p := Find(w.ManagedPolicies, arn); p != nil {
			policies = append(policies, p.Document)
		}
	}
	return policies
}

// ProviderARN is the ARN of the provider of an issuer.
func (w *World) ProviderARN(issuer string) string {
	return w.ARN("iam", "", "oidc-provider/"+strings.TrimPrefix(issuer, "https://"))
}
