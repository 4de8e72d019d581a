package templates

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
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

const (
	labBucket = "lab-issuer"
	labIssuer = "https://lab-issuer.s3.us-east-1.amazonaws.com/lab"
)

// publicBucket allows everyone to read what an issuer publishes.
var publicBucket = store.Bucket{Name: labBucket, PublicAccess: true, Public: []iam.Policy{{
	Statement: iam.Statements{{
		Effect: "Allow", Action: iam.Strings{"s3:GetObject"},
		Resource: iam.Strings{
			"arn:aws:s3:::" + labBucket + "/lab/" + issuer.DiscoveryPath,
			"arn:aws:s3:::" + labBucket + "/lab/" + issuer.KeysPath,
		},
	}},
}}}

func roleARN(name string) string { return "arn:aws:iam::" + awssim.LabAccount + ":role/" + name }

// trusting is a role for one subject.
func trusting(name, subject string) store.Role {
	host := strings.TrimPrefix(labIssuer, "https://")
	return store.Role{Name: name, Untrusted: true, Federated: []store.FederatedTrust{{
		Providers: []string{"arn:aws:iam::" + awssim.LabAccount + ":oidc-provider/" + host},
		Condition: iam.Conditions{"StringEquals": {
			host + ":aud": {"sts.amazonaws.com"}, host + ":sub": {"system:serviceaccount:default:" + subject},
		}},
	}}}
}

// cloudForRoles is an account with a bucket, a provider and the roles reader and writer. The environment points the SDK
// to it.
func cloudForRoles(t *testing.T) *awssim.Simulator {
	t.Helper()
	world := accounts.World("prod")
	world.Buckets = []string{labBucket}
	world.ChangedBuckets = []store.Bucket{publicBucket}
	world.OIDCProviders = []store.OIDCProvider{
		{URL: strings.TrimPrefix(labIssuer, "https://"), ClientIDs: []string{"sts.amazonaws.com"}},
	}
	world.Roles = append(world.Roles, trusting("reader", "reader"), trusting("writer", "writer"))
	sim, err := awssim.New(world, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	t.Setenv("AWS_ENDPOINT_URL_STS", server.URL) // for what resolves credentials too
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	return sim
}

// publish publishes keys with an operator's access.
func publish(t *testing.T, publicKeys string) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", awssim.LabAccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", awssim.LabSecretAccessKey)
	c := issuer.Config{
		Issuer: labIssuer, PublicKeys: publicKeys,
		Bucket: issuer.Bucket{Name: labBucket, Region: awssim.LabRegion, Prefix: "lab"},
	}
	record := filepath.Join(t.TempDir(), "published")
	if err := c.Publish(t.Context(), record, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	_ = os.Unsetenv("AWS_ACCESS_KEY_ID") // until the test ends
	_ = os.Unsetenv("AWS_SECRET_ACCESS_KEY")
}

// token is one that kubelet would mount.
func token(t *testing.T, cluster *kubetest.Cluster, account, audience string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	answer, err := cluster.Admin().CoreV1().ServiceAccounts("default").CreateToken(
		t.Context(), account, request, metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// whoAmI is what a program with Amazon's SDK in a container with this environment would be told.
func whoAmI(t *testing.T, environment map[string]string, content string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range environment {
		t.Setenv(name, value)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	t.Setenv("AWS_REGION", awssim.LabRegion)
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	loaded, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := sts.NewFromConfig(loaded).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	return *out.Arn, nil
}

// TestRolesOfPods is the whole way: a real API server changes pods and issues tokens, its keys are published, and
// Amazon's SDK gets credentials of the simulated STS, of the role that trusts the ServiceAccount and of no other.
func TestRolesOfPods(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Issuer: labIssuer})
	applyPodRoles(t, cluster)
	for account, role := range map[string]string{
		"reader": "reader", "writer": "writer", "thief": "writer", "plain": "",
	} {
		annotations := map[string]string{}
		if role != "" {
			annotations["role-arn"] = roleARN(role)
		}
		if err := newAccount(t, cluster, account, annotations); err != nil {
			t.Fatal(err)
		}
	}
	// assume is what a pod of the ServiceAccount gets.
	assume := func(account string) (string, error) {
		t.Helper()
		pod, err := tryPod(t, cluster, accountPod(account))
		if err != nil {
			t.Fatal(err)
		}
		return whoAmI(
			t, environmentOf(pod.Spec.Containers[0]), token(t, cluster, account, tokenVolume(pod).Audience),
		)
	}
	refused := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	cloudForRoles(t)
	_, err := assume("reader")
	refused("before the keys are published", "Couldn't retrieve verification key", err)
	_, public := cluster.ServiceAccountKey()
	publish(t, public)
	for _, role := range []string{"reader", "writer"} {
		got, err := assume(role)
		if err != nil || !strings.Contains(got, ":assumed-role/"+role+"/") {
			t.Errorf("a pod of %s is %q: %v", role, got, err)
		}
	}

	// A tenant annotates its own ServiceAccount with a role that trusts another one.
	_, err = assume("thief")
	refused("the role of another ServiceAccount", "Not authorized to perform sts:AssumeRoleWithWebIdentity", err)
	// A pod names another role than the one of its annotation, or uses another token.
	other := map[string]string{"AWS_ROLE_ARN": roleARN("writer")}
	_, err = whoAmI(t, other, token(t, cluster, "reader", "sts.amazonaws.com"))
	refused("another role", "Not authorized to perform sts:AssumeRoleWithWebIdentity", err)
	_, err = whoAmI(t, other, token(t, cluster, "writer", ""))
	refused("the token for the API", "Incorrect token audience", err)
	_, err = whoAmI(t, other, token(t, cluster, "writer", "vault"))
	refused("a token for someone else", "Incorrect token audience", err)
	if err := apiAccepts(t, cluster, token(t, cluster, "writer", "sts.amazonaws.com")); err == nil {
		t.Error("the API accepts the token for AWS")
	}
	if err := apiAccepts(t, cluster, token(t, cluster, "writer", "")); err != nil {
		t.Errorf("the API refuses its own token: %v", err)
	}
	// Someone with a key of their own forges a token, with the id of the published key and with its own.
	stranger := kubetest.Start(t, kubetest.Options{ControllerManager: true, Issuer: labIssuer})
	if err := newAccount(t, stranger, "reader", nil); err != nil {
		t.Fatal(err)
	}
	forged := token(t, stranger, "reader", "sts.amazonaws.com")
	reader := map[string]string{"AWS_ROLE_ARN": roleARN("reader")}
	_, err = whoAmI(t, reader, forged)
	refused("a token of another cluster", "Token signature invalid", err)
	genuine := token(t, cluster, "reader", "sts.amazonaws.com")
	header, _, _ := strings.Cut(genuine, ".")
	_, rest, _ := strings.Cut(forged, ".")
	_, err = whoAmI(t, reader, header+"."+rest)
	refused("a forged token with the id of our key", "Token signature invalid", err)

	// Rotation: the next key is published beside the first, signs then, and the first one goes.
	_, strangerPublic := stranger.ServiceAccountKey()
	both := filepath.Join(t.TempDir(), "both.pub")
	join(t, both, public, strangerPublic)
	publish(t, both)
	if got, err := whoAmI(t, reader, genuine); err != nil || !strings.Contains(got, "/reader/") {
		t.Errorf("the first key, beside the second: %q: %v", got, err)
	}
	if got, err := whoAmI(t, reader, forged); err != nil || !strings.Contains(got, "/reader/") {
		t.Errorf("the second key: %q: %v", got, err)
	}
	publish(t, strangerPublic)
	_, err = whoAmI(t, reader, genuine)
	refused("the first key after the rotation", "Token signature invalid", err)
}

// apiAccepts uses a token for a request.
func apiAccepts(t *testing.T, cluster *kubetest.Cluster, bearer string) error {
	t.Helper()
	request := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: bearer}}
	review, err := cluster.Admin().AuthenticationV1().TokenReviews().Create(
		t.Context(), request, metav1.CreateOptions{},
	)
	if err == nil && !review.Status.Authenticated {
		err = fmt.Errorf("not authenticated: %s", review.Status.Error)
	}
	return err
}

func join(t *testing.T, path string, files ...string) {
	t.Helper()
	var all []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPublishedKeysAreThoseOfTheAPI compares what we publish with what the API server itself serves.
func TestPublishedKeysAreThoseOfTheAPI(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	second := filepath.Join(dir, "second.pub")
	if err := os.WriteFile(second, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := kubetest.Start(t, kubetest.Options{Issuer: labIssuer, APIServerFlags: []string{
		"--service-account-key-file=" + second, "--service-account-jwks-uri=" + labIssuer + "/" + issuer.KeysPath,
	}})
	_, public := cluster.ServiceAccountKey()
	both := filepath.Join(dir, "both.pub")
	join(t, both, public, second)
	content, err := os.ReadFile(both)
	if err != nil {
		t.Fatal(err)
	}
	want, err := issuer.NewDocuments(labIssuer, content)
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string, into any) {
		t.Helper()
		answer, err := cluster.Admin().Discovery().RESTClient().Get().AbsPath("/" + path).DoRaw(context.Background())
		if err == nil {
			decoder := json.NewDecoder(bytes.NewReader(answer))
			decoder.DisallowUnknownFields()
			err = decoder.Decode(into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := &issuer.Documents{}
	read(issuer.DiscoveryPath, &got.Discovery)
	read(issuer.KeysPath, &got.Keys)
	if !reflect.DeepEqual(got.Discovery, want.Discovery) {
		t.Errorf("the API serves %v, we publish %v", got.Discovery, want.Discovery)
	}
	if lacks := want.Keys.Lacks(got.Keys); len(lacks) > 0 || len(got.Keys.Keys) != len(want.Keys.Keys) {
		t.Errorf("the API serves %v, we publish %v", got.Keys, want.Keys)
	}
}
