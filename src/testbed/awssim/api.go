package awssim

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/wire"
)

// service is one API with its table of actions.
type service struct {
	name       string // in records, faults and throttling: ec2, elb, elbv2, iam, sts, ecr
	signing    string // in credential scopes and IAM actions: ec2, elasticloadbalancing, iam, sts, ecr
	version    string
	namespace  string // of XML, or before the action in the header X-Amz-Target
	style      wire.Style
	operations map[string]operation
	// authErrors are the responses to failed authentication.
	authErrors map[error]*wire.Error
	denied     string // error code for requests that policies do not allow
	throttled  *wire.Error
}

var queryAuthErrors = map[error]*wire.Error{
	errNoAuthentication: {Code: "MissingAuthenticationToken", Message: "Request is missing Authentication Token", Status: 403},
	errUnknownKey:       {Code: "InvalidClientTokenId", Message: "The security token included in the request is invalid.", Status: 403},
	errExpired:          {Code: "ExpiredToken", Message: "The security token included in the request is expired", Status: 403},
	errSignature:        {Code: "SignatureDoesNotMatch", Message: "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.", Status: 403},
	errPast:             {Code: "SignatureDoesNotMatch", Message: "Signature expired: the date of the request lies more than 5 min. in the past.", Status: 403},
	errFuture:           {Code: "SignatureDoesNotMatch", Message: "Signature not yet current: the date of the request lies more than 5 min. in the future.", Status: 403},
}

var ec2AuthFailure = &wire.Error{Code: "AuthFailure", Message: "AWS was not able to validate the provided access credentials", Status: 401}

var queryThrottled = &wire.Error{Code: "Throttling", Message: "Rate exceeded", Status: 400}

var services = []*service{
	{
		name: "ec2", signing: "ec2", version: "2016-11-15", namespace: "http://ec2.amazonaws.com/doc/2016-11-15/", style: wire.EC2, operations: ec2Operations,
		authErrors: map[error]*wire.Error{
			errNoAuthentication: {Code: "MissingParameter", Message: "The request must contain the parameter AWSAccessKeyId", Status: 400},
			errUnknownKey:       ec2AuthFailure,
			errExpired:          {Code: "RequestExpired", Message: "Request has expired.", Status: 400},
			errSignature:        ec2AuthFailure,
			errPast:             {Code: "RequestExpired", Message: "Request has expired.", Status: 400},
			errFuture:           ec2AuthFailure,
		},
		denied:    "UnauthorizedOperation",
		throttled: &wire.Error{Code: "RequestLimitExceeded", Message: "Request limit exceeded.", Status: 503},
	},
	{
		name: "elb", signing: "elasticloadbalancing", version: "2012-06-01", namespace: "http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/", style: wire.Query, operations: elbOperations,
		authErrors: queryAuthErrors, denied: "AccessDenied", throttled: queryThrottled,
	},
	{
		name: "elbv2", signing: "elasticloadbalancing", version: "2015-12-01", namespace: "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/", style: wire.Query, operations: elbv2Operations,
		authErrors: queryAuthErrors, denied: "AccessDenied", throttled: queryThrottled,
	},
	{
		name: "iam", signing: "iam", version: "2010-05-08", namespace: "https://iam.amazonaws.com/doc/2010-05-08/", style: wire.Query, operations: iamOperations,
		authErrors: queryAuthErrors, denied: "AccessDenied", throttled: queryThrottled,
	},
	{
		name: "sts", signing: "sts", version: "2011-06-15", namespace: "https://sts.amazonaws.com/doc/2011-06-15/", style: wire.Query, operations: stsOperations,
		authErrors: queryAuthErrors, denied: "AccessDenied", throttled: queryThrottled,
	},
	{
		name: "ecr", signing: "ecr", namespace: "AmazonEC2ContainerRegistry_V20150921", style: wire.JSON, operations: ecrOperations,
		authErrors: ecrAuthErrors, denied: "AccessDeniedException", throttled: &wire.Error{Code: "ThrottlingException", Message: "Rate exceeded", Status: 400},
	},
}

// serviceFor routes by the credential scope, and by the API version where two services share a scope.
func serviceFor(signing, version string) *service {
	for _, s := range services {
		if s.signing == signing && (version == s.version || signing != "elasticloadbalancing") {
			return s
		}
	}
	return nil
}

// operation is an action of an API.
type operation struct {
	run func(*call, url.Values) (any, error)
	// changes is true if the action can change the world.
	changes bool
}

// reading is an action that changes nothing. Like AWS's Describe actions it has no resource-level permissions.
func reading[In, Out any](fn func(*call, In) (Out, error)) operation {
	return operation{run: func(c *call, form url.Values) (any, error) {
		var in In
		if err := wire.Decode(form, c.service.style, &in); err != nil {
			return nil, err
		}
		if err := c.allow(target{arn: "*"}); err != nil {
			return nil, err
		}
		if err := c.begin(); err != nil {
			return nil, err
		}
		return fn(c, in)
	}}
}

// changing is an action that changes the world. It must call allow with its targets, validate the request, call begin (EC2, for dry
// runs), and only then change anything.
func changing[In, Out any](fn func(*call, In) (Out, error)) operation {
	return operation{changes: true, run: func(c *call, form url.Values) (any, error) {
		var in In
		if err := wire.Decode(form, c.service.style, &in); err != nil {
			return nil, err
		}
		out, err := fn(c, in)
		if err == nil && !c.permitted {
			panic(fmt.Sprintf("awssim: %s:%s changed the world without a permission check", c.service.name, c.action))
		}
		return out, err
	}}
}

// call is a request that runs an action. The simulator's lock is held while it runs.
type call struct {
	*World
	sim       *Simulator
	service   *service
	action    string
	principal *principal
	dryRun    bool
	now       time.Time
	permitted bool
	required  []string // IAM actions whose permission was checked
}

// target is a resource that an action uses, as IAM sees it.
type target struct {
	arn         string
	tags        Tags // of the existing resource
	requestTags Tags // that the request sets
	// context holds additional condition keys.
	context map[string][]string
}

// allow evaluates the principal's policies for each target of the action.
func (c *call) allow(targets ...target) error {
	return c.allowAction(c.service.signing+":"+c.action, targets...)
}

// allowAction is allow for an action that the request implies, such as ec2:CreateTags.
func (c *call) allowAction(action string, targets ...target) error {
	c.permitted = true
	if !slices.Contains(c.required, action) {
		c.required = append(c.required, action)
	}
	for _, t := range targets {
		decision := iam.Evaluate(c.principal.Policies, iam.Request{Action: action, Resource: t.arn, Context: c.conditionContext(t)})
		if decision != iam.Allowed {
			return c.deniedError(action, t.arn, decision)
		}
	}
	return nil
}

func (c *call) conditionContext(t target) map[string][]string {
	keys := map[string][]string{
		"aws:RequestedRegion":  {c.Region},
		"aws:PrincipalArn":     {c.principal.ARN},
		"aws:PrincipalAccount": {c.Account},
		"ec2:Region":           {c.Region},
	}
	for key, value := range t.tags {
		keys["aws:ResourceTag/"+key] = []string{value}
		keys[c.service.signing+":ResourceTag/"+key] = []string{value}
	}
	for key, value := range t.requestTags {
		keys["aws:RequestTag/"+key] = []string{value}
		keys["aws:TagKeys"] = append(keys["aws:TagKeys"], key)
	}
	for key, values := range t.context {
		keys[key] = values
	}
	return keys
}

func (c *call) deniedError(action, arn string, decision iam.Decision) error {
	on := ""
	if arn != "*" {
		on = " on resource: " + arn
	}
	because := fmt.Sprintf("because no identity-based policy allows the %s action", action)
	if decision == iam.ExplicitDeny {
		because = "with an explicit deny in an identity-based policy"
	}
	refused := &wire.Error{
		Code: c.service.denied, Status: http.StatusForbidden,
		Message: fmt.Sprintf("User: %s is not authorized to perform: %s%s %s", c.principal.ARN, action, on, because),
	}
	switch c.service.style {
	case wire.EC2:
		refused.Message = "You are not authorized to perform this operation. " + refused.Message
	case wire.JSON:
		refused.Status = http.StatusBadRequest
	}
	return refused
}

// begin separates checks from changes: a dry run returns here.
func (c *call) begin() error {
	if c.dryRun {
		return &wire.Error{Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set.", Status: http.StatusPreconditionFailed}
	}
	return nil
}

// errorf returns an error response with status 400.
func errorf(code, format string, args ...any) error {
	return &wire.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// newID returns a new id in EC2's form: a prefix and 17 hexadecimal digits.
func (w *World) newID(prefix string) string {
	w.Serial++
	return fmt.Sprintf("%s-%x", prefix, w.mac("id", prefix, fmt.Sprint(w.Serial)))[:len(prefix)+18]
}

func requestID() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// minLatency is the minimum time of an API call. AWS is never faster, and aws-sdk-go-v2 relies on it: it closes the request's body
// when the response starts, and if its transport has not read the end of the body by then, it closes the connection ("use of closed
// network connection").
const minLatency = 5 * time.Millisecond

// maxRequest is the maximum size of a request's body in bytes; the largest real ones register 1000 targets.
const maxRequest = 1 << 20

// serveAPI serves and records a request.
func (s *Simulator) serveAPI(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	auth, authErr := parseAuthorization(r.Header.Get("Authorization"))
	if auth.service == "s3" {
		s.serveObjects(w, r, auth)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	form, err := parseForm(r, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	entry := Call{RequestID: requestID(), Source: host(r.RemoteAddr), Action: form.Get("Action"), Params: redact(form), DryRun: form.Get("DryRun") == "true"}
	svc := serviceFor(auth.service, form.Get("Version"))
	if svc == nil {
		svc = serviceFor(cmp.Or(map[string]string{"2016-11-15": "ec2", "2011-06-15": "sts"}[form.Get("Version")], "elasticloadbalancing"), cmp.Or(form.Get("Version"), "2012-06-01"))
	}
	if svc == nil || auth.service != "" && auth.service != svc.signing {
		s.log.Warn("request for a service that is not simulated", "service", auth.service, "version", form.Get("Version"), "action", entry.Action)
		http.Error(w, fmt.Sprintf("awssim: service %q, version %q is not simulated", auth.service, form.Get("Version")), http.StatusNotFound)
		return
	}
	entry.Service = svc.name
	qualified := svc.name + ":" + entry.Action

	wait(r.Context(), s.latency(qualified))
	fault := s.faults.take(qualified, host(r.RemoteAddr))
	var response []byte
	var result any
	apiErr := fault.error()
	if apiErr == nil {
		result, apiErr = s.perform(r, svc, auth, authErr, body, form, &entry)
	}
	status := http.StatusOK
	if apiErr != nil {
		status = apiErr.HTTPStatus()
		entry.Code = apiErr.Code
		response = wire.ErrorResponse(svc.style, svc.namespace, entry.RequestID, apiErr)
	} else {
		if fault.is(FaultEmpty) {
			result = nil
		}
		if response, err = wire.Response(svc.style, svc.namespace, entry.Action, entry.RequestID, result); err != nil {
			panic(err)
		}
	}
	if fault != nil {
		entry.Fault = fault.Kind
	}
	entry.Status = status
	w.Header().Set("Content-Type", svc.style.ContentType())
	w.Header().Set("x-amzn-RequestId", entry.RequestID)
	s.mu.Lock()
	entry.Time = s.now()
	s.mu.Unlock()
	w.Header().Set("Date", entry.Time.Format(http.TimeFormat))
	entry.Milliseconds = float64(time.Since(start).Microseconds()) / 1000
	s.remember(entry)
	wait(r.Context(), minLatency-time.Since(start))
	fault.write(w, status, response)
}

// parseForm reads the parameters and the action, from the body's JSON where a service's protocol is that.
func parseForm(r *http.Request, body []byte) (url.Values, error) {
	if operation := r.Header.Get("X-Amz-Target"); operation != "" {
		form, err := wire.ParseJSON(body)
		if err == nil {
			form.Set("Action", operation[strings.LastIndex(operation, ".")+1:])
		}
		return form, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	for name, values := range r.URL.Query() {
		form[name] = values
	}
	return form, nil
}

// perform authenticates, throttles and runs the action under the lock.
func (s *Simulator) perform(r *http.Request, svc *service, auth authorization, authErr error, body []byte, form url.Values, entry *Call) (any, *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who, err := (*principal)(nil), authErr
	if err == nil {
		who, err = s.authenticate(r, auth, body)
	}
	if err != nil {
		return nil, svc.authErrors[err]
	}
	entry.Principal, entry.Instance = who.ARN, who.Instance
	op, ok := svc.operations[entry.Action]
	if !ok {
		s.log.Warn("unknown action", "service", svc.name, "action", entry.Action, "params", entry.Params)
		if svc.style == wire.EC2 {
			return nil, &wire.Error{Code: "InvalidAction", Message: fmt.Sprintf("The action %s is not valid for this web service.", entry.Action), Status: 400}
		}
		return nil, &wire.Error{Code: "InvalidAction", Message: fmt.Sprintf("Could not find operation %s for version %s", entry.Action, svc.version), Status: 400}
	}
	if !s.buckets.take(s.world.Settings.Throttle, svc.name+":"+entry.Action, s.options.Now()) {
		return nil, svc.throttled
	}
	s.settle()
	c := &call{World: s.world, sim: s, service: svc, action: entry.Action, principal: who, dryRun: entry.DryRun, now: s.now()}
	form.Del("Action")
	form.Del("Version")
	if svc.style == wire.EC2 {
		form.Del("DryRun")
	}
	result, err := op.run(c, form)
	entry.Permissions = c.required
	if err == nil && op.changes {
		err = s.commit()
	}
	return result, s.asAPIError(svc, err)
}

// asAPIError converts errors of the layers below to the service's error responses.
func (s *Simulator) asAPIError(svc *service, err error) *wire.Error {
	var known *wire.Error
	var unknown *wire.UnknownParameterError
	var invalid *wire.InvalidParameterError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &unknown):
		s.log.Warn("unknown parameter", "service", svc.name, "parameter", unknown.Name)
		if svc.style == wire.EC2 {
			return &wire.Error{Code: "UnknownParameter", Message: unknown.Error()}
		}
		return &wire.Error{Code: "ValidationError", Message: unknown.Error()}
	case errors.As(err, &invalid):
		if svc.style == wire.EC2 {
			return &wire.Error{Code: "InvalidParameterValue", Message: invalid.Error()}
		}
		return &wire.Error{Code: "ValidationError", Message: invalid.Error()}
	}
	s.log.Error("internal error", "service", svc.name, "error", err)
	return &wire.Error{Code: "InternalError", Message: "An internal error has occurred", Status: http.StatusInternalServerError}
}

// host is the address of a request's source.
func host(remote string) string {
	h, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return strings.TrimPrefix(h, "::ffff:")
}

// Actions lists every action that is simulated, as service:Action, in order.
func Actions() []string {
	var actions []string
	for _, s := range services {
		for _, name := range sortedKeys(s.operations) {
			actions = append(actions, s.name+":"+name)
		}
	}
	return actions
}
