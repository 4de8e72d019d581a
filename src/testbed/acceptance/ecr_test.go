package acceptance

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"kubernetes-release/testbed/lab/network"
)

// aws runs the AWS CLI on this machine as the operator of the simulated account.
func (l *lab) aws(t *testing.T, args ...string) string {
	t.Helper()
	script := fmt.Sprintf(`. %s/aws.env && exec aws "$@"`, l.state)
	out, err := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "aws"}, args...)...).
		CombinedOutput()
	if err != nil {
		t.Fatalf("aws %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// pushToECR pushes an image that holds nothing to run to a new repository of the simulated account, as an operator
// would, and returns its name.
func (l *lab) pushToECR(t *testing.T, repository string) string {
	t.Helper()
	uri := l.aws(
		t, "ecr", "create-repository", "--repository-name", repository, "--query", "repository.repositoryUri",
		"--output", "text",
	)
	reference, err := name.ParseReference(uri + ":1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	gateway := net.JoinHostPort(network.Network{Number: l.networkNumber()}.Gateway().String(), "443")
	transport := remote.DefaultTransport.(*http.Transport).Clone()
	ca, err := os.ReadFile(filepath.Join(l.state, "cloud-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	// This machine does not ask the lab's DNS.
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", gateway)
	}
	login := &authn.Basic{Username: "AWS", Password: l.aws(t, "ecr", "get-login-password")}
	if err := remote.Write(
		reference, image, remote.WithAuth(login), remote.WithTransport(transport), remote.WithContext(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
	return reference.String()
}

// pullEvents starts a pod with the image on a worker and waits for an event with the text.
func (l *lab) pullEvents(t *testing.T, pod, image, want string) {
	t.Helper()
	l.pullEventsIn(t, "worker", pod, image, want)
}

// pullEventsIn does the same in another instance group, whose taints the pod tolerates.
func (l *lab) pullEventsIn(t *testing.T, group, pod, image, want string) {
	t.Helper()
	l.mustKubectl(t, "", "run", pod, "--image="+image, "--image-pull-policy=Always", "--restart=Never",
		`--overrides={"spec": {"nodeSelector": {"bosh.io/instance-group": "`+group+`"}, `+
			`"tolerations": [{"operator": "Exists"}]}}`)
	waitFor(t, time.Minute, "the event "+want, func() error {
		out, err := l.kubectl(
			t,
			"",
			"get",
			"events",
			"--field-selector=involvedObject.name="+pod,
			"-o",
			`jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`,
		)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("no event %q", want)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	l.mustKubectl(t, "", "delete", "pod", pod, "--wait=false")
}

// checkPullWithoutPermission takes from the workers' role what the generated policy lets it pull with. The pod's event,
// which names the image, and the preflight, which names the permission, tell it.
func (l *lab) checkPullWithoutPermission(t *testing.T, image string) {
	generated := generatedPolicy(t, "worker")
	l.cloud(
		t, http.MethodPut, "roles/kubernetes-worker/policies/kubernetes",
		bytes.ReplaceAll(generated, []byte("ecr:BatchGetImage"), []byte("ecr:ListImages")),
	)
	defer l.cloud(t, http.MethodPut, "roles/kubernetes-worker/policies/kubernetes", generated)
	l.pullEvents(t, "denied", image, "403 Forbidden")
	l.mustRun(t, 4*time.Minute, "errand", "cloud-preflight")
	report, err := json.Marshal(l.errandReport(t, "worker/0").Results)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(report), "ecr:BatchGetImage") {
		t.Errorf("the preflight does not name ecr:BatchGetImage: %s", report)
	}
}
