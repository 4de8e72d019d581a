package preflight_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

const issuerFile = `{"issuer": "https://prod-issuer.s3.us-east-1.amazonaws.com/prod", "public_keys": "/keys",
	"verify": true, "bucket": {"name": "prod-issuer", "region": "us-east-1", "prefix": "prod"}}`

// TestPermissionsOfPodRoles: IAM is asked in two questions more what job pod-roles may, what is missing is a warning,
// because the bucket's own policy can allow it, and the commands of the report allow it.
func TestPermissionsOfPodRoles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "issuer.json")
	if err := os.WriteFile(file, []byte(issuerFile), 0o600); err != nil {
		t.Fatal(err)
	}
	i := simulatedInstance(1, preflight.Control)
	sim := simulate(t, func(w *store.World) {
		w.Instances = []store.Instance{i}
		generated(t, w)
	})
	check := func(want preflight.Status, change func(*aws.Provider, *awstest.Config)) *preflight.Report {
		t.Helper()
		r := sim.run(t, i, preflight.Control, change)
		if got := result(r, "other-permissions"); got.Status != want {
			t.Fatalf("%s, want %s:\n%s", got.Status, want, text(r))
		}
		return r
	}
	questions := func() int {
		return len(slices.DeleteFunc(sim.Calls(""), func(c awssim.Call) bool {
			return c.Action != "SimulatePrincipalPolicy"
		}))
	}
	withRoles := func(_ *aws.Provider, c *awstest.Config) { c.IssuerFile = file }
	check(preflight.Passed, nil)
	before := questions()
	report := check(preflight.Warned, withRoles)
	if n := questions() - 2*before; n != 2 {
		t.Errorf("%d questions more than without pod roles, want 2", n)
	}
	for _, action := range []string{"s3:PutObject", "iam:GetOpenIDConnectProvider"} {
		if !strings.Contains(text(report), action) {
			t.Errorf("%s is not named:\n%s", action, text(report))
		}
	}
	if err := cli(t).Paste(
		os.Getenv("AWS_ENDPOINT_URL"), fixesOf(report)[0][0].Commands, operatorKnows(sim.Simulator),
	); err != nil {
		t.Fatal(err)
	}
	check(preflight.Passed, withRoles)
}

// TestPodRolesFixes runs what the errand's check advises. In a deployment it asks nothing.
func TestPodRolesFixes(t *testing.T) {
	for name, change := range map[string]func(*store.World){
		"nothing wrong":  nil,
		"private bucket": func(w *store.World) { w.ChangedBuckets = nil },
		"no provider":    func(w *store.World) { w.OIDCProviders = nil },
		"other audience": func(w *store.World) { w.OIDCProviders[0].ClientIDs = []string{"kubernetes"} },
	} {
		t.Run(name, func(t *testing.T) {
			config := issuer.Config{
				Issuer: "https://prod-issuer.s3.us-east-1.amazonaws.com/prod", Verify: true,
				PublicKeys: filepath.Join(t.TempDir(), "keys"),
				Bucket:     issuer.Bucket{Name: "prod-issuer", Region: "us-east-1", Prefix: "prod"},
			}
			writeKey(t, config.PublicKeys)
			content, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "issuer.json")
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				w.Buckets = []string{"prod-issuer"}
				w.ChangedBuckets = []store.Bucket{{
					Name: "prod-issuer", PublicAccess: true, Public: []iam.Policy{{Statement: iam.Statements{
						{Effect: "Allow", Action: iam.Strings{"s3:GetObject"}, Resource: iam.Strings{"*"}},
					}}},
				}}
				w.OIDCProviders = []store.OIDCProvider{{
					URL: strings.TrimPrefix(config.Issuer, "https://"), ClientIDs: []string{"sts.amazonaws.com"},
				}}
				generated(t, w)
				store.Find(w.Roles, "kubernetes-control").Policies = enforced(t, aws.PolicyOptions{
					Role: preflight.Control, Cluster: "prod", CloudRoutes: true, Published: config.Bucket.Objects(),
				})
				if change != nil {
					change(w)
				}
			})
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", sim.metadataFor(t, i.Address))
			if err := config.Publish(t.Context(), filepath.Join(t.TempDir(), "record"), slog.Default()); (err != nil) !=
				(change != nil) {
				t.Fatal(err)
			}
			run := func(thorough bool) *preflight.Report {
				t.Helper()
				return sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) {
					c.IssuerFile, c.Thorough = file, thorough
				})
			}
			sim.ForgetCalls()
			if got := result(run(false), "pod-roles"); got.Status != preflight.Skipped {
				t.Errorf("in a deployment: %s", got.Status)
			}
			if calls := append(sim.Calls("s3:*"), sim.Calls("iam:GetOpenIDConnectProvider")...); len(calls) > 0 {
				t.Errorf("calls in a deployment: %v", calls)
			}
			if change != nil {
				report := run(true)
				got := result(report, "pod-roles")
				if got.Status != preflight.Failed || len(got.Findings) != 1 {
					t.Fatalf("%s, want one finding:\n%s", got.Status, text(report))
				}
				commands := got.Findings[0].Fix[0].Commands
				if name == "no provider" { // as the report says for this CLI
					commands[0] += " --thumbprint-list " + strings.Repeat("0", 40)
				}
				if err := cli(t).Paste(
					os.Getenv("AWS_ENDPOINT_URL"), commands, operatorKnows(sim.Simulator),
				); err != nil {
					t.Fatal(err)
				}
			}
			if report := run(true); result(report, "pod-roles").Status != preflight.Passed {
				t.Fatalf("with the fix:\n%s", text(report))
			}
			// The published keys are not those of the cluster any more.
			writeKey(t, config.PublicKeys)
			report := run(true)
			if got := result(report, "pod-roles"); got.Status != preflight.Failed ||
				!strings.Contains(got.Findings[0].Found, "lacks keys that the API servers use") {
				t.Errorf("with another key: %s\n%s", got.Status, text(report))
			}
		})
	}
}

// writeKey writes a new public key of RSA.
func writeKey(t *testing.T, path string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTrustOfRolesIsListed runs the command of docs/pod-roles.md that shows which roles are open to more than one
// ServiceAccount.
func TestTrustOfRolesIsListed(t *testing.T) {
	const host = "prod-issuer.s3.us-east-1.amazonaws.com/prod"
	page, err := os.ReadFile("../../../docs/pod-roles.md")
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(page), "aws iam list-roles")
	if at < 0 {
		t.Fatal("docs/pod-roles.md has no command that lists roles")
	}
	listing, _, _ := strings.Cut(string(page[at:]), "\n")
	simulate(t, func(w *store.World) {
		for name, condition := range map[string]iam.Conditions{
			"open": nil, "tenant": {"StringLike": {host + ":sub": {"system:serviceaccount:shop:*"}}},
			"single": {"StringEquals": {host + ":sub": {"system:serviceaccount:shop:reader"}}},
		} {
			provider := "arn:aws:iam::123456789012:oidc-provider/" + host
			w.Roles = append(w.Roles, store.Role{Name: name, Untrusted: true, Federated: []store.FederatedTrust{
				{Providers: []string{provider}, Condition: condition},
			}})
		}
	})
	command := exec.CommandContext(t.Context(), "bash", "-c", "issuer=https://"+host+"\n"+listing)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "AWS_PAGER=", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_DEFAULT_REGION=us-east-1",
		"AWS_ENDPOINT_URL=" + os.Getenv("AWS_ENDPOINT_URL"), "AWS_ACCESS_KEY_ID=" + awssim.LabAccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + awssim.LabSecretAccessKey,
	}
	command.Args[2] = strings.Replace(
		command.Args[2], "aws iam", "aws --endpoint-url "+os.Getenv("AWS_ENDPOINT_URL")+" iam", 1, // for old CLIs
	)
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", command.Args[2], err)
	}
	var roles []struct {
		Role       string
		Conditions []iam.Conditions
	}
	if err := json.Unmarshal(output, &roles); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	got := map[string]string{}
	for _, r := range roles {
		got[r.Role] = fmt.Sprint(r.Conditions)
	}
	want := map[string]string{
		"open": "[]", "tenant": "[map[StringLike:map[" + host + ":sub:[system:serviceaccount:shop:*]]]]",
		"single": "[map[StringEquals:map[" + host + ":sub:[system:serviceaccount:shop:reader]]]]",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
