package api

import (
	"errors"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/wire"
)

// Principal is the identity that makes a request.
type Principal struct {
	ARN, UserID string
	Role        string // name
	Session     string // of an assumed role, if it is not an instance's
	User        string // name, if it is no role
	Instance    string // for roles of instances
	Policies    []iam.Policy
}

// Reasons why authentication fails; each service has its own error responses for them.
var (
	ErrNoAuthentication = errors.New("request is not signed")
	ErrUnknownKey       = errors.New("the access key or its session token is not valid")
	ErrExpired          = errors.New("the session token has expired")
	ErrSignature        = errors.New("the signature does not match")
	ErrPast             = errors.New("the request's date is too far in the past")
	ErrFuture           = errors.New("the request's date is too far in the future")
)

// Nothing is the response of actions without content.
type Nothing struct{}

// IsCode reports whether an error is an API error with the code.
func IsCode(err error, code string) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Code == code
}
