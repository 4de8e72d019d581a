package iam

import (
	"encoding/json"
	"strings"
	"testing"
)

func parse(t *testing.T, doc string) Policy {
	t.Helper()
	var p Policy
	if err := json.Unmarshal([]byte(doc), &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

const testGroup = "arn:aws:ec2:us-east-1:123456789012:security-group/sg-1"

var ownedTag = map[string][]string{"aws:ResourceTag/kubernetes.io/cluster/a": {"owned"}}

func iops(n string) map[string][]string { return map[string][]string{"ec2:VolumeIops": {n}} }

// evaluations are policies, requests and what IAM decides.
var evaluations = []struct {
	name, policy string
	request      Request
	want         Decision
}{
	{
		"no statement matches", `{"Statement":{"Effect":"Allow","Action":"ec2:DescribeVpcs","Resource":"*"}}`,
		Request{Action: "ec2:DescribeSubnets", Resource: "*"}, ImplicitDeny,
	},
	{
		"single statement, single strings",
		`{"Statement":{"Effect":"Allow","Action":"ec2:DescribeVpcs","Resource":"*"}}`,
		Request{Action: "ec2:DescribeVpcs", Resource: "*"}, Allowed,
	},
	{
		"action wildcard without case",
		`{"Statement":[{"Effect":"Allow","Action":["ec2:describe*"],"Resource":["*"]}]}`,
		Request{Action: "ec2:DescribeVpcs", Resource: "*"}, Allowed,
	},
	{
		"deny wins over allow",
		`{"Statement":[{"Effect":"Allow","Action":"*","Resource":"*"},{"Effect":"Deny","Action":"ec2:Delete*",` +
			`"Resource":"*"}]}`,
		Request{Action: "ec2:DeleteTags", Resource: testGroup}, ExplicitDeny,
	},
	{
		"NotAction", `{"Statement":{"Effect":"Allow","NotAction":"iam:*","Resource":"*"}}`,
		Request{Action: "ec2:DeleteTags", Resource: testGroup}, Allowed,
	},
	{
		"resource wildcard",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:security-group/*"}}`,
		Request{Action: "ec2:DeleteTags", Resource: testGroup}, Allowed,
	},
	{
		"other resource", `{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:vpc/*"}}`,
		Request{Action: "ec2:DeleteTags", Resource: testGroup}, ImplicitDeny,
	},
	{
		"a describe needs Resource *",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:vpc/*"}}`,
		Request{Action: "ec2:DescribeVpcs", Resource: "*"}, ImplicitDeny,
	},
	{
		"resource tag fits",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"StringEquals":{"aws:ResourceTag/kubernetes.io/cluster/a":"owned"}}}}`,
		Request{Action: "ec2:DeleteSecurityGroup", Resource: testGroup, Context: ownedTag}, Allowed,
	},
	{
		"number equals",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"NumericEquals":{"ec2:VolumeIops":"3000"}}}}`,
		Request{Action: "ec2:CreateVolume", Resource: "*", Context: iops("3000")}, Allowed,
	},
	{
		"number differs",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"NumericEquals":{"ec2:VolumeIops":"3000"}}}}`,
		Request{Action: "ec2:CreateVolume", Resource: "*", Context: iops("30000")}, ImplicitDeny,
	},
	{
		"number missing",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"NumericEquals":{"ec2:VolumeIops":"3000"}}}}`,
		Request{Action: "ec2:CreateVolume", Resource: "*"}, ImplicitDeny,
	},
	{
		"numbers are compared as numbers",
		`{"Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*"},{"Effect":"Deny","Action":"ec2:*",` +
			`"Resource":"*","Condition":{"NumericGreaterThan":{"ec2:VolumeIops":"16000"}}}]}`,
		Request{Action: "ec2:CreateVolume", Resource: "*", Context: iops("3000")}, Allowed,
	},
	{
		"resource tag missing",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"StringEquals":{"aws:ResourceTag/kubernetes.io/cluster/a":"owned"}}}}`,
		Request{Action: "ec2:DeleteSecurityGroup", Resource: testGroup}, ImplicitDeny,
	},
	{
		"every key must hold",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"StringEquals":{"aws:ResourceTag/kubernetes.io/cluster/a":"owned",` +
			`"ec2:CreateAction":["X"]}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup, Context: ownedTag}, ImplicitDeny,
	},
	{
		"StringLike",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"StringLike":{"aws:ResourceTag/kubernetes.io/cluster/a":"own*"}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup, Context: ownedTag}, Allowed,
	},
	{
		"keys have no case",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"StringEquals":{"AWS:resourcetag/kubernetes.io/cluster/a":"owned"}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup, Context: ownedTag}, Allowed,
	},
	{
		"missing key satisfies StringNotEquals",
		`{"Statement":{"Effect":"Deny","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"StringNotEquals":{"aws:RequestTag/a":"b"}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup}, ExplicitDeny,
	},
	{
		"IfExists",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"StringEqualsIfExists":{"aws:RequestTag/a":"b"}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup}, Allowed,
	},
	{
		"Null true on missing key",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"Null":{"aws:RequestTag/a":"true"}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup}, Allowed,
	},
	{
		"Null false on missing key",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"Null":{"aws:RequestTag/a":"false"}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup}, ImplicitDeny,
	},
	{
		"ForAnyValue",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"ForAnyValue:StringLike":{"aws:TagKeys":["x","kube*"]}}}}`,
		Request{
			Action: "ec2:CreateTags", Resource: testGroup,
			Context: map[string][]string{"aws:TagKeys": {"a", "kubernetes"}},
		},
		Allowed,
	},
	{
		"ForAllValues fails on one",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"ForAllValues:StringLike":{"aws:TagKeys":["kube*"]}}}}`,
		Request{
			Action: "ec2:CreateTags", Resource: testGroup,
			Context: map[string][]string{"aws:TagKeys": {"a", "kubernetes"}},
		},
		ImplicitDeny,
	},
	{
		"ForAllValues holds on none",
		`{"Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*",` +
			`"Condition":{"ForAllValues:StringLike":{"aws:TagKeys":["kube*"]}}}}`,
		Request{Action: "ec2:CreateTags", Resource: testGroup}, Allowed,
	},
}

func TestEvaluate(t *testing.T) {
	for _, tc := range evaluations {
		t.Run(tc.name, func(t *testing.T) {
			if got := Evaluate([]Policy{parse(t, tc.policy)}, tc.request); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestRefusedDocuments(t *testing.T) {
	for doc, want := range map[string]string{
		`{"Statement":[]}`: "no Statement",
		`{"Statement":{"Effect":"allow","Action":"*","Resource":"*"}}`:                 "must be Allow or Deny",
		`{"Statement":{"Effect":"Allow","Resource":"*"}}`:                              "Action and NotAction",
		`{"Statement":{"Effect":"Allow","Action":"DescribeVpcs","Resource":"*"}}`:      "must be SERVICE:ACTION",
		`{"Statement":{"Effect":"Allow","Action":"*","Resource":"*","Principal":"*"}}`: "Principal",
		`{"Statement":{"Effect":"Allow","Action":"*","Resource":"*",` +
			`"Condition":{"DateLessThan":{"a":"b"}}}}`: "not supported",
		`{"Statement":{"Effect":"Allow","Action":"*","Resource":"*",` +
			`"Condition":{"ForMost:StringLike":{"a":"b"}}}}`: "ForAnyValue",
	} {
		var p Policy
		err := json.Unmarshal([]byte(doc), &p)
		if err == nil {
			err = p.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error about %q", doc, err, want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"*", "", true}, {"a*", "a", true}, {"a*c", "abbc", true}, {"a*c", "abbcd", false},
		{"a?c", "abc", true}, {"?", "", false}, {"*b*", "abc", true}, {"a", "A", false},
	} {
		if got := Match(tc.pattern, tc.s); got != tc.want {
			t.Errorf("Match(%q, %q) = %v", tc.pattern, tc.s, got)
		}
	}
}
