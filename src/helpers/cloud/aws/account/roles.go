package account

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// policyName is the name of the roles' inline policy, which the fixes of the preflight replace.
const policyName = "kubernetes"

// roles are the IAM role of each kind of machine. A role has the name of its instance profile, because a VM joins with
// it.
func (a *Account) roles() map[preflight.Role]string {
	return map[preflight.Role]string{preflight.Control: a.ControlProfile, preflight.Worker: a.WorkerProfile}
}

// policy is the generated policy of a kind of machine.
func (a *Account) policy(role preflight.Role) (string, error) {
	policy, err := cloudaws.NewPolicy(a.policyOptions(role))
	if err != nil {
		return "", err
	}
	text, err := policy.JSON()
	return string(text), err
}

func (a *Account) policyOptions(role preflight.Role) cloudaws.PolicyOptions {
	options := a.Policy
	options.Role, options.Cluster, options.Partition = role, a.Cluster, a.partition
	options.RoleName, options.VPC = a.roles()[role], a.vpc
	if role != preflight.Control {
		options.Storage, options.Keys = false, nil
	}
	return options
}

// trustPolicy lets EC2 give a role to instances.
func (a *Account) trustPolicy() string {
	return `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "` +
		arn.EC2Principal(a.partition) + `"}, "Action": "sts:AssumeRole"}]}`
}

// trustsEC2 reports whether a trust policy, URL-encoded as IAM returns it, lets EC2 assume its role.
func (a *Account) trustsEC2(encoded string) (bool, error) {
	text, err := url.QueryUnescape(encoded)
	if err != nil {
		return false, fmt.Errorf("the trust policy cannot be read: %w", err)
	}
	var document struct {
		Statement oneOrMore[struct {
			Effect    string
			Action    oneOrMore[string]
			Principal json.RawMessage // "*", or a map
		}]
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return false, fmt.Errorf("the trust policy cannot be read: %w", err)
	}
	names := []string{"ec2.amazonaws.com", arn.EC2Principal(a.partition)} // China knows two
	for _, s := range document.Statement {
		var principal struct{ Service oneOrMore[string] }
		if json.Unmarshal(s.Principal, &principal) == nil && s.Effect == "Allow" &&
			slices.ContainsFunc(principal.Service, func(name string) bool { return slices.Contains(names, name) }) &&
			slices.ContainsFunc(s.Action, func(action string) bool {
				return slices.Contains([]string{"sts:AssumeRole", "sts:*", "*"}, action)
			}) {
			return true, nil
		}
	}
	return false, nil
}

func (a *Account) roleSteps(ctx context.Context) ([]step, error) {
	var steps []step
	for _, role := range []preflight.Role{preflight.Control, preflight.Worker} {
		document, err := a.policy(role)
		if err != nil {
			return nil, err
		}
		name := a.roles()[role]
		own := []step{a.roleStep(name), a.policyStep(role, document), a.profileStep(name), a.memberStep(name)}
		existing, err := a.findRole(ctx, name)
		if err != nil {
			return nil, err
		}
		if existing != nil && a.isForeign(existing) {
			keep(own)
		}
		steps = append(steps, own...)
	}
	return steps, nil
}

// findRole returns a role, nil if it does not exist, and notes its ARN.
func (a *Account) findRole(ctx context.Context, name string) (*types.Role, error) {
	out, err := a.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if exists, err := found(err); !exists {
		return nil, err
	}
	a.arns["role/"+name] = aws.ToString(out.Role.Arn)
	return out.Role, nil
}

// findDirector notes the ARN of the Director's role or user. Whoever may not read it needs the ARN only if it has a
// path.
func (a *Account) findDirector(ctx context.Context) {
	kind, name, _ := strings.Cut(a.Director, "/")
	if kind == "role" {
		_, _ = a.findRole(ctx, name)
		return
	}
	if out, err := a.iam.GetUser(ctx, &iam.GetUserInput{UserName: &name}); err == nil {
		a.arns[a.Director] = aws.ToString(out.User.Arn)
	}
}

// isForeign reports whether Prepare has not created the role for this cluster.
func (a *Account) isForeign(role *types.Role) bool {
	own := func(tag types.Tag) bool { return aws.ToString(tag.Key) == a.tagKey() }
	return !slices.ContainsFunc(role.Tags, own)
}

// arnOf is the ARN of a user/NAME or role/NAME. Roles that do not exist yet get no path.
func (a *Account) arnOf(principal string) string {
	return cmp.Or(a.arns[principal], "arn:"+a.partition+":iam::"+a.id+":"+principal)
}

func (a *Account) roleStep(name string) step {
	trusted := func(ctx context.Context) (exists, trusted bool, err error) {
		role, err := a.findRole(ctx, name)
		if role == nil || err != nil {
			return false, false, err
		}
		trusted, err = a.trustsEC2(aws.ToString(role.AssumeRolePolicyDocument))
		return true, trusted, err
	}
	return step{
		what: "IAM role " + name,
		exists: func(ctx context.Context) (bool, error) {
			_, trusted, err := trusted(ctx)
			return trusted, err
		},
		present: func(ctx context.Context) (bool, error) {
			role, err := a.findRole(ctx, name)
			return role != nil, err
		},
		mayCreate: func(ctx context.Context) error {
			exists, trusted, err := trusted(ctx)
			if !exists || trusted || err != nil {
				return err
			}
			return fmt.Errorf(
				"its trust policy does not let EC2 assume it, so VMs get no credentials: add this statement to it: "+
					`{"Effect": "Allow", "Principal": {"Service": "%s"}, "Action": "sts:AssumeRole"}`,
				arn.EC2Principal(a.partition),
			)
		},
		create: func(ctx context.Context) error {
			_, err := a.iam.CreateRole(ctx, &iam.CreateRoleInput{
				RoleName: &name, AssumeRolePolicyDocument: aws.String(a.trustPolicy()),
				Tags: []types.Tag{{Key: aws.String(a.tagKey()), Value: aws.String(tagValue)}},
			})
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := a.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &name})
			return err
		},
	}
}

// policyStep is the policy of a role. A role without it that may do the same by others, such as managed policies where
// an inline one is too long, needs none.
func (a *Account) policyStep(role preflight.Role, document string) step {
	name := a.roles()[role]
	policy := a.rolePolicy(name, policyName, document)
	s := policy.step(fmt.Sprintf("inline policy %s of the role %s, or others", policyName, name))
	s.mayCreate = guard{a, policy}.mayReplace
	own := s.exists
	s.exists = func(ctx context.Context) (bool, error) {
		if exists, err := own(ctx); exists || err != nil {
			return exists, err
		}
		if present, err := s.present(ctx); present || err != nil {
			return false, err
		}
		findings, _, err := a.checkRole(ctx, role)
		return err == nil && len(findings) == 0, nil // who may not ask IAM gives the permission
	}
	s.create = func(ctx context.Context) error {
		err := policy.put(ctx)
		if errorCode(err) == "LimitExceeded" {
			return fmt.Errorf("%w\n%s", err, a.managedOfRole(role))
		}
		return err
	}
	return s
}

// managedOfRole says what to do if the inline policies of a role are too long together.
func (a *Account) managedOfRole(role preflight.Role) string {
	policy, err := cloudaws.NewPolicy(a.policyOptions(role))
	if err != nil {
		return err.Error()
	}
	var documents []string
	for _, part := range policy.Split(iampolicy.ManagedLimit) {
		documents = append(documents, part.Compact())
	}
	return a.managedInstead("role", a.roles()[role], a.roles()[role], documents...)
}

// inlinePolicy is a policy of a role or of a user.
type inlinePolicy struct {
	document    string // that it must have
	encoded     func(context.Context) (*string, error)
	put, remove func(context.Context) error
}

func (a *Account) rolePolicy(role, name, document string) inlinePolicy {
	return inlinePolicy{
		document: document,
		encoded: func(ctx context.Context) (*string, error) {
			out, err := a.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &name})
			if err != nil {
				return nil, err
			}
			return out.PolicyDocument, nil
		},
		put: func(ctx context.Context) error {
			_, err := a.iam.PutRolePolicy(
				ctx, &iam.PutRolePolicyInput{RoleName: &role, PolicyName: &name, PolicyDocument: &document},
			)
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := a.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: &name})
			return err
		},
	}
}

func (a *Account) userPolicy(user, name, document string) inlinePolicy {
	return inlinePolicy{
		document: document,
		encoded: func(ctx context.Context) (*string, error) {
			out, err := a.iam.GetUserPolicy(ctx, &iam.GetUserPolicyInput{UserName: &user, PolicyName: &name})
			if err != nil {
				return nil, err
			}
			return out.PolicyDocument, nil
		},
		put: func(ctx context.Context) error {
			_, err := a.iam.PutUserPolicy(
				ctx, &iam.PutUserPolicyInput{UserName: &user, PolicyName: &name, PolicyDocument: &document},
			)
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := a.iam.DeleteUserPolicy(ctx, &iam.DeleteUserPolicyInput{UserName: &user, PolicyName: &name})
			return err
		},
	}
}

// get returns the document of the policy, and whether there is one. IAM returns it URL-encoded (RFC 3986).
func (p inlinePolicy) get(ctx context.Context) (document string, exists bool, err error) {
	encoded, err := p.encoded(ctx)
	if exists, err := found(err); !exists {
		return "", false, err
	}
	if document, err = url.QueryUnescape(aws.ToString(encoded)); err != nil {
		return "", false, fmt.Errorf("the policy cannot be read: %w", err)
	}
	return document, true, nil
}

// step is a policy that exists if it says what it must. Deleting does not look at what it says.
func (p inlinePolicy) step(what string) step {
	return step{
		what: what,
		exists: func(ctx context.Context) (bool, error) {
			current, exists, err := p.get(ctx)
			return exists && samePolicy(current, p.document), err
		},
		present: func(ctx context.Context) (bool, error) {
			_, exists, err := p.get(ctx)
			return exists, err
		},
		create: p.put,
		remove: func(ctx context.Context) error {
			_, err := found(p.remove(ctx))
			return err
		},
	}
}

// samePolicy compares documents regardless of their layout.
func samePolicy(one, other string) bool {
	var first, second any
	return json.Unmarshal([]byte(one), &first) == nil && json.Unmarshal([]byte(other), &second) == nil &&
		reflect.DeepEqual(listed(first), listed(second))
}

// listed replaces lists of one string by the string: IAM accepts both, and may return either.
func listed(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = listed(v[key])
		}
	case []any:
		for i := range v {
			v[i] = listed(v[i])
		}
		if len(v) == 1 {
			if text, ok := v[0].(string); ok {
				return text
			}
		}
	}
	return value
}

func (a *Account) profileStep(name string) step {
	return step{
		what: "instance profile " + name,
		exists: func(ctx context.Context) (bool, error) {
			_, err := a.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
			return found(err)
		},
		create: func(ctx context.Context) error {
			_, err := a.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: &name})
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := a.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: &name})
			return err
		},
	}
}

// memberStep puts a role into the instance profile of its name.
func (a *Account) memberStep(name string) step {
	return step{
		what: fmt.Sprintf("role %s in its instance profile", name),
		exists: func(ctx context.Context) (bool, error) {
			out, err := a.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
			if exists, err := found(err); !exists {
				return false, err
			}
			for _, role := range out.InstanceProfile.Roles {
				if other := aws.ToString(role.RoleName); other != name {
					return false, fmt.Errorf(
						"the instance profile has the role %s; it must have the role of its name, with which VMs join",
						other,
					)
				}
			}
			return len(out.InstanceProfile.Roles) > 0, nil
		},
		create: func(ctx context.Context) error {
			_, err := a.iam.AddRoleToInstanceProfile(
				ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &name},
			)
			return err
		},
		remove: func(ctx context.Context) error {
			_, err := a.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{
				InstanceProfileName: &name, RoleName: &name,
			})
			return err
		},
	}
}

// directorSteps let the Director pass the roles to VMs, which iam_instance_profile requires (docs/iam-policy.json of
// cloudfoundry/bosh-aws-cpi-release, RequiredIfUsingIAMInstanceProfileCloudProperty).
func (a *Account) directorSteps() []step {
	kind, owner, _ := strings.Cut(a.Director, "/")
	name := "kubernetes-pass-role-" + a.Cluster
	document := `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "iam:PassRole", "Resource": ["` +
		a.arnOf("role/"+a.ControlProfile) + `", "` + a.arnOf("role/"+a.WorkerProfile) + `"]}]}`
	policy := a.userPolicy(owner, name, document)
	if kind == "role" {
		policy = a.rolePolicy(owner, name, document)
	}
	s := policy.step(
		fmt.Sprintf("the Director may pass both roles: inline policy %s of the %s %s, or others", name, kind, owner),
	)
	own := s.exists
	s.exists = func(ctx context.Context) (bool, error) {
		if exists, err := own(ctx); exists || err != nil {
			return exists, err
		}
		outcome, err := a.checkPassRole(ctx)
		return err == nil && len(outcome.Findings) == 0, nil // who may not ask IAM gives the permission
	}
	s.create = func(ctx context.Context) error {
		err := policy.put(ctx)
		if errorCode(err) == "LimitExceeded" {
			return fmt.Errorf("%w\n%s", err, a.managedInstead(kind, owner, name, document))
		}
		return err
	}
	return []step{s}
}

// managedInstead says what to do if the inline policies of the Director, or of a role, are too long together: IAM
// allows 2,048 characters to a user, and 10,240 to a role.
func (a *Account) managedInstead(kind, owner, name string, documents ...string) string {
	lines := []string{
		"Its inline policies would be too long together. Create managed policies, then prepare the account again:",
	}
	for i, document := range documents {
		name := name
		if len(documents) > 1 {
			name = fmt.Sprintf("%s-%d", name, i+1)
		}
		policy := "arn:" + a.partition + ":iam::" + a.id + ":policy/" + name
		lines = append(
			lines,
			fixes.Line("aws", "iam", "create-policy", "--policy-name", name, "--policy-document", document),
			fixes.Line("aws", "iam", "attach-"+kind+"-policy", "--"+kind+"-name", owner, "--policy-arn", policy),
		)
	}
	return strings.Join(lines, "\n")
}
