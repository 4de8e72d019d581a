package iamapi

import (
	"encoding/json"
	"slices"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// trust is the part of a trust policy that matters here.
type trust struct {
	Version   string
	Statement []trustStatement
}

type trustStatement struct {
	Effect    string
	Principal trustPrincipal
	Action    iam.Strings
	Condition iam.Conditions `json:",omitempty"`
}

type trustPrincipal struct {
	Service   iam.Strings `json:",omitempty"`
	Federated iam.Strings `json:",omitempty"`
}

const webIdentity = "sts:AssumeRoleWithWebIdentity"

// ec2Service is EC2's name in trust policies.
func ec2Service(w *store.World) string {
	if w.Partition == "aws-cn" {
		return "ec2.amazonaws.com.cn"
	}
	return "ec2.amazonaws.com"
}

func trustPolicy(w *store.World, role *store.Role) string {
	service := ec2Service(w)
	if role.Untrusted {
		service = "lambda.amazonaws.com"
	}
	t := trust{Version: "2012-10-17", Statement: []trustStatement{{
		Effect: "Allow", Principal: trustPrincipal{Service: iam.Strings{service}},
		Action: iam.Strings{"sts:AssumeRole"},
	}}}
	for _, f := range role.Federated {
		t.Statement = append(t.Statement, trustStatement{
			Effect: "Allow", Principal: trustPrincipal{Federated: f.Providers}, Action: iam.Strings{webIdentity},
			Condition: f.Condition,
		})
	}
	text, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	return string(text)
}

type updateAssumeRolePolicyInput struct{ RoleName, PolicyDocument string }

func updateAssumeRolePolicy(c *api.Call, in updateAssumeRolePolicyInput) (*api.Nothing, error) {
	role, err := role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	return &api.Nothing{}, setTrust(c.World, role, in.PolicyDocument)
}

// setTrust reads a trust policy: whether EC2 can assume the role, and the tokens that it trusts.
func setTrust(w *store.World, role *store.Role, document string) error {
	var t trust
	if err := json.Unmarshal([]byte(document), &t); err != nil || len(t.Statement) == 0 {
		return api.Errorf("MalformedPolicyDocument", "This policy contains invalid Json")
	}
	ec2 := false
	var federated []store.FederatedTrust
	for _, s := range t.Statement {
		condition := iam.Policy{Statement: iam.Statements{{
			Effect: s.Effect, Action: s.Action, Resource: iam.Strings{"*"}, Condition: s.Condition,
		}}}
		if err := condition.Validate(); err != nil {
			return api.Errorf("MalformedPolicyDocument", "%v", err)
		}
		ec2 = ec2 || s.Effect == "Allow" && slices.Contains(s.Action, "sts:AssumeRole") &&
			slices.Contains(s.Principal.Service, ec2Service(w))
		if s.Effect == "Allow" && slices.Contains(s.Action, webIdentity) && len(s.Principal.Federated) > 0 {
			federated = append(
				federated, store.FederatedTrust{Providers: s.Principal.Federated, Condition: s.Condition},
			)
		}
	}
	role.Untrusted, role.Federated = !ec2, federated
	return nil
}

// role finds a role and checks the permission. As on AWS, a principal without it does not learn whether there is one.
func role(c *api.Call, name string) (*store.Role, error) {
	role := store.Find(c.Roles, name)
	arn := c.ARN("iam", "", "role/"+name)
	if role != nil {
		arn = c.RoleARN(*role)
	}
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return nil, err
	}
	if role == nil {
		return nil, api.Errorf("NoSuchEntity", "The role with name %s cannot be found.", name)
	}
	return role, nil
}
