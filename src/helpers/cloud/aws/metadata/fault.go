package metadata

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	smithyhttp "github.com/aws/smithy-go/transport/http"

	"kubernetes-release/cloud/aws/awserr"
)

// Fault is a wrong or missing answer of instance metadata, described for operators.
type Fault struct {
	Kind  FaultKind
	Found string
}

type FaultKind int

func (f *Fault) Error() string { return f.Found }

// fault interprets an error of the SDK.
func (c *Client) fault(path string, err error) *Fault {
	if strings.Contains(err.Error(), "access disabled to EC2 IMDS") {
		return &Fault{
			SwitchedOff,
			"AWS_EC2_METADATA_DISABLED=true is set in the environment of this process",
		}
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		status := response.HTTPStatusCode()
		kind := Server
		switch status {
		case http.StatusNotFound:
			kind = NotFound
		case http.StatusForbidden:
			kind = Disabled
		}
		return &Fault{kind, fmt.Sprintf("%s answered HTTP %d %s", path, status, http.StatusText(status))}
	}
	status, tokenErr := c.Replies.token()
	switch {
	case status == http.StatusForbidden:
		return &Fault{
			Disabled,
			"the request for a session token was answered HTTP 403 Forbidden: instance metadata is disabled for this " +
				"instance",
		}
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return &Fault{
			NoTokens,
			fmt.Sprintf(
				"the request for a session token was answered HTTP %d: the endpoint does not support IMDSv2", status,
			),
		}
	case status >= 400:
		return &Fault{
			Server,
			fmt.Sprintf("the request for a session token was answered HTTP %d %s", status, http.StatusText(status)),
		}
	}
	if tokenErr != nil {
		err = tokenErr
	}
	reason := awserr.RootMessage(err)
	if strings.Contains(reason, "awaiting response headers") || strings.Contains(reason, "EOF") {
		return &Fault{NoReply, "the connection is accepted, but there is no reply: " + reason}
	}
	return &Fault{Unreachable, "no answer: " + reason}
}

// Temporary reports whether a fault may disappear by itself.
func (f *Fault) Temporary() bool {
	return f.Kind == Unreachable || f.Kind == NoReply || f.Kind == Server
}
