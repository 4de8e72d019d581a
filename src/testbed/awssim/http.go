package awssim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/wire"
)

func requestID() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// minLatency is the minimum time of an API call. AWS is never faster, and aws-sdk-go-v2 relies on it: it closes the
// request's body when the response starts, and if its transport has not read the end of the body by then, it closes the
// connection ("use of closed network connection").
const minLatency = 5 * time.Millisecond

// asAPIError converts errors of the layers below to the service's error responses.
func (s *Simulator) asAPIError(svc *api.Service, err error) *wire.Error {
	var known *wire.Error
	var unknown *wire.UnknownParameterError
	var invalid *wire.InvalidParameterError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &unknown):
		s.log.Warn("unknown parameter", "service", svc.Name, "parameter", unknown.Name)
		if svc.Style == wire.EC2 {
			return &wire.Error{Code: "UnknownParameter", Message: unknown.Error()}
		}
		return &wire.Error{Code: "ValidationError", Message: unknown.Error()}
	case errors.As(err, &invalid):
		if svc.Style == wire.EC2 {
			return &wire.Error{Code: "InvalidParameterValue", Message: invalid.Error()}
		}
		return &wire.Error{Code: "ValidationError", Message: invalid.Error()}
	}
	s.log.Error("internal error", "service", svc.Name, "error", err)
	return &wire.Error{
		Code:    "InternalError",
		Message: "An internal error has occurred",
		Status:  http.StatusInternalServerError,
	}
}

// host is the address of a request's source.
func host(remote string) string {
	h, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return strings.TrimPrefix(h, "::ffff:")
}

// wait sleeps until d has passed or the request is canceled.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
