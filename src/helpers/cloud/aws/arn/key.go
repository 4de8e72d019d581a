package arn

import (
	"fmt"
	"regexp"

	"kubernetes-release/cloud/aws/awserr"
)

// Key is the ARN of a key of KMS. Aliases and ids are none: IAM policies accept neither.
type Key struct{ text, Region, ID string }

var keyForm = regexp.MustCompile(`^arn:[a-z-]+:kms:([a-z0-9-]+):[0-9]{12}:key/([A-Za-z0-9-]+)$`)

// ParseKey reads the ARN of a key.
func ParseKey(text string) (Key, error) {
	match := keyForm.FindStringSubmatch(text)
	if match == nil {
		return Key{}, fmt.Errorf(
			"%q is not the ARN of a KMS key, such as arn:aws:kms:us-east-1:123456789012:key/ID", awserr.Clip(text),
		)
	}
	return Key{text: text, Region: match[1], ID: match[2]}, nil
}

func (k Key) String() string { return k.text }
