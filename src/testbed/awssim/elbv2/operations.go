package elbv2

import (
	"kubernetes-release/testbed/awssim/api"
)

// Operations is the table of the v2 API's actions.
var Operations = map[string]api.Operation{
	"AddListenerCertificates":        api.Changing(addListenerCertificates),
	"AddTags":                        api.Changing(v2AddTags),
	"CreateListener":                 api.Changing(v2CreateListener),
	"CreateLoadBalancer":             api.Changing(v2Create),
	"CreateRule":                     api.Changing(createRule),
	"CreateTargetGroup":              api.Changing(v2CreateTargetGroup),
	"DeleteListener":                 api.Changing(v2DeleteListener),
	"DeleteLoadBalancer":             api.Changing(v2Delete),
	"DeleteRule":                     api.Changing(deleteRule),
	"DeleteTargetGroup":              api.Changing(v2DeleteTargetGroup),
	"DeregisterTargets":              api.Changing(v2Deregister),
	"DescribeListenerAttributes":     api.Reading(describeListenerAttributes),
	"DescribeListenerCertificates":   api.Reading(describeListenerCertificates),
	"DescribeListeners":              api.Reading(v2DescribeListeners),
	"DescribeLoadBalancerAttributes": api.Reading(v2DescribeAttributes),
	"DescribeLoadBalancers":          api.Reading(v2Describe),
	"DescribeRules":                  api.Reading(describeRules),
	"DescribeTags":                   api.Reading(v2DescribeTags),
	"DescribeTargetGroupAttributes":  api.Reading(v2DescribeGroupAttributes),
	"DescribeTargetGroups":           api.Reading(v2DescribeTargetGroups),
	"DescribeTargetHealth":           api.Reading(v2DescribeTargetHealth),
	"DescribeTrustStores":            api.Reading(describeTrustStores),
	"ModifyIpPools":                  api.Changing(modifyIPPools),
	"ModifyListener":                 api.Changing(v2ModifyListener),
	"ModifyListenerAttributes":       api.Changing(modifyListenerAttributes),
	"ModifyLoadBalancerAttributes":   api.Changing(v2ModifyAttributes),
	"ModifyRule":                     api.Changing(modifyRule),
	"ModifyTargetGroup":              api.Changing(v2ModifyTargetGroup),
	"ModifyTargetGroupAttributes":    api.Changing(v2ModifyGroupAttributes),
	"RegisterTargets":                api.Changing(v2Register),
	"RemoveListenerCertificates":     api.Changing(removeListenerCertificates),
	"RemoveTags":                     api.Changing(v2RemoveTags),
	"SetIpAddressType":               api.Changing(setIPAddressType),
	"SetRulePriorities":              api.Changing(setRulePriorities),
	"SetSecurityGroups":              api.Changing(v2SetSecurityGroups),
	"SetSubnets":                     api.Changing(v2SetSubnets),
}
