package iamapi

import (
	"net/url"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/wire"
)

// Operations is the table of IAM's actions.
var Operations = map[string]api.Operation{
	// It changes nothing, but unlike Describe actions it has resource-level permissions, on the role.
	"SimulatePrincipalPolicy": {Run: func(c *api.Call, form url.Values) (any, error) {
		var in simulatePrincipalPolicyInput
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		return simulatePrincipalPolicy(c, in)
	}},
	"AddRoleToInstanceProfile":           api.Changing(addRoleToInstanceProfile),
	"AttachRolePolicy":                   api.Changing(attachRolePolicy),
	"CreateInstanceProfile":              api.Changing(createInstanceProfile),
	"AddClientIDToOpenIDConnectProvider": api.Changing(addClientID),
	"CreateOpenIDConnectProvider":        api.Changing(createProvider),
	"DeleteOpenIDConnectProvider":        api.Changing(deleteProvider),
	"GetOpenIDConnectProvider":           api.Changing(getProvider),
	"CreatePolicy":                       api.Changing(createPolicy),
	"CreatePolicyVersion":                api.Changing(createPolicyVersion),
	"CreateRole":                         api.Changing(createRole),
	"DeleteInstanceProfile":              api.Changing(deleteInstanceProfile),
	"DeleteRole":                         api.Changing(deleteRole),
	"DeleteRolePolicy":                   api.Changing(deleteRolePolicy),
	"DeleteUserPolicy":                   api.Changing(deleteUserPolicy),
	"GetInstanceProfile":                 api.Changing(getInstanceProfile),
	"GetRolePolicy":                      api.Changing(getRolePolicy),
	"GetUser":                            api.Changing(getUser),
	"GetUserPolicy":                      api.Changing(getUserPolicy),
	"ListAttachedRolePolicies":           listing(listAttachedRolePolicies),
	"ListRolePolicies":                   listing(listRolePolicies),
	"ListRoles":                          api.Changing(listRoles),
	"PutRolePolicy":                      api.Changing(putRolePolicy),
	"PutUserPolicy":                      api.Changing(putUserPolicy),
	"RemoveRoleFromInstanceProfile":      api.Changing(removeRoleFromInstanceProfile),
	"UpdateAssumeRolePolicy":             api.Changing(updateAssumeRolePolicy),
	"GetRole": {Run: func(c *api.Call, form url.Values) (any, error) {
		var in struct{ RoleName string }
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		return getRole(c, in.RoleName)
	}},
}
