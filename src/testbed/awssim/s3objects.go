package awssim

import (
	"encoding/xml"
	"io"
	"net/http"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// maxObject is the maximum size of an object in bytes. Objects are in memory.
const maxObject = 256 << 20

// s3Service is the part of S3 that every API has. Its actions are methods on paths, not entries of a table.
var s3Service = &api.Service{
	Name: "s3", Signing: "s3", Denied: "AccessDenied",
	AuthErrors: map[error]*wire.Error{
		api.ErrNoAuthentication: {Code: "AccessDenied", Message: "Access Denied", Status: 403},
		api.ErrUnknownKey: {
			Code:    "InvalidAccessKeyId",
			Message: "The AWS Access Key Id you provided does not exist in our records.",
			Status:  403,
		},
		api.ErrExpired: {Code: "ExpiredToken", Message: "The provided token has expired.", Status: 400},
		api.ErrSignature: {
			Code: "SignatureDoesNotMatch",
			Message: "The request signature we calculated does not match the signature you provided. Check your key " +
				"and signing method.",
			Status: 403,
		},
		api.ErrPast: {
			Code:    "RequestTimeTooSkewed",
			Message: "The difference between the request time and the current time is too large.",
			Status:  403,
		},
		api.ErrFuture: {
			Code:    "RequestTimeTooSkewed",
			Message: "The difference between the request time and the current time is too large.",
			Status:  403,
		},
	},
}

// serveObjects serves and records a request to S3.
func (s *Simulator) serveObjects(w http.ResponseWriter, r *http.Request, auth authorization) {
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxObject))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	request := objectRequest{method: r.Method, prefix: r.URL.Query().Get("prefix"), content: content}
	request.bucket, request.key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	for setting := range settingNames {
		if r.URL.Query().Has(setting) {
			request.setting = setting
		}
	}
	entry := Call{
		Service:   s3Service.Name,
		Action:    request.action(),
		Source:    host(r.RemoteAddr),
		RequestID: requestID(),
		Status:    http.StatusOK,
		Params:    map[string]string{"bucket": request.bucket, "key": request.key},
	}
	response, refused := s.object(r, request, auth, &entry)
	w.Header().Set("x-amz-request-id", entry.RequestID)
	if refused != nil {
		entry.Status, entry.Code = refused.HTTPStatus(), refused.Code
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(entry.Status)
		response = marshalXML(struct {
			XMLName       xml.Name `xml:"Error"`
			Code, Message string
		}{Code: refused.Code, Message: refused.Message})
	}
	s.remember(entry)
	_, _ = w.Write(response) // fails if the client has closed the connection
}

// object authenticates and runs a request under the lock. It returns the content of an object that is read.
func (s *Simulator) object(
	r *http.Request, request objectRequest, auth authorization, entry *Call,
) ([]byte, *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.Time = s.now()
	if auth.keyID == "" && entry.Action == "GetObject" {
		content, err := s.public(request.bucket, request.key)
		return content, s.asAPIError(s3Service, err)
	}
	who, err := s.authenticate(r, auth, request.content)
	if err != nil {
		return nil, s3Service.AuthErrors[err]
	}
	entry.Principal, entry.Instance = who.ARN, who.Instance
	if entry.Action == "" {
		s.log.Warn("a request to S3 that is not simulated", "method", request.method, "path", r.URL.Path)
		return nil, &wire.Error{
			Code:    "NotImplemented",
			Message: "A header you provided implies functionality that is not implemented.",
			Status:  http.StatusNotImplemented,
		}
	}
	c := &api.Call{World: s.world, Service: s3Service, Action: entry.Action, Principal: who, Now: s.now()}
	response, err := s.runObject(c, request)
	entry.Permissions = c.Required
	if err == nil && (entry.Action == "CreateBucket" || request.setting != "") {
		err = s.commit()
	}
	return response, s.asAPIError(s3Service, err)
}

func (s *Simulator) runObject(c *api.Call, r objectRequest) ([]byte, error) {
	resource := r.bucket
	if r.key != "" {
		resource += "/" + r.key
	}
	if err := c.Allow(
		api.Target{ARN: strings.Join([]string{"arn", c.Partition, "s3", "", "", resource}, ":")},
	); err != nil {
		return nil, err
	}
	path := r.bucket + "/" + r.key
	switch {
	case c.Action == "CreateBucket" && slices.Contains(c.Buckets, r.bucket):
		return nil, &wire.Error{
			Code:    "BucketAlreadyOwnedByYou",
			Message: "Your previous request to create the named bucket succeeded and you already own it.",
			Status:  http.StatusConflict,
		}
	case c.Action == "CreateBucket":
		c.Buckets = append(c.Buckets, r.bucket)
	case !slices.Contains(c.Buckets, r.bucket):
		return nil, &wire.Error{
			Code:    "NoSuchBucket",
			Message: "The specified bucket does not exist",
			Status:  http.StatusNotFound,
		}
	case r.setting != "":
		return nil, changeBucket(c.World, r)
	case c.Action == "PutObject":
		s.objects[path] = r.content
	case c.Action == "ListBucket":
		return s.listObjects(path, r.prefix)
	case s.objects[path] == nil:
		return nil, &wire.Error{
			Code:    "NoSuchKey",
			Message: "The specified key does not exist.",
			Status:  http.StatusNotFound,
		}
	default:
		return s.objects[path], nil
	}
	return nil, nil
}

// listObjects lists the names of a bucket's objects, all of them in one page. The path is BUCKET/.
func (s *Simulator) listObjects(path, prefix string) ([]byte, error) {
	type object struct {
		Key  string
		Size int
	}
	list := struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		Contents    []object
		KeyCount    int
		IsTruncated bool
	}{}
	for _, name := range store.SortedKeys(s.objects) {
		if key, ok := strings.CutPrefix(name, path); ok && strings.HasPrefix(key, prefix) {
			list.Contents = append(list.Contents, object{key, len(s.objects[name])})
		}
	}
	list.KeyCount = len(list.Contents)
	return marshalXML(list), nil
}

func marshalXML(v any) []byte {
	text, err := xml.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
