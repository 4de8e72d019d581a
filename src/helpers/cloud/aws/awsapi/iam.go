package awsapi

import (
	"context"
	"maps"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/internal/poll"
	"kubernetes-release/preflight"
)

// policyTimeout limits one attempt to ask IAM. IAM has one endpoint per partition, which a private subnet may not
// reach; then a longer wait is not worthwhile.
const policyTimeout = 3 * time.Second

// policyAttempts is how often a question is asked that IAM answers with an error of its own.
const policyAttempts = 3

// RoleARN looks up the ARN of a role by its name; "" if that is not possible.
func (a *Client) RoleARN(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	out, err := a.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: awssdk.String(name)})
	if err != nil || out.Role == nil {
		return ""
	}
	return awssdk.ToString(out.Role.Arn)
}

// SimulatePolicy asks IAM what the policies of a role allow.
func (a *Client) SimulatePolicy(
	ctx context.Context,
	roleARN string,
	q iampolicy.Question,
) ([]iampolicy.Evaluation, error) {
	input := &iam.SimulatePrincipalPolicyInput{
		PolicySourceArn: awssdk.String(roleARN),
		ActionNames:     q.Actions,
		ResourceArns:    q.Resources,
		MaxItems:        awssdk.Int32(1000),
	}
	for _, key := range slices.Sorted(maps.Keys(q.Context)) {
		input.ContextEntries = append(input.ContextEntries, iamtypes.ContextEntry{
			ContextKeyName: awssdk.String(key), ContextKeyType: iamtypes.ContextKeyTypeEnum(q.TypeOf(key)),
			ContextKeyValues: []string{q.Context[key]},
		})
	}
	var evaluations []iampolicy.Evaluation
	for {
		out, err := a.askIAM(ctx, input)
		if err != nil {
			return nil, err
		}
		for _, r := range out.EvaluationResults {
			evaluations = append(evaluations, Evaluations(r)...)
		}
		if !out.IsTruncated || awssdk.ToString(out.Marker) == "" {
			return evaluations, nil
		}
		input.Marker = out.Marker
	}
}

// Evaluations returns the results for the single resources if IAM has them, or else the one for all. Missing
// condition keys stand in either.
func Evaluations(r iamtypes.EvaluationResult) []iampolicy.Evaluation {
	organization := r.OrganizationsDecisionDetail
	decided := func(
		resource *string,
		decision iamtypes.PolicyEvaluationDecisionType,
		missing []string,
	) iampolicy.Evaluation {
		return iampolicy.Evaluation{
			Action: awssdk.ToString(r.EvalActionName), Resource: awssdk.ToString(resource), Missing: missing,
			Allowed:      decision == iamtypes.PolicyEvaluationDecisionTypeAllowed,
			Explicit:     decision == iamtypes.PolicyEvaluationDecisionTypeExplicitDeny,
			Organization: organization != nil && !organization.AllowedByOrganizations,
		}
	}
	if len(r.ResourceSpecificResults) == 0 {
		return []iampolicy.Evaluation{decided(r.EvalResourceName, r.EvalDecision, r.MissingContextValues)}
	}
	var list []iampolicy.Evaluation
	for _, s := range r.ResourceSpecificResults {
		missing := slices.Concat(r.MissingContextValues, s.MissingContextValues)
		list = append(list, decided(s.EvalResourceName, s.EvalResourceDecision, missing))
	}
	return list
}

// askIAM sends one request. Throttled requests are retried as those to EC2, and those that IAM fails on a few times.
func (a *Client) askIAM(
	ctx context.Context, input *iam.SimulatePrincipalPolicyInput,
) (*iam.SimulatePrincipalPolicyOutput, error) {
	backoff := preflight.Backoff{First: 100 * time.Millisecond, Limit: time.Second}
	for attempt := 1; ; attempt++ {
		out, err := Call(ctx, a, iampolicy.SimulateAction, func(ctx context.Context) (
			*iam.SimulatePrincipalPolicyOutput,
			error,
		) {
			ctx, cancel := context.WithTimeout(ctx, policyTimeout)
			defer cancel()
			return a.iam.SimulatePrincipalPolicy(ctx, input)
		})
		if awserr.Classify(err) != awserr.Server || attempt == policyAttempts ||
			poll.Sleep(ctx, backoff.Next()) != nil {
			return out, err
		}
	}
}
