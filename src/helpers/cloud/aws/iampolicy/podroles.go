package iampolicy

// What job pod-roles calls in pre-start, with the role of the control machines' instance profile (publish.go and
// verify.go in package issuer).
const (
	PublishAction  = "s3:PutObject"
	ProviderAction = "iam:GetOpenIDConnectProvider"
)

// podRolePermissions are the calls of job pod-roles.
func podRolePermissions() []Permission {
	row := func(action string, s scope, resources []string, why string) Permission {
		return Permission{
			Action: action, roles: controlMachines, holder: machines, Scope: s, Resources: resources, Why: why,
			when: func(n Needs) bool { return len(n.Published) > 0 },
		}
	}
	return []Permission{
		row(PublishAction, Publishes, nil, "Job pod-roles publishes the keys that verify tokens of pods with it."),
		row(
			ProviderAction, providers, []string{"iam::*:oidc-provider/*"},
			"Job pod-roles finds out with it whether the account has a provider for the issuer.",
		),
	}
}
