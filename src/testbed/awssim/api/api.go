// Package api is what the services of AWS share: their tables of actions, and the call that runs one, with its checks
// of permissions.
package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// Service is one API with its table of actions.
type Service struct {
	Name       string // in records, faults and throttling: ec2, elb, elbv2, iam, sts, ecr
	Signing    string // in credential scopes and IAM actions: ec2, elasticloadbalancing, iam, sts, ecr
	Version    string
	Namespace  string // of XML, or before the action in the header X-Amz-Target
	Style      wire.Style
	Operations map[string]Operation
	// AuthErrors are the responses to failed authentication.
	AuthErrors map[error]*wire.Error
	Denied     string // error code for requests that policies do not allow
	Throttled  *wire.Error
}

// QueryAuthErrors are the responses of services with the query protocol to failed authentication.
var QueryAuthErrors = map[error]*wire.Error{
	ErrNoAuthentication: {
		Code:    "MissingAuthenticationToken",
		Message: "Request is missing Authentication Token",
		Status:  403,
	},
	ErrUnknownKey: {
		Code:    "InvalidClientTokenId",
		Message: "The security token included in the request is invalid.",
		Status:  403,
	},
	ErrExpired: {
		Code:    "ExpiredToken",
		Message: "The security token included in the request is expired",
		Status:  403,
	},
	ErrSignature: {
		Code: "SignatureDoesNotMatch",
		Message: "The request signature we calculated does not match the signature you provided. Check your AWS " +
			"Secret Access Key and signing method. Consult the service documentation for details.",
		Status: 403,
	},
	ErrPast: {
		Code:    "SignatureDoesNotMatch",
		Message: "Signature expired: the date of the request lies more than 5 min. in the past.",
		Status:  403,
	},
	ErrFuture: {
		Code:    "SignatureDoesNotMatch",
		Message: "Signature not yet current: the date of the request lies more than 5 min. in the future.",
		Status:  403,
	},
}

// QueryThrottled is their response to a call that is throttled.
var QueryThrottled = &wire.Error{Code: "Throttling", Message: "Rate exceeded", Status: 400}

// Operation is an action of an API.
type Operation struct {
	Run func(*Call, url.Values) (any, error)
	// Changes is true if the action can change the world.
	Changes bool
	// Unsigned is true if the action takes requests without a signature.
	Unsigned bool
}

// Reading is an action that changes nothing. Like AWS's Describe actions it has no resource-level permissions.
func Reading[In, Out any](fn func(*Call, In) (Out, error)) Operation {
	return Operation{Run: func(c *Call, form url.Values) (any, error) {
		var in In
		if err := wire.Decode(form, c.Service.Style, &in); err != nil {
			return nil, err
		}
		if err := c.Allow(Target{ARN: "*"}); err != nil {
			return nil, err
		}
		if err := c.Begin(); err != nil {
			return nil, err
		}
		return fn(c, in)
	}}
}

// Changing is an action that changes the world. It must call Allow with its targets, validate the request, call Begin
// (EC2, for dry runs), and only then change anything.
func Changing[In, Out any](fn func(*Call, In) (Out, error)) Operation {
	return Operation{Changes: true, Run: func(c *Call, form url.Values) (any, error) {
		var in In
		if err := wire.Decode(form, c.Service.Style, &in); err != nil {
			return nil, err
		}
		out, err := fn(c, in)
		if err == nil && !c.permitted {
			panic(fmt.Sprintf("awssim: %s:%s changed the world without a permission check", c.Service.Name, c.Action))
		}
		return out, err
	}}
}

// Call is a request that runs an action. The simulator's lock is held while it runs.
type Call struct {
	*store.World
	Disks     store.Disks
	Engine    *forward.Engine
	Service   *Service
	Action    string
	Principal *Principal
	DryRun    bool
	Now       time.Time
	// Fetch reads a URL as anyone on the Internet could.
	Fetch     func(url string) ([]byte, error)
	permitted bool
	Required  []string // IAM actions whose permission was checked
}

// Target is a resource that an action uses, as IAM sees it.
type Target struct {
	ARN         string
	Tags        store.Tags // of the existing resource
	RequestTags store.Tags // that the request sets
	// Context holds additional condition keys.
	Context map[string][]string
}

// Allow evaluates the principal's policies for each target of the action.
func (c *Call) Allow(targets ...Target) error {
	return c.AllowAction(c.Service.Signing+":"+c.Action, targets...)
}

// AllowAction is Allow for an action that the request implies, such as ec2:CreateTags.
func (c *Call) AllowAction(action string, targets ...Target) error {
	c.permitted = true
	if !slices.Contains(c.Required, action) {
		c.Required = append(c.Required, action)
	}
	for _, t := range targets {
		decision := iam.Evaluate(
			c.Principal.Policies, iam.Request{Action: action, Resource: t.ARN, Context: c.conditionContext(t)},
		)
		if decision != iam.Allowed {
			return c.DeniedError(action, t.ARN, decision)
		}
	}
	return nil
}

func (c *Call) conditionContext(t Target) map[string][]string {
	keys := map[string][]string{
		"aws:RequestedRegion":  {c.Region},
		"aws:PrincipalArn":     {c.Principal.ARN},
		"aws:PrincipalAccount": {c.Account},
		"ec2:Region":           {c.Region},
	}
	for key, value := range t.Tags {
		keys["aws:ResourceTag/"+key] = []string{value}
		keys[c.Service.Signing+":ResourceTag/"+key] = []string{value}
	}
	for key, value := range t.RequestTags {
		keys["aws:RequestTag/"+key] = []string{value}
		keys["aws:TagKeys"] = append(keys["aws:TagKeys"], key)
	}
	for key, values := range t.Context {
		keys[key] = values
	}
	return keys
}

// DeniedError is the response to an action that the principal's policies do not allow.
func (c *Call) DeniedError(action, arn string, decision iam.Decision) error {
	on := ""
	if arn != "*" {
		on = " on resource: " + arn
	}
	because := fmt.Sprintf("because no identity-based policy allows the %s action", action)
	if decision == iam.ExplicitDeny {
		because = "with an explicit deny in an identity-based policy"
	}
	refused := &wire.Error{
		Code: c.Service.Denied, Status: http.StatusForbidden,
		Message: fmt.Sprintf("User: %s is not authorized to perform: %s%s %s", c.Principal.ARN, action, on, because),
	}
	switch c.Service.Style {
	case wire.EC2:
		refused.Message = "You are not authorized to perform this operation. " + refused.Message
	case wire.JSON:
		refused.Status = http.StatusBadRequest
	}
	return refused
}

// Begin separates checks from changes: a dry run returns here.
func (c *Call) Begin() error {
	if c.DryRun {
		return &wire.Error{
			Code:    "DryRunOperation",
			Message: "Request would have succeeded, but DryRun flag is set.",
			Status:  http.StatusPreconditionFailed,
		}
	}
	return nil
}

// Errorf returns an error response with status 400.
func Errorf(code, format string, args ...any) error {
	return &wire.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AllowFirst checks, for the first load balancer of an account, the permissions that creating the service-linked role
// takes. AWS names them one at a time in AccessDenied errors of CreateLoadBalancer (kubernetes/cloud-provider-aws pull
// request 59 and eksctl-io/eksctl issue 2570).
func (c *Call) AllowFirst() error {
	if !c.Settings.NoServiceLinkedRole {
		return nil
	}
	for _, action := range []string{"ec2:DescribeAccountAttributes", "ec2:DescribeInternetGateways"} {
		if err := c.AllowAction(action, Target{ARN: "*"}); err != nil {
			return err
		}
	}
	const service = "elasticloadbalancing.amazonaws.com"
	return c.AllowAction("iam:CreateServiceLinkedRole", Target{
		ARN:     c.ARN("iam", "", "role/aws-service-role/"+service+"/AWSServiceRoleForElasticLoadBalancing"),
		Context: map[string][]string{"iam:AWSServiceName": {service}},
	})
}
