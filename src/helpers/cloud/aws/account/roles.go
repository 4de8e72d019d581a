package account

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
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

// trustsEC2 reports whether a trust policy, URL-encoded as IAM returns it, lets EC2 assume its role, and the statements
// on which that depends if it is not known what they mean for EC2.
func (a *Account) trustsEC2(encoded string) (trusted bool, unclear string, err error) {
	text, err := url.QueryUnescape(encoded)
	if err != nil {
		return false, "", fmt.Errorf("the trust policy cannot be read: %w", err)
	}
	var document struct{ Statement oneOrMore[trustStatement] }
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return false, "", fmt.Errorf("the trust policy cannot be read: %w", err)
	}
	names := []string{"ec2.amazonaws.com", arn.EC2Principal(a.partition)} // China knows two
	always := false
	var allows, denies []string // statements that may apply
	for _, s := range document.Statement {
		var principal struct{ Service, AWS oneOrMore[string] }
		_ = json.Unmarshal(s.Principal, &principal)
		isEC2 := slices.ContainsFunc(principal.Service, func(name string) bool { return slices.Contains(names, name) })
		everyone := string(s.Principal) == `"*"` || slices.Contains(principal.AWS, "*")
		mayApply := (s.NotAction != nil || slices.ContainsFunc(s.Action, isAssumeRole)) &&
			(s.NotPrincipal != nil || isEC2 || everyone && s.Effect == "Deny")
		content, _ := json.Marshal(s)
		switch applies := s.NotAction == nil && s.NotPrincipal == nil && len(s.Condition) == 0; {
		case !mayApply || s.Condition.neverHolds(a.id):
		case applies && s.Effect == "Deny":
			return false, "", nil
		case applies:
			always = true
		case s.Effect == "Deny":
			denies = append(denies, string(content))
		default:
			allows = append(allows, string(content))
		}
	}
	switch {
	case always:
		return true, strings.Join(denies, ", "), nil
	case len(allows) > 0:
		return true, strings.Join(append(allows, denies...), ", "), nil
	}
	return false, "", nil
}

type trustStatement struct {
	Sid          string            `json:",omitempty"`
	Effect       string            `json:",omitempty"`
	Principal    json.RawMessage   `json:",omitempty"` // "*", or a map
	NotPrincipal json.RawMessage   `json:",omitempty"`
	Action       oneOrMore[string] `json:",omitempty"`
	NotAction    oneOrMore[string] `json:",omitempty"`
	Condition    trustCondition    `json:",omitempty"`
}

// trustCondition are values by operator and key.
type trustCondition map[string]map[string]json.RawMessage

// neverHolds reports whether EC2 cannot meet the condition when it assumes a role of an account for an instance: it is
// a service, has no external id, and aws:SourceAccount is that account. Whether it meets others is not known here.
func (c trustCondition) neverHolds(account string) bool {
	for _, operator := range []string{"StringEquals", "StringLike", "Bool"} {
		for key, text := range c[operator] {
			var values oneOrMore[string]
			isAccount := func(value string) bool {
				matches, err := path.Match(value, account)
				return matches && err == nil
			}
			switch strings.ToLower(key) {
			case "sts:externalid":
				return true
			case "aws:principalisawsservice":
				if !strings.Contains(string(text), "true") {
					return true
				}
			case "aws:sourceaccount":
				if json.Unmarshal(text, &values) == nil && !slices.ContainsFunc(values, isAccount) {
					return true
				}
			}
		}
	}
	return false
}

// isAssumeRole reports whether an action of a policy, which may be a pattern, is sts:AssumeRole.
func isAssumeRole(pattern string) bool {
	matches, err := path.Match(strings.ToLower(pattern), "sts:assumerole")
	return matches && err == nil
}

func (a *Account) roleSteps(ctx context.Context) ([]step, error) {
	var steps []step
	for _, role := range []preflight.Role{preflight.Control, preflight.Worker} {
		document, err := a.policy(role)
		if err != nil {
			return nil, err
		}
		name := a.roles()[role]
		steps = append(steps, a.unlessShared(
			name, a.roleStep(name), a.policyStep(role, document), a.profileStep(name), a.memberStep(name),
		)...)
		_, _ = a.findRole(ctx, name) // for its ARN; each step says if it cannot be read
	}
	return steps, nil
}

// unlessShared has Delete leave a role, its instance profile and what is in them if another cluster has tagged one of
// the two: its VMs use both.
func (a *Account) unlessShared(name string, steps ...step) []step {
	for i, s := range steps {
		steps[i].keeps = func(ctx context.Context) (string, error) {
			var tags []types.Tag
			role, err := a.findRole(ctx, name)
			if err != nil {
				return "", err
			}
			if role != nil {
				tags = role.Tags
			}
			profile, err := a.findProfile(ctx, name)
			if err != nil {
				return "", err
			}
			if profile != nil {
				tags = slices.Concat(tags, profile.Tags)
			}
			if other := a.otherCluster(iamMap(tags)); other != "" {
				return "the role or its instance profile has the tag of the cluster " + other, nil
			}
			return s.keeps(ctx)
		}
	}
	return steps
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

// findDirector notes the ARN of the Director's role or user, and if there is none. Whoever may not read it needs the
// ARN only if it has a path.
func (a *Account) findDirector(ctx context.Context) {
	kind, name, _ := strings.Cut(a.Director, "/")
	var exists bool
	var err error
	if kind == kindRole {
		var role *types.Role
		role, err = a.findRole(ctx, name)
		exists = role != nil
	} else {
		var out *iam.GetUserOutput
		out, err = a.iam.GetUser(ctx, &iam.GetUserInput{UserName: &name})
		if exists, err = found(err); exists {
			a.arns[a.Director] = aws.ToString(out.User.Arn)
		}
	}
	if !exists && err == nil {
		a.missDirector(kind, name)
	}
}

func (a *Account) missDirector(kind, name string) {
	a.directorMissing = fmt.Errorf("IAM has no %s %s: correct director_iam in %s", kind, name, a.File)
}

// keepsOf is why Delete leaves a role and its policy.
func (a *Account) keepsOf(role string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		existing, err := a.findRole(ctx, role)
		if existing == nil || a.createdBy(iamMap(existing.Tags)) {
			return "", err
		}
		return "prepare did not create the role", nil
	}
}

// arnOf is the ARN of a user/NAME or role/NAME. Roles that do not exist yet get no path.
func (a *Account) arnOf(principal string) string {
	return cmp.Or(a.arns[principal], "arn:"+a.partition+":iam::"+a.id+":"+principal)
}

func (a *Account) roleStep(name string) step {
	return step{
		what: "IAM role " + name,
		exists: func(ctx context.Context) (bool, error) {
			role, err := a.findRole(ctx, name)
			if role == nil || err != nil {
				return false, err
			}
			trusted, _, err := a.trustsEC2(aws.ToString(role.AssumeRolePolicyDocument))
			return trusted, err
		},
		additional: func(ctx context.Context) *preflight.Finding { return a.unclearTrust(ctx, name) },
		present: func(ctx context.Context) (bool, error) {
			role, err := a.findRole(ctx, name)
			return role != nil, err
		},
		mayCreate: func(ctx context.Context) error {
			role, err := a.findRole(ctx, name)
			if role == nil || err != nil {
				return err
			}
			usable := a.mayUse(kindRole, name, iamMap(role.Tags))
			if foreign := new(adoptable); usable != nil && !errors.As(usable, &foreign) {
				return usable
			}
			trusted, _, err := a.trustsEC2(aws.ToString(role.AssumeRolePolicyDocument))
			if err != nil {
				return err
			}
			if trusted {
				return usable
			}
			reason := fmt.Sprintf(
				"its trust policy does not let EC2 assume it, so VMs get no credentials: add this statement to it, "+
					"and remove one that denies it: "+
					`{"Effect": "Allow", "Principal": {"Service": "%s"}, "Action": "sts:AssumeRole"}`,
				arn.EC2Principal(a.partition),
			)
			if usable != nil { // not an adoptable: --adopt alone would not do
				reason = usable.Error() + "; and " + reason
			}
			return errors.New(reason)
		},
		create: func(ctx context.Context) error {
			_, err := a.iam.CreateRole(ctx, &iam.CreateRoleInput{
				RoleName: &name, AssumeRolePolicyDocument: aws.String(arn.EC2Trust(a.partition)),
				Tags: listOf(a.newTags(), iamTag),
			})
			return err
		},
		keeps: a.keepsOf(name),
		remove: func(ctx context.Context) error {
			_, err := a.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &name})
			return err
		},
	}
}

// unclearTrust is the warning that it is not known whether EC2 may assume a role.
func (a *Account) unclearTrust(ctx context.Context, name string) *preflight.Finding {
	role, err := a.findRole(ctx, name)
	if role == nil || err != nil {
		return nil
	}
	_, unclear, err := a.trustsEC2(aws.ToString(role.AssumeRolePolicyDocument))
	if unclear == "" || err != nil {
		return nil
	}
	return &preflight.Finding{
		Resource: "IAM role " + name, Wanted: "a trust policy that lets EC2 assume it",
		Found: "one with statements that cannot be checked here: " + unclear, Advisory: true,
		Why: "VMs get no credentials if EC2 may not assume the role by them",
		Fix: []preflight.Fix{{
			Text: "Nothing, if they let EC2 assume it, as a condition on aws:SourceAccount with the number of this " +
				"account does; otherwise change them.",
		}},
	}
}

// policyStep is the policy of a role. A role without it that may do the same by others, such as managed policies where
// an inline one is too long, needs none.
func (a *Account) policyStep(role preflight.Role, document string) step {
	name := a.roles()[role]
	policy := a.rolePolicy(name, iampolicy.InlineName, document)
	s := policy.step(fmt.Sprintf("inline policy %s of the role %s, or others", iampolicy.InlineName, name))
	s.mayCreate = guard{a, policy}.mayReplace
	s.keeps = a.keepsOf(name)
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
	s.additional = func(ctx context.Context) *preflight.Finding {
		more, err := policy.additional(ctx)
		if len(more) == 0 || err != nil {
			return nil
		}
		return &preflight.Finding{
			Resource: s.what, Wanted: "the generated policy", Found: "it, and " + strings.Join(more, "; "),
			Advisory: true, Why: "prepare stops, because the role would lose it; no deploy fails by it",
			Fix: []preflight.Fix{{
				Text: "Repeat the options that the policy was generated with, or move what is additional to a policy " +
					"of another name, or remove it: prepare --replace does.",
			}},
		}
	}
	s.create = func(ctx context.Context) error {
		err := policy.put(ctx)
		if errorCode(err) == limitExceeded {
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
		remove: p.remove,
	}
}

// additional is what the policy has besides all statements that it must have; nil if it lacks one.
func (p inlinePolicy) additional(ctx context.Context) ([]string, error) {
	text, exists, err := p.get(ctx)
	if !exists {
		return nil, err
	}
	type statements struct{ Statement oneOrMore[map[string]any] }
	var current, wanted statements
	if err := errors.Join(
		json.Unmarshal([]byte(text), &current), json.Unmarshal([]byte(p.document), &wanted),
	); err != nil {
		return nil, err
	}
	for _, w := range wanted.Statement {
		same := func(c map[string]any) bool { return reflect.DeepEqual(listed(c), listed(w)) }
		if !slices.ContainsFunc(current.Statement, same) {
			return nil, nil
		}
	}
	has, err := parsePolicy(text)
	if err != nil {
		return nil, err
	}
	must, err := parsePolicy(p.document)
	return has.lost(must), err
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

// findProfile returns an instance profile, nil if it does not exist.
func (a *Account) findProfile(ctx context.Context, name string) (*types.InstanceProfile, error) {
	out, err := a.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	if exists, err := found(err); !exists {
		return nil, err
	}
	return out.InstanceProfile, nil
}

func (a *Account) profileStep(name string) step {
	return step{
		what: "instance profile " + name,
		exists: func(ctx context.Context) (bool, error) {
			profile, err := a.findProfile(ctx, name)
			return profile != nil, err
		},
		mayCreate: func(ctx context.Context) error {
			profile, err := a.findProfile(ctx, name)
			if profile == nil || err != nil {
				return err
			}
			return a.mayUse(kindProfile, name, iamMap(profile.Tags))
		},
		create: func(ctx context.Context) error {
			_, err := a.iam.CreateInstanceProfile(
				ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: &name, Tags: listOf(a.newTags(), iamTag)},
			)
			return err
		},
		keeps: func(ctx context.Context) (string, error) {
			profile, err := a.findProfile(ctx, name)
			switch {
			case profile == nil || err != nil:
				return "", err
			case !a.createdBy(iamMap(profile.Tags)):
				return notCreated, nil
			case otherRole(profile, name) != "":
				return "it has the role " + otherRole(profile, name), nil
			}
			return "", nil
		},
		remove: func(ctx context.Context) error {
			_, err := a.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: &name})
			return err
		},
	}
}

// memberStep puts a role into the instance profile of its name. Delete takes it out if it deletes one of them.
func (a *Account) memberStep(name string) step {
	return step{
		what: fmt.Sprintf("role %s in its instance profile", name),
		exists: func(ctx context.Context) (bool, error) {
			profile, err := a.findProfile(ctx, name)
			return profile != nil && hasRole(profile, name), err
		},
		mayCreate: func(ctx context.Context) error {
			profile, err := a.findProfile(ctx, name)
			if profile == nil || otherRole(profile, name) == "" || err != nil {
				return err
			}
			return fmt.Errorf(
				"the instance profile has the role %s; it must have the role of its name, with which VMs join: use "+
					"another profile (%s), or exchange the role", otherRole(profile, name), a.File,
			)
		},
		create: func(ctx context.Context) error {
			_, err := a.iam.AddRoleToInstanceProfile(
				ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &name},
			)
			return err
		},
		keeps: func(ctx context.Context) (string, error) {
			profile, err := a.findProfile(ctx, name)
			if profile == nil || a.createdBy(iamMap(profile.Tags)) {
				return "", err
			}
			if role, err := a.findRole(ctx, name); role == nil || a.createdBy(iamMap(role.Tags)) {
				return "", err
			}
			return "prepare created neither of them", nil
		},
		remove: func(ctx context.Context) error {
			_, err := a.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{
				InstanceProfileName: &name, RoleName: &name,
			})
			return err
		},
	}
}

// otherRole is a role in an instance profile that has another name, empty if there is none.
func otherRole(profile *types.InstanceProfile, name string) string {
	for _, role := range profile.Roles {
		if other := aws.ToString(role.RoleName); other != name {
			return other
		}
	}
	return ""
}

func hasRole(profile *types.InstanceProfile, name string) bool {
	return slices.ContainsFunc(profile.Roles, func(r types.Role) bool { return aws.ToString(r.RoleName) == name })
}

// passRoleMark is the Sid of the statement that Prepare writes, and nobody else: inline policies have no tags.
const passRoleMark = "CloudPreflightPassRole"

// othersIn are what an inline policy has besides the statement of Prepare, empty if there is no such policy.
func (p inlinePolicy) othersIn(ctx context.Context) ([]string, error) {
	text, exists, err := p.get(ctx)
	if !exists {
		return nil, err
	}
	document, err := parsePolicy(text)
	if err != nil {
		return nil, err
	}
	isOwn := func(s policyStatement) bool { return s.Sid == passRoleMark }
	document.Statement = slices.DeleteFunc(document.Statement, isOwn)
	return document.lost(policyDocument{}), nil
}

// passRolePolicy lets the Director pass the roles with two ARNs to VMs.
func passRolePolicy(sid, control, worker string) string {
	return `{"Version": "2012-10-17", "Statement": [{"Sid": "` + sid + `", "Effect": "Allow", ` +
		`"Action": "iam:PassRole", "Resource": ["` + control + `", "` + worker + `"]}]}`
}

func (a *Account) passRoleName() string { return "kubernetes-pass-role-" + a.Cluster }

// directorSteps let the Director pass the roles to VMs, which iam_instance_profile requires (docs/iam-policy.json of
// cloudfoundry/bosh-aws-cpi-release, RequiredIfUsingIAMInstanceProfileCloudProperty).
func (a *Account) directorSteps() []step {
	kind, owner, _ := strings.Cut(a.Director, "/")
	name := a.passRoleName()
	document := passRolePolicy(passRoleMark, a.arnOf("role/"+a.ControlProfile), a.arnOf("role/"+a.WorkerProfile))
	policy := a.userPolicy(owner, name, document)
	if kind == "role" {
		policy = a.rolePolicy(owner, name, document)
	}
	read := policy.encoded
	policy.encoded = func(ctx context.Context) (*string, error) {
		text, err := read(ctx)
		if errorCode(err) == "NoSuchEntity" && strings.Contains(err.Error(), "The "+kind+" with name") {
			a.missDirector(kind, owner) // found out without GetUser; without the policy IAM says: The user policy
		}
		return text, err
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
	s.mayCreate = func(ctx context.Context) error {
		exists, err := s.exists(ctx)
		if a.directorMissing != nil {
			return a.directorMissing
		}
		if exists || err != nil || a.Replace {
			return err
		}
		others, err := policy.othersIn(ctx)
		if len(others) == 0 || err != nil {
			return err
		}
		return fmt.Errorf(
			"it would lose %s, which prepare did not write: rename that policy, or replace it with --replace",
			strings.Join(others, "; "),
		)
	}
	s.keeps = func(ctx context.Context) (string, error) {
		others, err := policy.othersIn(ctx)
		if len(others) == 0 || err != nil {
			return "", err
		}
		return "prepare did not write " + strings.Join(others, "; "), nil
	}
	s.create = func(ctx context.Context) error {
		err := policy.put(ctx)
		if errorCode(err) == limitExceeded {
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
		lines = append(lines, fixes.AttachPolicy(a.facts(), kind, owner, policy, document)...)
	}
	return strings.Join(lines, "\n")
}
