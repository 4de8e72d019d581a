package awssim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/acm"
	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ebs"
	"kubernetes-release/testbed/awssim/ec2"
	"kubernetes-release/testbed/awssim/ecr"
	"kubernetes-release/testbed/awssim/elb"
	"kubernetes-release/testbed/awssim/elbv2"
	"kubernetes-release/testbed/awssim/iamapi"
	"kubernetes-release/testbed/awssim/kms"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/sts"
	"kubernetes-release/testbed/awssim/wire"
)

var ec2AuthFailure = &wire.Error{
	Code:    "AuthFailure",
	Message: "AWS was not able to validate the provided access credentials",
	Status:  401,
}

var services = []*api.Service{
	{
		Name:       "ec2",
		Signing:    "ec2",
		Version:    "2016-11-15",
		Namespace:  "http://ec2.amazonaws.com/doc/2016-11-15/",
		Style:      wire.EC2,
		Operations: merged(ec2.Operations, ebs.Operations),
		AuthErrors: map[error]*wire.Error{
			api.ErrNoAuthentication: {
				Code:    "MissingParameter",
				Message: "The request must contain the parameter AWSAccessKeyId",
				Status:  400,
			},
			api.ErrUnknownKey: ec2AuthFailure,
			api.ErrExpired:    {Code: "RequestExpired", Message: "Request has expired.", Status: 400},
			api.ErrSignature:  ec2AuthFailure,
			api.ErrPast:       {Code: "RequestExpired", Message: "Request has expired.", Status: 400},
			api.ErrFuture:     ec2AuthFailure,
		},
		Denied:    "UnauthorizedOperation",
		Throttled: &wire.Error{Code: "RequestLimitExceeded", Message: "Request limit exceeded.", Status: 503},
	},
	{
		Name:       "elb",
		Signing:    "elasticloadbalancing",
		Version:    "2012-06-01",
		Namespace:  "http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/",
		Style:      wire.Query,
		Operations: elb.Operations,
		AuthErrors: api.QueryAuthErrors,
		Denied:     "AccessDenied",
		Throttled:  api.QueryThrottled,
	},
	{
		Name:       "elbv2",
		Signing:    "elasticloadbalancing",
		Version:    "2015-12-01",
		Namespace:  "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
		Style:      wire.Query,
		Operations: elbv2.Operations,
		AuthErrors: api.QueryAuthErrors,
		Denied:     "AccessDenied",
		Throttled:  api.QueryThrottled,
	},
	{
		Name:       "iam",
		Signing:    "iam",
		Version:    "2010-05-08",
		Namespace:  "https://iam.amazonaws.com/doc/2010-05-08/",
		Style:      wire.Query,
		Operations: iamapi.Operations,
		AuthErrors: api.QueryAuthErrors,
		Denied:     "AccessDenied",
		Throttled:  api.QueryThrottled,
	},
	{
		Name:       "sts",
		Signing:    "sts",
		Version:    "2011-06-15",
		Namespace:  "https://sts.amazonaws.com/doc/2011-06-15/",
		Style:      wire.Query,
		Operations: sts.Operations,
		AuthErrors: api.QueryAuthErrors,
		Denied:     "AccessDenied",
		Throttled:  api.QueryThrottled,
	},
	{
		Name:       "ecr",
		Signing:    "ecr",
		Namespace:  "AmazonEC2ContainerRegistry_V20150921",
		Style:      wire.JSON,
		Operations: ecr.Operations,
		AuthErrors: ecr.AuthErrors,
		Denied:     "AccessDeniedException",
		Throttled:  &wire.Error{Code: "ThrottlingException", Message: "Rate exceeded", Status: 400},
	},
	{
		Name:       "acm",
		Signing:    "acm",
		Namespace:  "CertificateManager",
		Style:      wire.JSON,
		Operations: acm.Operations,
		AuthErrors: kms.AuthErrors,
		Denied:     "AccessDeniedException",
		Throttled:  &wire.Error{Code: "ThrottlingException", Message: "Rate exceeded", Status: 400},
	},
	{
		Name:       "kms",
		Signing:    "kms",
		Namespace:  "TrentService",
		Style:      wire.JSON,
		Operations: kms.Operations,
		AuthErrors: kms.AuthErrors,
		Denied:     "AccessDeniedException",
		Throttled:  &wire.Error{Code: "ThrottlingException", Message: "Rate exceeded", Status: 400},
	},
}

// merged are the actions of two tables.
func merged(tables ...map[string]api.Operation) map[string]api.Operation {
	all := map[string]api.Operation{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// serviceFor routes by the credential scope, and by the API version where two services share a scope.
func serviceFor(signing, version string) *api.Service {
	for _, s := range services {
		if s.Signing == signing && (version == s.Version || signing != "elasticloadbalancing") {
			return s
		}
	}
	return nil
}

// maxRequest is the maximum size of a request's body in bytes; the largest real ones register 1000 targets.
const maxRequest = 1 << 20

// serveAPI serves and records a request.
func (s *Simulator) serveAPI(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	auth, authErr := parseAuthorization(r.Header.Get("Authorization"))
	if auth.service == "s3" || errors.Is(authErr, api.ErrNoAuthentication) && isObject(r) {
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
	entry := Call{
		RequestID: requestID(),
		Source:    host(r.RemoteAddr),
		Action:    form.Get("Action"),
		Params:    redact(form),
		DryRun:    form.Get("DryRun") == "true",
	}
	svc := serviceFor(auth.service, form.Get("Version"))
	if svc == nil {
		svc = serviceFor(
			cmp.Or(
				map[string]string{"2016-11-15": "ec2", "2011-06-15": "sts"}[form.Get("Version")],
				"elasticloadbalancing",
			),
			cmp.Or(form.Get("Version"), "2012-06-01"),
		)
	}
	if svc == nil || auth.service != "" && auth.service != svc.Signing {
		s.log.Warn(
			"request for a service that is not simulated", "service", auth.service, "version", form.Get("Version"),
			"action", entry.Action,
		)
		http.Error(
			w, fmt.Sprintf("awssim: service %q, version %q is not simulated", auth.service, form.Get("Version")),
			http.StatusNotFound,
		)
		return
	}
	entry.Service = svc.Name
	qualified := svc.Name + ":" + entry.Action

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
		response = wire.ErrorResponse(svc.Style, svc.Namespace, entry.RequestID, apiErr)
	} else {
		if fault.is(FaultEmpty) {
			result = nil
		}
		if response, err = wire.Response(svc.Style, svc.Namespace, entry.Action, entry.RequestID, result); err != nil {
			panic(err)
		}
	}
	if fault != nil {
		entry.Fault = fault.Kind
	}
	entry.Status = status
	w.Header().Set("Content-Type", svc.Style.ContentType())
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
func (s *Simulator) perform(
	r *http.Request, svc *api.Service, auth authorization, authErr error, body []byte, form url.Values, entry *Call,
) (any, *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op, ok := svc.Operations[entry.Action]
	who, err := (*api.Principal)(nil), authErr
	switch {
	case err == nil:
		who, err = s.authenticate(r, auth, body)
	case op.Unsigned && errors.Is(err, api.ErrNoAuthentication):
		who, err = &api.Principal{}, nil
	}
	if err != nil {
		return nil, svc.AuthErrors[err]
	}
	entry.Principal, entry.Instance = who.ARN, who.Instance
	if !ok {
		s.log.Warn("unknown action", "service", svc.Name, "action", entry.Action, "params", entry.Params)
		if svc.Style == wire.EC2 {
			return nil, &wire.Error{
				Code:    "InvalidAction",
				Message: fmt.Sprintf("The action %s is not valid for this web service.", entry.Action),
				Status:  400,
			}
		}
		return nil, &wire.Error{
			Code:    "InvalidAction",
			Message: fmt.Sprintf("Could not find operation %s for version %s", entry.Action, svc.Version),
			Status:  400,
		}
	}
	if !s.buckets.take(s.world.Settings.Throttle, svc.Name+":"+entry.Action, s.options.Now()) {
		return nil, svc.Throttled
	}
	s.settle()
	c := &api.Call{
		World:     s.world,
		Disks:     s.options.Disks,
		Engine:    s.engine,
		Service:   svc,
		Action:    entry.Action,
		Principal: who,
		DryRun:    entry.DryRun,
		Now:       s.now(),
		Fetch:     s.publicObject,
	}
	form.Del("Action")
	form.Del("Version")
	if svc.Style == wire.EC2 {
		form.Del("DryRun")
	}
	result, err := op.Run(c, form)
	entry.Permissions = c.Required
	if err == nil && op.Changes {
		err = s.commit()
	}
	return result, s.asAPIError(svc, err)
}

// Actions lists every action that is simulated, as service:Action, in order.
func Actions() []string {
	var actions []string
	for _, s := range services {
		for _, name := range store.SortedKeys(s.Operations) {
			actions = append(actions, s.Name+":"+name)
		}
	}
	return actions
}
