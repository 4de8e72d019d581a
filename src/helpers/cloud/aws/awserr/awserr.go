// Package awserr says what kind of problem an error of an AWS call is, and describes it to operators.
package awserr

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// WrongAnswer is the error of an answer that is not what the API returns for the call.
type WrongAnswer string

func (w WrongAnswer) Error() string { return string(w) }

// CutOff is the error of an answer whose body ended early.
type CutOff struct {
	Status int // of HTTP
	Err    error
}

func (c *CutOff) Error() string {
	return fmt.Sprintf("an answer that was cut off (HTTP %d): %v", c.Status, c.Err)
}

func (c *CutOff) Unwrap() error { return c.Err }

// Class is the kind of problem behind an error of a call.
type Class int

// The kinds of problems.
const (
	None              Class = iota
	Denied                  // the role lacks a permission
	Credentials             // the credentials are not accepted at all
	Clock                   // the signature's time is off
	Throttled               // too many calls for now
	UnknownID               // EC2 does not find an id (yet)
	Server                  // AWS failed
	Malformed               // an answer that is not the API's
	Unreachable             // no answer
	classDryRunPassed       // a DryRun call that would have been allowed
	Other                   // the request itself is refused
)

var classByCode = map[string]Class{
	"DryRunOperation":             classDryRunPassed,
	"UnauthorizedOperation":       Denied,
	"AccessDenied":                Denied,
	"AccessDeniedException":       Denied,
	"AuthFailure":                 Credentials,
	"InvalidClientTokenId":        Credentials,
	"UnrecognizedClientException": Credentials,
	"ExpiredToken":                Credentials,
	"ExpiredTokenException":       Credentials,
	"SignatureDoesNotMatch":       Credentials,
	"InvalidSignatureException":   Credentials,
	"MissingAuthenticationToken":  Credentials,
	"RequestExpired":              Clock,
	"RequestTimeTooSkewed":        Clock,
	"RequestLimitExceeded":        Throttled,
	"Throttling":                  Throttled,
	"ThrottlingException":         Throttled,
	"ThrottledException":          Throttled,
	"EC2ThrottledException":       Throttled,
	"RequestThrottled":            Throttled,
	"RequestThrottledException":   Throttled,
	"TooManyRequestsException":    Throttled,
	"SlowDown":                    Throttled,
	"InternalError":               Server,
	"InternalFailure":             Server,
	"Unavailable":                 Server,
	"ServiceUnavailable":          Server,
}

// WouldBeAllowed reports whether the answer to a DryRun call means that the role has the permission: EC2 says so, or it
// objects to something that it only checks after the permission.
func WouldBeAllowed(err error) bool {
	var apiError smithy.APIError
	if !errors.As(err, &apiError) {
		return false
	}
	switch code := apiError.ErrorCode(); code {
	case "DryRunOperation", "DependencyViolation", "InvalidGroup.Duplicate", "RouteAlreadyExists":
		return true
	default:
		return strings.HasPrefix(code, "InvalidPermission.")
	}
}

var notFoundCode = regexp.MustCompile(`^Invalid.*\.(NotFound|Malformed)$|NotFound$`)

// Classify returns the kind of problem behind an error.
func Classify(err error) Class {
	if err == nil {
		return None
	}
	var response *smithyhttp.ResponseError
	status := 0
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	var apiError smithy.APIError
	if errors.As(err, &apiError) {
		class, known := classByCode[apiError.ErrorCode()]
		switch {
		case known:
			return class
		case notFoundCode.MatchString(apiError.ErrorCode()):
			return UnknownID
		case status == http.StatusTooManyRequests:
			return Throttled
		case status >= 500:
			return Server
		}
		return Other
	}
	var decoding *smithy.DeserializationError
	var wrong WrongAnswer
	var cutOff *CutOff
	switch {
	case status >= 500, errors.As(err, &cutOff):
		return Server
	case errors.As(err, &decoding), errors.As(err, &wrong), status != 0:
		return Malformed
	}
	return Unreachable
}

// Describe shortens an error to one sentence without the text that the SDK wraps around it.
func Describe(err error) string {
	var apiError smithy.APIError
	if errors.As(err, &apiError) && apiError.ErrorCode() != "UnknownError" {
		return fmt.Sprintf("%s: %s", apiError.ErrorCode(), ClipLong(apiError.ErrorMessage()))
	}
	var wrong WrongAnswer
	if errors.As(err, &wrong) {
		return wrong.Error()
	}
	var cutOff *CutOff
	if errors.As(err, &cutOff) {
		return ClipLong(cutOff.Error())
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() != 0 { // without a status there was no answer
		var decoding *smithy.DeserializationError
		if errors.As(err, &decoding) && response.HTTPStatusCode() < 300 {
			return fmt.Sprintf(
				"an answer that cannot be decoded (HTTP %d): %s", response.HTTPStatusCode(),
				ClipLong(RootMessage(decoding)),
			)
		}
		return fmt.Sprintf("HTTP %d %s", response.HTTPStatusCode(), http.StatusText(response.HTTPStatusCode()))
	}
	return ClipLong(RootMessage(err))
}

// ClipLong shortens a message from outside.
func ClipLong(s string) string {
	const limit = 400
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}

// RootMessage returns the text of the innermost error that still says what was attempted.
func RootMessage(err error) string {
	var urlError *url.Error
	if errors.As(err, &urlError) {
		return urlError.Err.Error()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		opError := &net.OpError{}
		if errors.As(inner, &opError) {
			return inner.Error()
		}
		err = inner
	}
}

var deniedPattern = regexp.MustCompile(`not authorized to perform: ([a-z0-9-]+:[A-Za-z0-9]+)`)

// DeniedAction returns the action that AWS's message names, because a call may need several permissions, or else the
// given one.
func DeniedAction(err error, otherwise string) string {
	var apiError smithy.APIError
	if errors.As(err, &apiError) {
		if match := deniedPattern.FindStringSubmatch(apiError.ErrorMessage()); match != nil {
			return match[1]
		}
	}
	return otherwise
}

// EC2Action is the action of the call of EC2 that an error is of, for facts that several calls find, or else the given
// one.
func EC2Action(err error, otherwise string) string {
	if operation, ok := errors.AsType[*smithy.OperationError](err); ok {
		return "ec2:" + operation.OperationName
	}
	return otherwise
}

// NotAsked is the error of a source that was not asked because another one failed; its text says which.
type NotAsked string

func (n NotAsked) Error() string { return string(n) }

// IsNotAsked reports whether a source was not asked.
func IsNotAsked(err error) bool {
	var n NotAsked
	return errors.As(err, &n)
}

// EmptyAnswer is the error of an answer that lacks what was requested by id.
type EmptyAnswer string

func (e EmptyAnswer) Error() string { return string(e) }

// IsEmpty reports whether an answer lacks what was requested.
func IsEmpty(err error) bool {
	var e EmptyAnswer
	return errors.As(err, &e)
}

// Code is the code of an answer of AWS, or "".
func Code(err error) string {
	var apiError smithy.APIError
	if errors.As(err, &apiError) {
		return apiError.ErrorCode()
	}
	return ""
}

// IsNoRole reports whether IAM does not find the role asked about.
func IsNoRole(err error) bool {
	var apiError smithy.APIError
	return errors.As(err, &apiError) && apiError.ErrorCode() == "NoSuchEntity"
}

// IsNoKey reports whether KMS does not find the key asked about.
func IsNoKey(err error) bool {
	var apiError smithy.APIError
	return errors.As(err, &apiError) && apiError.ErrorCode() == "NotFoundException"
}

// Clip shortens a value from outside for use in a message.
func Clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
