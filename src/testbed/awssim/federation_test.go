package awssim_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"kubernetes-release/testbed/awssim"
)

// checkProviders creates and deletes a provider, and asks for a role with a token that is none.
func checkProviders(t *testing.T, covered map[string]bool, c clients) {
	const arn = "arn:aws:iam::123456789012:oidc-provider/issuer.example/prod"
	create := func(url string) func(context.Context) (any, error) {
		return answers(
			c.iam.CreateOpenIDConnectProvider,
			&iam.CreateOpenIDConnectProviderInput{Url: &url, ClientIDList: []string{"sts.amazonaws.com"}},
			func(out *iam.CreateOpenIDConnectProviderOutput) any { return *out.OpenIDConnectProviderArn },
		)
	}
	get := answers(
		c.iam.GetOpenIDConnectProvider, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)},
		func(out *iam.GetOpenIDConnectProviderOutput) any {
			return *out.Url + " " + strings.Join(out.ClientIDList, ",")
		},
	)
	add := succeeds(c.iam.AddClientIDToOpenIDConnectProvider, &iam.AddClientIDToOpenIDConnectProviderInput{
		OpenIDConnectProviderArn: aws.String(arn), ClientID: aws.String("other"),
	})
	remove := succeeds(
		c.iam.DeleteOpenIDConnectProvider,
		&iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)},
	)
	run(t, covered, []step{
		{action: "iam:CreateOpenIDConnectProvider", call: create("http://issuer.example/prod"), code: "InvalidInput"},
		{action: "iam:GetOpenIDConnectProvider", call: get, code: "NoSuchEntity"},
		{action: "iam:CreateOpenIDConnectProvider", call: create("https://issuer.example/prod"), want: arn},
		{
			action: "iam:CreateOpenIDConnectProvider", call: create("https://issuer.example/prod"),
			code: "EntityAlreadyExists",
		},
		{action: "iam:AddClientIDToOpenIDConnectProvider", call: add, want: "<nil>"},
		{action: "iam:GetOpenIDConnectProvider", call: get, want: "issuer.example/prod sts.amazonaws.com,other"},
		{action: "iam:DeleteOpenIDConnectProvider", call: remove, want: "<nil>"},
		{action: "iam:DeleteOpenIDConnectProvider", call: remove, code: "NoSuchEntity"},
		{action: "sts:AssumeRoleWithWebIdentity", call: func(ctx context.Context) (any, error) {
			return c.sts.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
				RoleArn: aws.String("arn:aws:iam::123456789012:role/reader"), RoleSessionName: aws.String("pod"),
				WebIdentityToken: aws.String("no.to.ken"),
			})
		}, code: "InvalidIdentityToken"}, // the tests of the templates have real ones
	})
}

// TestPublicObjects reads an object without credentials, which takes a policy, and that takes public access.
func TestPublicObjects(t *testing.T) {
	world := testWorld(t)
	world.Buckets = []string{"issuer"}
	b := start(t, world, awssim.Options{})
	client := s3.NewFromConfig(b.operator(), func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = &b.api, true })
	bucket := aws.String("issuer")
	policy := aws.String(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
		"Action": "s3:GetObject", "Resource": "arn:aws:s3:::issuer/keys"}]}`)
	for _, key := range []string{"keys", "other"} {
		if _, err := client.PutObject(
			t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: strings.NewReader("content")},
		); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		t.Helper()
		response, err := http.Get(b.api + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	put := func() error {
		_, err := client.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: bucket, Policy: policy})
		return err
	}
	if got := read("/issuer/keys"); !strings.Contains(got, "AccessDenied") {
		t.Errorf("without a policy: %s", got)
	}
	wantCode(t, "a public policy of a new bucket", put(), "AccessDenied")
	if _, err := client.DeletePublicAccessBlock(
		t.Context(), &s3.DeletePublicAccessBlockInput{Bucket: bucket},
	); err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	if got := read("/issuer/keys"); got != "content" {
		t.Errorf("with a policy: %s", got)
	}
	for _, path := range []string{"/issuer/other", "/issuer/nothing"} {
		if got := read(path); !strings.Contains(got, "AccessDenied") {
			t.Errorf("%s: %s", path, got)
		}
	}
}
