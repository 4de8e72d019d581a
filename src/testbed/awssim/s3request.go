package awssim

import (
	"net/http"
)

// bucketSettings are the actions of IAM by the method and the query of a request on a bucket.
var bucketSettings = map[string]string{
	"PUT policy":               "PutBucketPolicy",
	"DELETE publicAccessBlock": "PutBucketPublicAccessBlock",
}

// settingNames are the queries of requests on a bucket itself.
var settingNames = map[string]bool{"policy": true, "publicAccessBlock": true}

// objectRequest is a request with the bucket in the path (Amazon S3 user guide, "Path-style requests").
type objectRequest struct {
	method, bucket, key string
	prefix              string // of the names to list
	setting             string // of the bucket; the query of the URL
	content             []byte
}

// action is the action of IAM that the request requires; empty if it is not simulated.
func (r objectRequest) action() string {
	switch {
	case r.setting != "":
		return bucketSettings[r.method+" "+r.setting]
	case r.method == http.MethodPut && r.key == "":
		return "CreateBucket"
	case r.method == http.MethodPut:
		return "PutObject"
	case r.method == http.MethodGet && r.key != "":
		return "GetObject"
	case r.method == http.MethodGet:
		return "ListBucket"
	}
	return ""
}
