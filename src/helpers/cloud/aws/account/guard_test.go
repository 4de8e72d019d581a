package account

import (
	"slices"
	"testing"
)

func TestLost(t *testing.T) {
	const wanted = `{"Statement": [
		{"Sid": "Read", "Action": ["ec2:DescribeInstances"], "Resource": ["*"]},
		{"Sid": "Key", "Action": ["kms:Encrypt"], "Resource": ["arn:aws:kms:us-east-1:1:key/a"]}]}`
	for name, c := range map[string]struct {
		current string
		want    []string
	}{
		"the same":    {wanted, nil},
		"less":        {`{"Statement": {"Sid": "Read", "Action": "ec2:DescribeVpcs", "Resource": "*"}}`, nil},
		"nothing":     {`{}`, nil},
		"a statement": {`{"Statement": {"Sid": "Mine", "Action": "*"}}`, []string{"the statement Mine"}},
		"storage of before": {
			`{"Statement": [
				{"Sid": "Ec2ChangeTagged3", "Action": "ec2:CreateVolume", "Resource": "arn:aws:ec2:*::snapshot/*"},
				{"Sid": "Ec2ChangeOwn2", "Action": ["ec2:DeleteSnapshot", "ec2:DeleteVolume"],
				 "Resource": ["arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:*::snapshot/*"]}]}`, nil,
		},
		"security groups": {
			`{"Statement": {"Sid": "Ec2ChangeTagged", "Resource": "arn:aws:ec2:*:*:security-group/*"}}`,
			[]string{"the statement Ec2ChangeTagged"},
		},
		"merged with another of its name": {`{"Statement": {"Sid": "Read2", "Resource": ["*"]}}`, nil},
		"another of its name for something else": {
			`{"Statement": {"Sid": "Key2", "Resource": ["arn:aws:kms:us-east-1:1:key/*"]}}`,
			[]string{"the statement Key2"},
		},
		"no Sid": {
			`{"Statement": [{"Action": ["s3:GetObject", "s3:PutObject"], "Resource": "*"}]}`,
			[]string{"a statement without a Sid, of s3:GetObject, s3:PutObject"},
		},
		"a key": {
			`{"Statement": [{"Sid": "Key", "Resource":
				["arn:aws:kms:us-east-1:1:key/b", "arn:aws:kms:us-east-1:1:key/a"]}]}`,
			[]string{"arn:aws:kms:us-east-1:1:key/b in the statement Key"},
		},
		"a pattern": {`{"Statement": [{"Sid": "Read", "Resource": "arn:aws:ec2:*:*:vpc/vpc-1"}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			current, err := parsePolicy(c.current)
			if err != nil {
				t.Fatal(err)
			}
			other, err := parsePolicy(wanted)
			if err != nil {
				t.Fatal(err)
			}
			if got := current.lost(other); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestOtherCluster(t *testing.T) {
	const policy = `{"Statement": [{"Condition": {"Null": {"aws:ResourceTag/kubernetes.io/cluster/prod": "false"}}}]}`
	d, err := parsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.otherCluster("prod"); got != "" {
		t.Errorf("got %q, want none", got)
	}
	if got := d.otherCluster("staging"); got != "prod" {
		t.Errorf("got %q, want prod", got)
	}
}
