package aws

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

// errorClass is the kind of problem behind an error of a call.
type errorClass int

const (
	classNone         errorClass = iota
	classDenied                  // the role lacks a permission
	classCredentials             // the credentials are not accepted at all
	classClock                   // the signature's time is off
	classThrottled               // too many calls for now
	classUnknownID               // EC2 does not find an id (yet)
	classServer                  // AWS failed
	classMalformed               // an answer that is not the API's
	classUnreachable             // no answer
	classDryRunPassed            // a DryRun call that would have been allowed
	classOther                   // the request itself is refused
)

var classByCode = map[string]errorClass{
	"DryRunOperation":             classDryRunPassed,
	"UnauthorizedOperation":       classDenied,
	"AccessDenied":                classDenied,
	"AccessDeniedException":       classDenied,
	"AuthFailure":                 classCredentials,
	"InvalidClientTokenId":        classCredentials,
	"UnrecognizedClientException": classCredentials,
	"ExpiredToken":                classCredentials,
	"ExpiredTokenException":       classCredentials,
	"SignatureDoesNotMatch":       classCredentials,
	"InvalidSignatureException":   classCredentials,
	"MissingAuthenticationToken":  classCredentials,
	"RequestExpired":              classClock,
	"RequestTimeTooSkewed":        classClock,
	"RequestLimitExceeded":        classThrottled,
	"Throttling":                  classThrottled,
	"ThrottlingException":         classThrottled,
	"ThrottledException":          classThrottled,
	"EC2ThrottledException":       classThrottled,
	"RequestThrottled":            classThrottled,
	"RequestThrottledException":   classThrottled,
	"TooManyRequestsException":    classThrottled,
	"SlowDown":                    classThrottled,
	"InternalError":               classServer,
	"InternalFailure":             classServer,
	"Unavailable":                 classServer,
	"ServiceUnavailable":          classServer,
}

// wouldBeAllowed reports whether the answer to a DryRun call means that the role has the permission: EC2 says so, or it
// objects to something that it only checks after the permission.
func wouldBeAllowed(err error) bool {
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

// classify returns the kind of problem behind an error.
func classify(err error) errorClass {
	if err == nil {
		return classNone
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
			return classUnknownID
		case status == http.StatusTooManyRequests:
			return classThrottled
		case status >= 500:
			return classServer
		}
		return classOther
	}
	var decoding *smithy.DeserializationError
	var wrong wrongAnswer
	switch {
	case status >= 500:
		return classServer
	case errors.As(err, &decoding), errors.As(err, &wrong), status != 0:
		return classMalformed
	}
	return classUnreachable
}

// describe shortens an error to one sentence without the text that the SDK wraps around it.
func describe(err error) string {
	var apiError smithy.APIError
	if errors.As(err, &apiError) && apiError.ErrorCode() != "UnknownError" {
		return fmt.Sprintf("%s: %s", apiError.ErrorCode(), clipLong(apiError.ErrorMessage()))
	}
	var wrong wrongAnswer
	if errors.As(err, &wrong) {
		return wrong.Error()
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() != 0 { // without a status there was no answer
		var decoding *smithy.DeserializationError
		if errors.As(err, &decoding) && response.HTTPStatusCode() < 300 {
			return fmt.Sprintf(
				"an answer that cannot be decoded (HTTP %d): %s", response.HTTPStatusCode(),
				clipLong(rootMessage(decoding)),
			)
		}
		return fmt.Sprintf("HTTP %d %s", response.HTTPStatusCode(), http.StatusText(response.HTTPStatusCode()))
	}
	return clipLong(rootMessage(err))
}

func clipLong(s string) string {
	const limit = 400
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}

// rootMessage returns the text of the innermost error that still says what was attempted.
func rootMessage(err error) string {
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

// deniedAction returns the action that AWS's message names, because a call may need several permissions, or else the
// given one.
func deniedAction(err error, otherwise string) string {
	var apiError smithy.APIError
	if errors.As(err, &apiError) {
		if match := deniedPattern.FindStringSubmatch(apiError.ErrorMessage()); match != nil {
			return match[1]
		}
	}
	return otherwise
}

// notAsked is the error of a source that was not asked because another one failed; its text says which.
type notAsked string

func (n notAsked) Error() string { return string(n) }

func isNotAsked(err error) bool {
	var n notAsked
	return errors.As(err, &n)
}

// emptyAnswer is the error of an answer that lacks what was requested by id.
type emptyAnswer string

func (e emptyAnswer) Error() string { return string(e) }

func isEmpty(err error) bool {
	var e emptyAnswer
	return errors.As(err, &e)
}

// isNoRole reports whether IAM does not find the role asked about.
func isNoRole(err error) bool {
	var apiError smithy.APIError
	return errors.As(err, &apiError) && apiError.ErrorCode() == "NoSuchEntity"
}
