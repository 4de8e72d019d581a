// Package apiclient makes the few requests to the API server that kube-launcher and cloud-preflight need. It does
// without client-go's clientset, with which each of these programs would be 20 MB larger and take three times as long
// to start.
package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxBody limits what is read of a response, in bytes; a Node lists all its images.
const maxBody = 8 << 20

// Client sends requests to one server.
type Client struct {
	// Server is the scheme and the host of the API server, such as https://api.example:6443.
	Server string
	// HTTP authenticates to the server.
	HTTP *http.Client

	credentials Credentials
}

// StatusError is a response with another status than 2xx.
type StatusError struct {
	// StatusCode and Status are for example 403 and "403 Forbidden".
	StatusCode int
	Status     string
	// Body is the beginning of the response.
	Body string
}

func (e *StatusError) Error() string {
	return e.Status + ": " + strings.Join(strings.Fields(e.Body), " ")
}

// Get sends a GET request for a path, which can have a query, and returns the response's body. The error is a
// *StatusError if the status is not 2xx.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(
		ctx, method, strings.TrimSuffix(c.Server, "/")+path, bytes.NewReader(body),
	)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Accept", "application/json")
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, c.credentials.explain(
			&StatusError{StatusCode: response.StatusCode, Status: response.Status, Body: excerpt(content)},
		)
	}
	return content, nil
}

// page is how many objects one request lists, so that the response is smaller than maxBody.
const page = 250

// List returns the objects at a path, such as /api/v1/services. Errors are those of Get.
func (c *Client) List(ctx context.Context, path string) ([]json.RawMessage, error) {
	var items []json.RawMessage
	for next := ""; ; {
		body, err := c.Get(ctx, fmt.Sprintf("%s?limit=%d&continue=%s", path, page, url.QueryEscape(next)))
		if err != nil {
			return nil, err
		}
		var list struct {
			Kind     string
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		if err := json.Unmarshal(body, &list); err != nil || !strings.HasSuffix(list.Kind, "List") {
			return nil, fmt.Errorf("the response is not a list: %s", excerpt(body))
		}
		items = append(items, list.Items...)
		if next = list.Metadata.Continue; next == "" {
			return items, nil
		}
	}
}

// excerpt shortens a response for a message.
func excerpt(body []byte) string {
	const limit = 300
	text := strings.ToValidUTF8(string(body[:min(len(body), limit)]), "")
	if len(body) > limit {
		text += "…"
	}
	return text
}

// ErrNoNode means that there is no Node with the requested name.
var ErrNoNode = errors.New("the Node does not exist")

// NodeProviderID returns the provider ID of a Node: the cloud's ID of the VM that registered it, or "" if the Node has
// none yet. The error is ErrNoNode if the Node does not exist, and a *StatusError if the server refuses the request.
func (c *Client) NodeProviderID(ctx context.Context, name string) (string, error) {
	body, err := c.Get(ctx, "/api/v1/nodes/"+url.PathEscape(name))
	var status *StatusError
	if errors.As(err, &status) && status.StatusCode == http.StatusNotFound {
		return "", ErrNoNode
	}
	if err != nil {
		return "", err
	}
	var node struct {
		Kind string
		Spec struct{ ProviderID string }
	}
	if err := json.Unmarshal(body, &node); err != nil || node.Kind != "Node" {
		return "", fmt.Errorf("the response is not a Node: %s", excerpt(body))
	}
	return node.Spec.ProviderID, nil
}

// Access is one request to the API as authorizers see it.
type Access struct {
	Verb     string `json:"verb"`
	Group    string `json:"group"`
	Resource string `json:"resource"`
}

// String is for example "create certificatesigningrequests.certificates.k8s.io".
func (a Access) String() string {
	if a.Group == "" {
		return a.Verb + " " + a.Resource
	}
	return a.Verb + " " + a.Resource + "." + a.Group
}

// CheckAccess returns nil if the client may do what access says, else why it may not (SelfSubjectAccessReview).
func (c *Client) CheckAccess(ctx context.Context, access Access) error {
	const apiVersion, kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	request, err := json.Marshal(
		map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": map[string]any{"resourceAttributes": access}},
	)
	if err != nil {
		return err
	}
	response, err := c.do(ctx, http.MethodPost, "/apis/"+apiVersion+"/selfsubjectaccessreviews", request)
	if err != nil {
		return err
	}
	var review struct {
		Kind   string
		Status struct {
			Allowed                 bool
			Reason, EvaluationError string
		}
	}
	if err := json.Unmarshal(response, &review); err != nil || review.Kind != kind {
		return fmt.Errorf("the response is not a %s: %s", kind, excerpt(response))
	}
	if review.Status.Allowed {
		return nil
	}
	reason := "no permission (yet) to " + access.String()
	for _, detail := range []string{review.Status.Reason, review.Status.EvaluationError} {
		if detail != "" {
			reason += ": " + detail
		}
	}
	return errors.New(reason)
}
