package metadata

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"kubernetes-release/cloud/aws/awserr"
)

// Credentials are temporary credentials of the instance's role. They are never written anywhere.
type Credentials struct {
	Role            string
	AccessKeyID     string
	SecretAccessKey string
	Token           string
	Expires         time.Time
}

// SDK converts the credentials to the SDK's type.
func (c Credentials) SDK() awssdk.Credentials {
	return awssdk.Credentials{
		AccessKeyID:     c.AccessKeyID,
		SecretAccessKey: c.SecretAccessKey,
		SessionToken:    c.Token,
		Source:          "instance metadata",
	}
}

// String hides the secrets from anything that formats the value.
func (c Credentials) String() string { return "credentials of role " + c.Role }

// GoString hides the secrets from %#v as well.
func (c Credentials) GoString() string { return c.String() }

// parseCredentials reads the credentials of a role, which must be usable at the given time. Errors never quote the
// document.
func parseCredentials(role, content string, now time.Time) (Credentials, error) {
	var document struct {
		Code, AccessKeyID, SecretAccessKey, Token string
		Expiration                                string
	}
	if err := json.Unmarshal([]byte(content), &document); err != nil {
		return Credentials{}, fmt.Errorf("the credentials of role %s are not JSON", role)
	}
	if !strings.EqualFold(document.Code, "Success") {
		return Credentials{}, fmt.Errorf(
			"the credentials of role %s have the code %q instead of Success", role, awserr.Clip(document.Code),
		)
	}
	if document.AccessKeyID == "" || document.SecretAccessKey == "" || document.Token == "" {
		return Credentials{}, fmt.Errorf("the credentials of role %s lack the key, the secret or the token", role)
	}
	expires, err := time.Parse(time.RFC3339, document.Expiration)
	if err != nil {
		return Credentials{}, fmt.Errorf(
			"the credentials of role %s expire at %q, which is not a time", role, awserr.Clip(document.Expiration),
		)
	}
	if !expires.After(now) {
		return Credentials{}, fmt.Errorf(
			"the credentials of role %s expired at %s; it is %s here", role, expires.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339),
		)
	}
	return Credentials{
		Role:            role,
		AccessKeyID:     document.AccessKeyID,
		SecretAccessKey: document.SecretAccessKey,
		Token:           document.Token,
		Expires:         expires,
	}, nil
}
