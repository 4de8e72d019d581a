// Package issuer_test publishes keys to the simulated AWS.
package issuer_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

const (
	bucket = "prod-issuer"
	url    = "https://prod-issuer.s3.us-east-1.amazonaws.com/prod"
)

// bed is an account in which everything is prepared, and a VM whose role has the generated policy.
type bed struct {
	sim    *awssim.Simulator
	config *issuer.Config
	record string
	log    bytes.Buffer
}

func newBed(t *testing.T, change func(*store.World)) *bed {
	t.Helper()
	world := accounts.World("prod")
	world.Buckets = []string{bucket}
	destination := issuer.Bucket{Name: bucket, Region: awssim.LabRegion, Prefix: "prod"}
	objects := iam.Strings{
		"arn:aws:s3:::" + bucket + "/prod/" + issuer.DiscoveryPath,
		"arn:aws:s3:::" + bucket + "/prod/" + issuer.KeysPath,
	}
	public := iam.Statement{Effect: "Allow", Action: iam.Strings{"s3:GetObject"}, Resource: objects}
	world.ChangedBuckets = []store.Bucket{
		{Name: bucket, PublicAccess: true, Public: []iam.Policy{{Statement: iam.Statements{public}}}},
	}
	world.OIDCProviders = []store.OIDCProvider{
		{URL: strings.TrimPrefix(url, "https://"), ClientIDs: []string{"sts.amazonaws.com"}},
	}
	world.StaticKeys = append(world.StaticKeys, store.StaticKey{
		AccessKeyID: "AKIACONTROL", SecretAccessKey: "secret", User: "control",
		Policies: []iam.Policy{generated(t, destination)},
	})
	if change != nil {
		change(world)
	}
	sim, err := awssim.New(world, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
		"AWS_ACCESS_KEY_ID": "AKIACONTROL", "AWS_SECRET_ACCESS_KEY": "secret",
	} {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	keys := filepath.Join(dir, "service_account.pub")
	writeKeys(t, keys, 1)
	return &bed{sim: sim, record: filepath.Join(dir, "published.json"), config: &issuer.Config{
		Issuer: url, PublicKeys: keys, Bucket: destination, Verify: true,
	}}
}

// generated is the policy of control VMs.
func generated(t *testing.T, destination issuer.Bucket) (policy iam.Policy) {
	t.Helper()
	document, err := aws.NewPolicy(aws.PolicyOptions{
		Role: preflight.Control, Cluster: "prod", Published: destination.Objects(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(document.Compact()), &policy); err != nil {
		t.Fatal(err)
	}
	return policy
}

// writeKeys writes so many new keys to a file.
func writeKeys(t *testing.T, path string, count int) {
	t.Helper()
	var all []byte
	for range count {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) publish(t *testing.T) error {
	t.Helper()
	return b.config.Publish(t.Context(), b.record, slog.New(slog.NewTextHandler(&b.log, nil)))
}

// TestPublish expects few calls, and the keys of the file, also after it has changed.
func TestPublish(t *testing.T) {
	b := newBed(t, nil)
	for _, keys := range []int{1, 2} {
		writeKeys(t, b.config.PublicKeys, keys)
		before := len(b.sim.Calls("*"))
		if err := b.publish(t); err != nil {
			t.Fatal(err)
		}
		if calls := b.sim.Calls("*")[before:]; len(calls) != 6 { // writes and reads two objects, and asks STS and IAM
			t.Errorf("%d calls: %v", len(calls), calls)
		}
		content, err := os.ReadFile(b.config.PublicKeys)
		if err != nil {
			t.Fatal(err)
		}
		want, err := issuer.NewDocuments(url, content)
		if err != nil {
			t.Fatal(err)
		}
		got, err := issuer.Read(t.Context(), url, nil)
		if err != nil || len(got.Keys.Keys) != keys || len(got.Keys.Lacks(want.Keys)) > 0 {
			t.Errorf("published is %v: %v", got, err)
		}
	}
	if strings.Contains(b.log.String(), "level=WARN") {
		t.Error(b.log.String())
	}
}

// TestPublishFails expects what is wrong, and what to do.
func TestPublishFails(t *testing.T) {
	control := func(w *store.World) *store.StaticKey { return &w.StaticKeys[len(w.StaticKeys)-1] }
	for name, test := range map[string]struct {
		change func(*store.World)
		want   []string
	}{
		"no bucket": {
			func(w *store.World) { w.Buckets = nil },
			[]string{"write s3://prod-issuer/prod/openid/v1/jwks", "NoSuchBucket", "property bucket of job pod-roles"},
		},
		"no permission": {
			func(w *store.World) { control(w).Policies = nil },
			[]string{"AccessDenied", "allow s3:PutObject on this name to the instance role"},
		},
		"private bucket": {
			func(w *store.World) { w.ChangedBuckets = nil },
			[]string{
				"AWS cannot verify tokens of " + url, "AccessDenied",
				"aws s3api delete-public-access-block --bucket prod-issuer --region us-east-1",
				`"Resource": ["arn:aws:s3:::prod-issuer/prod/.well-known/openid-configuration", ` +
					`"arn:aws:s3:::prod-issuer/prod/openid/v1/jwks"]`,
			},
		},
		"no provider": {
			func(w *store.World) { w.OIDCProviders = nil },
			[]string{
				"the account 123456789012 has no OpenID Connect provider for " + url,
				"aws iam create-open-id-connect-provider --url " + url + " --client-id-list sts.amazonaws.com",
			},
		},
		"provider with another audience": {
			func(w *store.World) { w.OIDCProviders[0].ClientIDs = []string{"kubernetes"} },
			[]string{
				`has the audiences ["kubernetes"]`,
				"aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn " +
					"arn:aws:iam::123456789012:oidc-provider/prod-issuer.s3.us-east-1.amazonaws.com/prod " +
					"--client-id sts.amazonaws.com",
			},
		},
		"private bucket and no provider": {
			func(w *store.World) { w.OIDCProviders, w.ChangedBuckets = nil, nil },
			[]string{"AWS cannot verify tokens", "has no OpenID Connect provider"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.change)
			err := b.publish(t)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
		})
	}
}

// TestPublishWithoutQuestions lets a role pass that may not ask IAM: it is told, and the keys are published.
func TestPublishWithoutQuestions(t *testing.T) {
	b := newBed(t, func(w *store.World) {
		key := &w.StaticKeys[len(w.StaticKeys)-1]
		key.Policies[0].Statement = slices.DeleteFunc(key.Policies[0].Statement, func(s iam.Statement) bool {
			return slices.Contains(s.Action, "iam:GetOpenIDConnectProvider")
		})
		w.OIDCProviders = nil
	})
	if err := b.publish(t); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.log.String(), "iam:GetOpenIDConnectProvider") {
		t.Error(b.log.String())
	}
}

// TestIssuerThatDoesNotAnswer is a VM without a route to the issuer, whose packets are lost: that says nothing about
// AWS.
func TestIssuerThatDoesNotAnswer(t *testing.T) {
	b := newBed(t, nil)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	b.config.Issuer = "https://" + silent.Addr().String() + "/prod"
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	problems := b.config.Problems(ctx)
	want := "this VM cannot read the keys of " + b.config.Issuer
	if len(problems) == 0 || !strings.Contains(problems[0].Error(), want) {
		t.Errorf("the problems are %v", problems)
	}
	for _, err := range problems {
		if !issuer.IsUnknown(err) {
			t.Errorf("known is: %v", err)
		}
	}
}

// TestIssuerThatAnsweredBefore: a request that is under way when the time is up does not hide the answer before it.
func TestIssuerThatAnsweredBefore(t *testing.T) {
	b := newBed(t, nil)
	reads := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if reads++; reads > 1 {
				<-r.Context().Done()
			}
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	if problems := b.config.Problems(t.Context()); len(problems) == 0 || issuer.IsUnknown(problems[0]) {
		t.Errorf("after %d reads, of which the first was refused, the problems are %v", reads, problems)
	}
}

// TestCommandsOfPartitions: a bucket in another partition takes ARNs of that partition only.
func TestCommandsOfPartitions(t *testing.T) {
	for region, want := range map[string]string{
		"eu-central-1": "arn:aws:s3:::", "us-gov-west-1": "arn:aws-us-gov:s3:::", "cn-north-1": "arn:aws-cn:s3:::",
		"eusc-de-east-1": "arn:aws-eusc:s3:::",
	} {
		b := newBed(t, func(w *store.World) { w.ChangedBuckets = nil })
		b.config.Bucket.Region = region
		if text := fmt.Sprint(b.config.Problems(t.Context())); !strings.Contains(text, `["`+want+"prod-issuer/prod/") {
			t.Errorf("in %s, %s\nlacks %s", region, text, want)
		}
	}
}

// TestPublishWithoutVerification only logs what keeps pods from their roles.
func TestPublishWithoutVerification(t *testing.T) {
	b := newBed(t, func(w *store.World) { w.OIDCProviders, w.ChangedBuckets = nil, nil })
	b.config.Verify = false
	if err := b.publish(t); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AWS cannot verify tokens", "has no OpenID Connect provider"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("%s\nlacks %q", b.log.String(), want)
		}
	}
}

// TestPublishWithoutS3 is a VM that starts while S3 does not answer.
func TestPublishWithoutS3(t *testing.T) {
	b := newBed(t, nil)
	if err := b.publish(t); err != nil {
		t.Fatal(err)
	}
	code, status := "ServiceUnavailable", http.StatusServiceUnavailable
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
	}))
	t.Cleanup(failing.Close)
	t.Setenv("AWS_ENDPOINT_URL", failing.URL)
	if err := b.publish(t); err != nil {
		t.Errorf("the same keys, and S3 fails: %v", err)
	}
	code, status = "AccessDenied", http.StatusForbidden
	if err := b.publish(t); err == nil {
		t.Error("S3 refuses, and that is no error")
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	if err := b.publish(t); err != nil {
		t.Errorf("the same keys: %v", err)
	}
	if told := strings.Count(b.log.String(), "S3 does not answer now"); told != 2 {
		t.Errorf("told %d times, want 2:\n%s", told, b.log.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	publish := func() error { return b.config.Publish(ctx, b.record, slog.New(slog.DiscardHandler)) }
	writeKeys(t, b.config.PublicKeys, 1)
	if err := publish(); err == nil {
		t.Error("another key is not published, and may sign")
	}
	if err := os.Remove(b.record); err != nil {
		t.Fatal(err)
	}
	if err := publish(); err == nil {
		t.Error("a new VM cannot know what is published, and its key may sign")
	}
}

// TestCachesKeepObjectsBriefly: a distribution of CloudFront shows a new key while pre-start still looks for it.
func TestCachesKeepObjectsBriefly(t *testing.T) {
	b := newBed(t, nil)
	var written []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			written = append(written, r.Header.Get("Cache-Control"))
		}
		b.sim.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	if err := b.publish(t); err != nil {
		t.Fatal(err)
	}
	if want := []string{"public, max-age=10", "public, max-age=10"}; !slices.Equal(written, want) {
		t.Errorf("Cache-Control of the objects is %q, want %q", written, want)
	}
}

// TestPublishWaitsForS3 is a new VM: its API server may not sign before the keys are published.
func TestPublishWaitsForS3(t *testing.T) {
	b := newBed(t, nil)
	left := 1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if left--; left >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		b.sim.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	if err := b.publish(t); err != nil {
		t.Error(err)
	}
}
