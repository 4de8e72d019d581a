package account

import (
	"net/url"
	"testing"
)

func TestTrustsEC2(t *testing.T) {
	a := &Account{partition: "aws"}
	for document, want := range map[string]bool{
		a.trustPolicy(): true,
		`{"Statement": {"Effect": "Allow", "Principal": {"Service": ["ecs.amazonaws.com", "ec2.amazonaws.com"]},
			"Action": ["sts:TagSession", "sts:AssumeRole"]}}`: true,
		`{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
			"Action": "sts:AssumeRole"}]}`: false,
		`{"Statement": [{"Effect": "Deny", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "*"}]}`: false,
		`{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}`:                false,
	} {
		if got, err := a.trustsEC2(url.QueryEscape(document)); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", document, got, err, want)
		}
	}
}
