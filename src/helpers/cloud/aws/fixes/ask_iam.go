package fixes

import (
	"maps"
	"slices"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// refused selects from IAM's answer what is not allowed on all resources.
const refused = "EvaluationResults[?EvalDecision!=`\"allowed\"` || ResourceSpecificResults[?EvalResourceDecision!=" +
	"`\"allowed\"`]].[EvalActionName,EvalDecision]"

// AskIAM has the commands by which somebody whom IAM answers asks what the preflight could not.
func AskIAM(f *facts.Facts, actions []string) preflight.Fix {
	lines := []string{
		Assign("role", Query(f, "Role.Arn", "iam", "get-role", "--role-name", f.RoleName())),
	}
	for _, q := range f.Questions {
		names := slices.DeleteFunc(
			slices.Clone(q.Actions), func(action string) bool { return !slices.Contains(actions, action) },
		)
		if len(names) == 0 {
			continue
		}
		words := append([]string{"--policy-source-arn", Expand("role"), "--action-names"}, names...)
		if len(q.Resources) > 0 {
			words = append(append(words, "--resource-arns"), q.Resources...)
		}
		if len(q.Context) > 0 {
			words = append(words, "--context-entries")
		}
		for _, key := range slices.Sorted(maps.Keys(q.Context)) {
			words = append(
				words, "ContextKeyName="+key+",ContextKeyType="+q.TypeOf(key)+",ContextKeyValues="+q.Context[key],
			)
		}
		lines = append(lines, Query(f, refused, "iam", "simulate-principal-policy", words...))
	}
	if len(lines) == 1 {
		return ByHand("or make sure that the role has these permissions, and turn the check off")
	}
	return ByCommand(
		"or ask IAM as an administrator, from where it answers: it prints what the role is not allowed, so if it "+
			"prints nothing, turn the check off",
		lines...)
}
