package account

import (
	"net/url"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/arn"
)

func TestTrustsEC2(t *testing.T) {
	a := &Account{partition: "aws"}
	with := func(statement string) string {
		return strings.Replace(arn.EC2Trust(a.partition), "}]}", "}, "+statement+"]}", 1)
	}
	for document, want := range map[string]bool{
		arn.EC2Trust(a.partition): true,
		`{"Statement": {"Effect": "Allow", "Principal": {"Service": ["ecs.amazonaws.com", "ec2.amazonaws.com"]},
			"Action": ["sts:TagSession", "sts:AssumeRole"]}}`: true,
		`{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
			"Action": "sts:AssumeRole"}]}`: false,
		`{"Statement": [{"Effect": "Deny", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "*"}]}`: false,
		`{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}`:                false,
		with(`{"Effect": "Deny", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:*"}`):        false,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:Assume*"}`):                               false,
		with(`{"Effect": "Deny", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}`):                   false,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:SetSourceIdentity"}`):                     true,
		with(`{"Effect": "Deny", "Principal": {"Service": "ecs.amazonaws.com"}, "Action": "*"}`):            true,
		with(`{"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole",
			"Condition": {"Bool": {"aws:PrincipalIsAWSService": "false"}}}`): true,
		`{"Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole",
			"Condition": {"StringEquals": {"sts:ExternalId": "a"}}}}`: false,
	} {
		if got, err := a.trustsEC2(url.QueryEscape(document)); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", document, got, err, want)
		}
	}
}
