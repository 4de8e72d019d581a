package fixes

import (
	"fmt"
	"unicode/utf8"

	"al.essio.dev/pkg/shellescape"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// Policy gives the permissions of the generated policy to the role that the cloud controller uses.
func Policy(f *facts.Facts) []preflight.Fix {
	if f.AssumesRole() {
		return setPolicy(f, f.PolicyOptions(true))
	}
	return MachinePolicy(f)
}

// MachinePolicy gives them to the role of the instance profile.
func MachinePolicy(f *facts.Facts) []preflight.Fix {
	role := f.MachineRole()
	for _, other := range []preflight.Role{preflight.Control, preflight.Worker} {
		if other != f.Request.Role && role == iampolicy.DefaultRoleName(other) {
			return []preflight.Fix{
				ReplaceProfile(f,
					fmt.Sprintf(
						"the role %s is that of %s VMs; give this instance the profile of %s VMs", role, other,
						f.Request.Role,
					),
					iampolicy.DefaultRoleName(f.Request.Role),
				),
				InExtension(f, "iam_instance_profile: "+iampolicy.DefaultRoleName(f.Request.Role)),
			}
		}
	}
	return setPolicy(f, f.PolicyOptions(false))
}

func setPolicy(f *facts.Facts, o iampolicy.Options) []preflight.Fix {
	role := o.RoleName
	policy, err := iampolicy.New(o)
	if err != nil {
		return []preflight.Fix{ByHand("first correct the following, then the report has the policy: %v", err)}
	}
	document := policy.Compact()
	size := utf8.RuneCountInString(document)
	if size > iampolicy.InlineLimit {
		return []preflight.Fix{
			ByCommand(
				fmt.Sprintf(
					"add the generated policy to the role as managed policies: it has %d characters, and the inline "+
						"policies of a role can have %d",
					size, iampolicy.InlineLimit,
				),
				attachPolicies(f, role, policy)...),
		}
	}
	inline := ByCommand(
		fmt.Sprintf(
			"set the role's inline policy %s to the generated one, which replaces an existing policy of that name; "+
				"it has %d of the %d characters that the inline policies of a role can have together",
			iampolicy.InlineName, size, iampolicy.InlineLimit,
		),
		"policy="+shellescape.Quote(document),
		AWS(f,
			"iam", "put-role-policy", "--role-name", role, "--policy-name", iampolicy.InlineName, "--policy-document",
			Expand("policy"),
		),
	)
	const ifFull = "or, if IAM answers LimitExceeded because the role has other inline policies, "
	if size > iampolicy.ManagedLimit {
		return []preflight.Fix{
			inline,
			ByCommand(
				fmt.Sprintf(
					"%sadd it as managed policies, each of which can have %d characters",
					ifFull, iampolicy.ManagedLimit,
				),
				attachPolicies(f, role, policy)...),
		}
	}
	return []preflight.Fix{
		inline,
		ByCommand(
			ifFull+"add it as a managed policy, in the same shell",
			attachPolicy(f, role, role, Expand("policy"))...),
	}
}

// attachPolicies are the commands that give a role the statements of a policy in managed policies.
func attachPolicies(f *facts.Facts, role string, policy iampolicy.Policy) []string {
	var lines []string
	for i, part := range policy.Split(iampolicy.ManagedLimit) {
		lines = append(lines, attachPolicy(f, role, fmt.Sprintf("%s-%d", role, i+1), part.Compact())...)
	}
	return lines
}

// attachPolicy are the commands that create a managed policy and give it to a role.
func attachPolicy(f *facts.Facts, role, name, document string) []string {
	return []string{
		Assign(
			"arn", Query(f, "Policy.Arn", "iam", "create-policy", "--policy-name", name, "--policy-document", document),
		),
		AWS(f, "iam", "attach-role-policy", "--role-name", role, "--policy-arn", Expand("arn")),
	}
}

// Deny is the fix for an action that a policy denies explicitly, which no other policy can allow.
func Deny(f *facts.Facts) preflight.Fix {
	return ByCommand(
		"change the statement with the effect Deny, which is in one of the role's policies, its permissions "+
			"boundary, or a policy of the organization or VPC endpoint; an additional policy cannot allow the "+
			"action. To list the role's policies:",
		AWS(f, "iam", "list-role-policies", "--role-name", f.RoleName()),
		AWS(f, "iam", "list-attached-role-policies", "--role-name", f.RoleName()),
	)
}
