package awssim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// changeBucket changes the protection of a bucket.
func changeBucket(w *store.World, r objectRequest) error {
	bucket := store.Bucket{Name: r.bucket}
	if old := store.Find(w.ChangedBuckets, r.bucket); old != nil {
		bucket = *old
	}
	if r.setting == "publicAccessBlock" {
		bucket.PublicAccess = true
		store.Put(&w.ChangedBuckets, bucket)
		return nil
	}
	public, err := publicStatements(r.content)
	switch {
	case err != nil:
		return &wire.Error{Code: "MalformedPolicy", Message: err.Error(), Status: http.StatusBadRequest}
	case len(public) > 0 && !bucket.PublicAccess:
		return &wire.Error{
			Code: "AccessDenied", Status: http.StatusForbidden,
			Message: "public policies are blocked by the BlockPublicPolicy block public access setting.",
		}
	}
	bucket.Public = public
	store.Put(&w.ChangedBuckets, bucket)
	return nil
}

// publicStatements are those of a bucket's policy that are for everyone.
func publicStatements(document []byte) ([]iam.Policy, error) {
	var policy struct {
		Version, ID string
		Statement   []struct {
			iam.Statement
			Principal any
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&policy); err != nil {
		return nil, fmt.Errorf("Policies must be valid JSON and the first byte must be '{': %w", err)
	}
	var public []iam.Policy
	for _, s := range policy.Statement {
		p := iam.Policy{Statement: iam.Statements{s.Statement}}
		if err := p.Validate(); err != nil {
			return nil, err
		}
		if account, ok := s.Principal.(map[string]any); s.Principal == "*" || ok && account["AWS"] == "*" {
			public = append(public, p)
		}
	}
	return public, nil
}

// isObject reports whether a request is for an object of S3, although it has no signature that says so.
func isObject(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Count(r.URL.Path, "/") > 1
}

// public is an object as everyone can read it. The caller must hold the lock. Who cannot list a bucket does not learn
// whether an object exists (Amazon S3 API reference, "GetObject").
func (s *Simulator) public(bucket, key string) ([]byte, error) {
	if !slices.Contains(s.world.Buckets, bucket) {
		return nil, &wire.Error{
			Code: "NoSuchBucket", Message: "The specified bucket does not exist", Status: http.StatusNotFound,
		}
	}
	changed := store.Find(s.world.ChangedBuckets, bucket)
	arn := strings.Join([]string{"arn", s.world.Partition, "s3", "", "", bucket + "/" + key}, ":")
	content, exists := s.objects[bucket+"/"+key]
	if changed == nil || !exists ||
		iam.Evaluate(changed.Public, iam.Request{Action: "s3:GetObject", Resource: arn}) != iam.Allowed {
		return nil, &wire.Error{Code: "AccessDenied", Message: "Access Denied", Status: http.StatusForbidden}
	}
	return content, nil
}

// publicObject reads a URL of the region's S3, in both styles (Amazon S3 user guide, "Virtual hosting of general
// purpose buckets").
func (s *Simulator) publicObject(address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	host := "s3." + s.world.Region + ".amazonaws.com"
	bucket, key := strings.TrimSuffix(u.Host, "."+host), strings.TrimPrefix(u.Path, "/")
	if u.Host == host {
		bucket, key, _ = strings.Cut(key, "/")
	} else if bucket == u.Host {
		return nil, fmt.Errorf("%s is not simulated", u.Host)
	}
	if u.Scheme != "https" {
		return nil, api.Errorf("InvalidIdentityToken", "%s is not https", address)
	}
	return s.public(bucket, key)
}
