package fixes

import (
	"fmt"
	"strings"
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

// setPolicy gives a role the generated policy, and the security group the tag on which that depends.
func setPolicy(f *facts.Facts, o iampolicy.Options) []preflight.Fix {
	return TagFirst(f, putPolicy(f, o))
}

func putPolicy(f *facts.Facts, o iampolicy.Options) []preflight.Fix {
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
			ifFull+"add it as a managed policy",
			AttachPolicy(f, "role", role, policyARN(f, role, role), document)...),
	}
}

// attachPolicies are the commands that give a role the statements of a policy in managed policies.
func attachPolicies(f *facts.Facts, role string, policy iampolicy.Policy) []string {
	var lines []string
	for i, part := range policy.Split(iampolicy.ManagedLimit) {
		arn := policyARN(f, role, fmt.Sprintf("%s-%d", role, i+1))
		lines = append(lines, AttachPolicy(f, "role", role, arn, part.Compact())...)
	}
	return lines
}

// AttachPolicy are the commands that create a managed policy, or make the document the new version of an existing one,
// and give it to a role or a user. They can be repeated until the policy has the five versions that IAM keeps.
func AttachPolicy(f *facts.Facts, kind, owner, arn, document string) []string {
	_, name, _ := strings.Cut(arn, ":policy/")
	create := AWS(f, "iam", "create-policy", "--policy-name", name, "--policy-document", Expand("policy"))
	replace := AWS(f,
		"iam", "create-policy-version", "--policy-arn", arn, "--policy-document", Expand("policy"), "--set-as-default",
	)
	return []string{
		"policy=" + shellescape.Quote(document),
		create + " || " + replace,
		AWS(f, "iam", "attach-"+kind+"-policy", "--"+kind+"-name", owner, "--policy-arn", arn),
	}
}

// policyARN is the ARN of a managed policy in the account of a role.
func policyARN(f *facts.Facts, role, name string) string {
	owner, known := f.MachineIdentity()
	if f.AssumesRole() && role == f.Conf.RoleName() {
		owner, known = f.AssumedIdentity(), true
	}
	if !known || owner.Account == "" {
		return "arn:" + Expand("partition") + ":iam::" + Expand("account") + ":policy/" + name
	}
	return "arn:" + owner.Partition + ":iam::" + owner.Account + ":policy/" + name
}

// OfOrganization is what to do about an action that the organization's policies may deny.
const OfOrganization = "nothing, if the organization's policies (SCPs) allow the action to this account in this " +
	"region, otherwise have them changed"

// Deny is the fix for an action that a policy denies explicitly to the machine's role.
func Deny(f *facts.Facts) preflight.Fix { return DenyOf(f, "role", f.RoleName()) }

// DenyOf is that fix for a role or a user, whom no other policy can allow the action.
func DenyOf(f *facts.Facts, kind, name string) preflight.Fix {
	operations := []string{"list-" + kind + "-policies", "list-attached-" + kind + "-policies"}
	if kind == "user" {
		operations = append(operations, "list-groups-for-user")
	}
	var lines []string
	for _, operation := range operations {
		lines = append(lines, AWS(f, "iam", operation, "--"+kind+"-name", name))
	}
	return ByCommand(DenyText, lines...)
}

// DenyText is what to do about it, in front of commands.
const DenyText = "change the statement with the effect Deny, which is in one of the policies, the permissions " +
	"boundary, or a policy of the organization or VPC endpoint; an additional policy cannot allow the action. To " +
	"list the policies:"
