package awssim_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// registryBed is a simulator with a registry and one image in it.
type registryBed struct {
	*bed
	transport http.RoundTripper // to the registry, whatever the host
	image     name.Reference
	content   v1.Image
	clock     *clock
}

func startRegistry(t *testing.T, world *store.World) *registryBed {
	t.Helper()
	r := &registryBed{clock: &clock{}}
	r.bed = start(t, world, awssim.Options{Now: r.clock.now})
	server := httptest.NewTLSServer(r.sim.RegistryHandler())
	t.Cleanup(server.Close)
	r.transport = &http.Transport{
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
		}, //nolint:gosec // the names are not those of the test's certificate
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}
	if status, answer := r.ecr(
		r.operator(),
		"CreateRepository",
		`{"repositoryName": "team/web"}`,
	); status != http.StatusOK {
		t.Fatalf("CreateRepository: %d %s", status, answer)
	}
	var err error
	if r.image, err = name.ParseReference(world.RegistryHost() + "/team/web:1"); err != nil {
		t.Fatal(err)
	}
	if r.content, err = random.Image(1024, 2); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r.image, r.content, r.as(r.token(r.operator()))...); err != nil {
		t.Fatal(err)
	}
	return r
}

// ecr calls an action as the AWS JSON protocol has it (smithy, "AWS JSON 1.1 protocol").
func (r *registryBed) ecr(c aws.Config, action, body string) (status int, answer string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.api, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	request.Header.Set("X-Amz-Target", "AmazonEC2ContainerRegistry_V20150921."+action)
	keys, err := c.Credentials.Retrieve(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	digest := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().
		SignHTTP(
			r.t.Context(), keys, request, hex.EncodeToString(digest[:]), "ecr", c.Region, r.clock.now(),
		); err != nil {
		r.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// token returns user name and password of the registry.
func (r *registryBed) token(c aws.Config) authn.Basic {
	r.t.Helper()
	status, answer := r.ecr(c, "GetAuthorizationToken", "{}")
	var document struct {
		AuthorizationData []struct{ AuthorizationToken string }
	}
	if err := json.Unmarshal([]byte(answer), &document); err != nil || status != http.StatusOK ||
		len(document.AuthorizationData) != 1 {
		r.t.Fatalf("GetAuthorizationToken: %d %s (%v)", status, answer, err)
	}
	pair, err := base64.StdEncoding.DecodeString(document.AuthorizationData[0].AuthorizationToken)
	if err != nil {
		r.t.Fatal(err)
	}
	user, password, _ := strings.Cut(string(pair), ":")
	return authn.Basic{Username: user, Password: password}
}

func (r *registryBed) as(login authn.Basic) []remote.Option {
	return []remote.Option{remote.WithAuth(&login), remote.WithTransport(r.transport)}
}

// pull downloads the image and all its layers.
func (r *registryBed) pull(options ...remote.Option) error {
	image, err := remote.Image(r.image, append(options, remote.WithTransport(r.transport))...)
	if err != nil {
		return err
	}
	got, err := image.Digest()
	if err != nil {
		return err
	}
	if want, _ := r.content.Digest(); got != want {
		return fmt.Errorf("pulled %s, pushed %s", got, want)
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
	}
	return nil
}

// workerWorld has the generated policy for workers.
func workerWorld(t *testing.T) *store.World {
	t.Helper()
	world := testWorld(t)
	policy, err := cloudaws.NewPolicy(
		cloudaws.PolicyOptions{Role: preflight.Worker, Cluster: cluster, VPC: awssim.LabVPC},
	)
	if err != nil {
		t.Fatal(err)
	}
	document, err := policy.JSON()
	if err == nil {
		err = world.SetPolicy("kubernetes-worker", document)
	}
	if err != nil {
		t.Fatal(err)
	}
	return world
}

func TestRegistryNeedsATokenAndPermissions(t *testing.T) {
	r := startRegistry(t, workerWorld(t))
	worker := r.token(r.instanceRole(workerID))
	if err := r.pull(r.as(worker)...); err != nil {
		t.Errorf("worker with the generated policy: %v", err)
	}
	another, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"without a token": {r.pull(), "401 Unauthorized"},
		"another user": {
			r.pull(r.as(authn.Basic{Username: "me", Password: worker.Password})...),
			"Your Authorization Token is invalid",
		},
		"forged token": {
			r.pull(r.as(authn.Basic{Username: "AWS", Password: "x" + worker.Password})...),
			"Your Authorization Token is invalid",
		},
		"worker pushes": {remote.Write(r.image, another, r.as(worker)...), "403 Forbidden"},
		"repository of nobody": {push(t, r, "team/other:1"), "The repository with name 'team/other' does not " +
			"exist"},
		"token as session of role": {r.sessionToken(worker), "UnrecognizedClientException"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", what, c.err, c.want)
		}
	}
	// Permissions are those of the time of the request, not of the token.
	if err := r.sim.Update(func(w *store.World) error {
		return w.SetPolicy(
			"kubernetes-worker",
			[]byte(
				`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ecr:BatchGetImage", `+
					`"Resource": "*"}]}`,
			),
		)
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.pull(
		r.as(worker)...); err == nil ||
		!strings.Contains(
			err.Error(),
			"not authorized to perform: ecr:GetDownloadUrlForLayer on resource: "+
				"arn:aws:ecr:us-east-1:123456789012:repository/team/web",
		) {
		t.Errorf("without permission for layers: %v", err)
	}
	if status, answer := r.ecr(
		r.instanceRole(workerID), "GetAuthorizationToken", "",
	); status != http.StatusBadRequest ||
		!strings.Contains(answer, `"__type":"AccessDeniedException"`) {
		t.Errorf("token without permission: %d %s", status, answer)
	}
}

func push(t *testing.T, r *registryBed, image string) error {
	t.Helper()
	reference, err := name.ParseReference(r.image.Context().RegistryStr() + "/" + image)
	if err != nil {
		t.Fatal(err)
	}
	return remote.Write(reference, r.content, r.as(r.token(r.operator()))...)
}

// sessionToken uses a registry's token in place of the session token of a role.
func (r *registryBed) sessionToken(login authn.Basic) error {
	c := r.instanceRole(workerID)
	keys, err := c.Credentials.Retrieve(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	keys.SessionToken = login.Password
	c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return keys, nil })
	_, answer := r.ecr(c, "GetAuthorizationToken", "{}")
	return fmt.Errorf("%s", answer)
}

func TestRegistryTokenExpires(t *testing.T) {
	r := startRegistry(t, workerWorld(t))
	login := r.token(r.instanceRole(workerID))
	r.clock.advance(12*time.Hour - time.Minute)
	if err := r.pull(r.as(login)...); err != nil {
		t.Errorf("before its end: %v", err)
	}
	r.clock.advance(time.Minute)
	if err := r.pull(
		r.as(login)...); err == nil ||
		!strings.Contains(err.Error(), "Your authorization token has expired") {
		t.Errorf("after its end: %v", err)
	}
	if err := r.pull(r.as(r.token(r.instanceRole(workerID)))...); err != nil {
		t.Errorf("new token: %v", err)
	}
}

// TestLayersAreOnAnotherHost checks what a private cluster must be able to reach.
func TestLayersAreOnAnotherHost(t *testing.T) {
	r := startRegistry(t, workerWorld(t))
	layers, err := r.content.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	get := func(url string, login *authn.Basic) (status int, location string, body []byte) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if login != nil {
			request.SetBasicAuth(login.Username, login.Password)
		}
		response, err := r.transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if body, err = io.ReadAll(response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header.Get("Location"), body
	}
	login := r.token(r.instanceRole(workerID))
	status, location, _ := get("https://"+r.image.Context().RegistryStr()+"/v2/team/web/blobs/"+digest.String(), &login)
	if status != http.StatusTemporaryRedirect ||
		!strings.HasPrefix(location, "https://prod-us-east-1-starport-layer-bucket.s3.us-east-1.amazonaws.com/") {
		t.Fatalf("%d to %q, want a redirect to S3", status, location)
	}
	_, _, got := get(location, nil)
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := io.ReadAll(content); !bytes.Equal(got, want) {
		t.Errorf("got %d bytes that differ from the layer's %d", len(got), len(want))
	}
	if status, _, _ := get(
		strings.Replace(location, "X-Amz-Signature=", "X-Amz-Signature=x", 1), nil,
	); status != http.StatusForbidden {
		t.Errorf("with another signature: %d", status)
	}
}

// TestRecordedCredentialProvider pulls an image with a token that kubelet's real credential provider got for a worker,
// and compares the permissions that this requires with the record.
func TestRecordedCredentialProvider(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("needs the real credential provider, in the folder COMPONENTS_DIR")
	}
	r := startRegistry(t, workerWorld(t))
	r.sim.ForgetCalls()
	keys, err := r.instanceRole(workerID).Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const program = "ecr-credential-provider"
	provider := exec.CommandContext(t.Context(), filepath.Join(components, program, "bin", program))
	provider.Env = []string{
		"AWS_ENDPOINT_URL=" + r.api, "AWS_ACCESS_KEY_ID=" + keys.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + keys.SecretAccessKey, "AWS_SESSION_TOKEN=" + keys.SessionToken,
	}
	provider.Stdin = strings.NewReader(
		fmt.Sprintf(
			`{"kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "image": %q}`,
			r.image.String(),
		),
	)
	provider.Stderr = t.Output()
	out, err := provider.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var response struct {
		CacheDuration string
		Auth          map[string]authn.Basic
	}
	if err := json.Unmarshal(out, &response); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	login, ok := response.Auth[r.image.Context().RegistryStr()]
	if !ok || !strings.HasPrefix(response.CacheDuration, "5h59m") && response.CacheDuration != "6h0m0s" {
		t.Errorf("got %s, want a login of the registry for half of a token's lifetime", out)
	}
	if err := r.pull(r.as(login)...); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, c := range r.sim.Calls("") {
		for _, p := range c.Permissions {
			seen[p] = true
		}
	}
	compareRecord(t, "ecr-credential-provider", seen)
}
