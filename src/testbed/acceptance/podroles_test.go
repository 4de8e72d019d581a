package acceptance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
)

const (
	issuerURL = "https://lab-issuer.s3." + awssim.LabRegion + ".amazonaws.com/lab"
	tokenFile = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
	roledPods = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: shop, annotations: {eks.amazonaws.com/role-arn: ROLE}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: thief, namespace: shop, annotations: {eks.amazonaws.com/role-arn: ROLE}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: plain, namespace: shop}
`
	roledPod = `---
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop}
spec:
  serviceAccountName: ACCOUNT
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: IMAGE, imagePullPolicy: Never}]
`
)

// TestSoakPodRoles changes the issuer of a running cluster as docs/pod-roles.md says, in an account that is prepared by
// the commands of that page. Then kubelet gives a pod a token with which STS answers for the role of its
// ServiceAccount, and for no other.
func TestSoakPodRoles(t *testing.T) {
	l := soak(t)
	l.deploy(t)
	l.prepareForRoles(t)
	enable := []string{"ops-files/enable-pod-roles.yml"}
	l.vars = []string{
		"service_account_issuer=" + issuerURL, "service_account_issuer_bucket=lab-issuer", "region=" + awssim.LabRegion,
	}
	l.ops = enable
	if out, err := l.up(); err == nil || !strings.Contains(out, "service_account.accepted_issuers") {
		t.Fatalf("a change of the issuer in one step: %v\n%s", err, tail.Lines(out, 40))
	}
	l.ops = slices.Concat(enable, []string{"ops-files/keep-service-account-issuer.yml"})
	l.deploy(t)
	l.ops = enable
	l.deploy(t)

	role := "arn:aws:iam::" + awssim.LabAccount + ":role/shop-reader"
	pods := strings.ReplaceAll(roledPods, "ROLE", role)
	for _, name := range []string{"reader", "thief", "plain"} {
		pods += podOfAccount(name, name)
	}
	image := l.smokeImage(t)
	l.mustKubectl(t, strings.ReplaceAll(pods, "IMAGE", image), "apply", "-f", "-")
	l.mustKubectl(t, "", "-n", "shop", "wait", "pod", "--all", "--for=condition=Ready", "--timeout=2m")

	if got, err := l.assume(t, "reader", role); err != nil || !strings.Contains(got, ":assumed-role/shop-reader/") {
		t.Errorf("the pod of reader is %q: %v", got, err)
	}
	if got, err := l.assume(t, "thief", role); err == nil || !strings.Contains(err.Error(), "Not authorized") {
		t.Errorf("the pod of thief is %q: %v", got, err)
	}
	if out := l.mustKubectl(t, "", "-n", "shop", "get", "pod", "plain", "-o", "yaml"); strings.Contains(out, "AWS_") {
		t.Errorf("the pod of a ServiceAccount without a role was changed:\n%s", out)
	}
	l.measureCredentials(t, image, role)
}

func podOfAccount(name, account string) string {
	return strings.NewReplacer("NAME", name, "ACCOUNT", account).Replace(roledPod)
}

// measureCredentials logs how long a pod takes until it has credentials, against one without a role until it runs a
// command.
func (l *lab) measureCredentials(t *testing.T, image, role string) {
	t.Helper()
	took := map[string][]time.Duration{}
	for n := range 5 {
		for _, account := range []string{"reader", "plain"} {
			name := fmt.Sprint(account, "-", n)
			started := time.Now()
			l.mustKubectl(t, strings.ReplaceAll(podOfAccount(name, account), "IMAGE", image), "apply", "-f", "-")
			l.mustKubectl(t, "", "-n", "shop", "wait", "pod", name, "--for=condition=Ready", "--timeout=2m")
			if account == "plain" {
				l.mustKubectl(t, "", "-n", "shop", "exec", name, "--", "/smoke-server", "hostname")
				l.mustKubectl(t, "", "-n", "shop", "get", "pod", name, "-o", "name") // assume does too
			} else if _, err := l.assume(t, name, role); err != nil {
				t.Errorf("pod %s: %v", name, err)
			}
			took[account] = append(took[account], time.Since(started))
		}
	}
	for _, durations := range took {
		slices.Sort(durations)
	}
	t.Logf("credentials after %v, without a role a command after %v", took["reader"], took["plain"])
}

// prepareForRoles runs the commands with which docs/pod-roles.md prepares an account, and creates the role that it
// shows.
func (l *lab) prepareForRoles(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(repo, "docs/pod-roles.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Prepare the account")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	commands, rest, _ := strings.Cut(rest, "```")
	_, commands, _ = strings.Cut(commands, "\n") // the example's names
	// What the page says of us-east-1.
	commands = strings.Replace(commands, ` --create-bucket-configuration "LocationConstraint=$region"`, "", 1)
	commands = strings.Replace(commands, "vpc-0123456789abcdef0", awssim.LabVPC, 1)
	_, rest, _ = strings.Cut(rest, "```json\n")
	trust, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/pod-roles.md has no commands and no trust policy where they were")
	}
	trust = strings.NewReplacer(
		"prod-issuer.s3.eu-central-1.amazonaws.com/prod", strings.TrimPrefix(issuerURL, "https://"),
		"123456789012", awssim.LabAccount,
	).Replace(trust)
	script := fmt.Sprintf(". %s/aws.env\nset -eu\nbucket=lab-issuer region=%s cluster=lab\n%s\n"+
		"aws iam create-role --role-name shop-reader --assume-role-policy-document '%s'\n",
		l.state, awssim.LabRegion, commands, trust)
	bash := exec.CommandContext(t.Context(), "bash", "-c", script)
	bash.Dir = t.TempDir() // the page's commands start bin/cloud-preflight, and leave a policy behind
	if err := os.Symlink(filepath.Join(repo, "bin"), filepath.Join(bash.Dir, "bin")); err != nil {
		t.Fatal(err)
	}
	out, err := output(t.Context(), bash)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, script)
	}
}

// assume is what a program in a pod would be told if it used its token and this role.
func (l *lab) assume(t *testing.T, pod, role string) (string, error) {
	t.Helper()
	token := l.mustKubectl(t, "", "-n", "shop", "exec", pod, "--", "/smoke-server", "show", tokenFile)
	environment := l.mustKubectl(
		t, "", "-n", "shop", "get", "pod", pod, "-o", "jsonpath={.spec.containers[0].env[*].value}",
	)
	for _, value := range []string{role, tokenFile, awssim.LabRegion} {
		if !strings.Contains(environment, value) {
			t.Errorf("the environment of %s is %q, without %s", pod, environment, value)
		}
	}
	client := sts.New(sts.Options{BaseEndpoint: aws.String(l.awsEndpoint(t)), Region: awssim.LabRegion})
	answer, err := client.AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role, RoleSessionName: aws.String(pod + time.Now().Format("150405")), WebIdentityToken: &token,
	})
	if err != nil {
		return "", err
	}
	return *answer.AssumedRoleUser.Arn, nil
}
