package preflight_test

import (
	"os"
	"testing"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim/store"
)

const testSecretsKey = "arn:aws:kms:us-east-1:123456789012:key/99999999-2222-3333-4444-555555555555"

// TestEncryptionKeyFixes runs what kms-key advises. A key that can be used takes two calls, and none is asked about
// without the property and on workers.
func TestEncryptionKeyFixes(t *testing.T) {
	for name, test := range map[string]struct {
		key     store.KMSKey
		without bool // the policy
		passes  bool
	}{
		"can be used":         {passes: true},
		"disabled":            {key: store.KMSKey{State: store.KeyDisabled}},
		"pending deletion":    {key: store.KMSKey{State: store.KeyPendingDeletion}},
		"its policy excludes": {key: store.KMSKey{ExcludesIAM: true}},
		"no permission":       {without: true},
	} {
		t.Run(name, func(t *testing.T) {
			i, worker := simulatedInstance(1, preflight.Control), simulatedInstance(2, preflight.Worker)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i, worker}
				test.key.ARN = testSecretsKey
				w.KMSKeys = []store.KMSKey{test.key}
				generated(t, w)
				if test.without {
					return
				}
				role := store.Find(w.Roles, "kubernetes-control")
				role.Policies = enforced(t, aws.PolicyOptions{
					Role: preflight.Control, Cluster: "prod", CloudRoutes: true, Secrets: []string{testSecretsKey},
				})
			})
			check := func(want preflight.Status) [][]preflight.Fix {
				t.Helper()
				r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) {
					c.EncryptionKey = testSecretsKey
				})
				if got := result(r, "kms-key"); got.Status != want {
					t.Fatalf("%s, want %s:\n%s", got.Status, want, text(r))
				}
				return fixesOf(r)
			}
			if !test.passes {
				fixes := check(preflight.Failed)
				if err := cli(t).Paste(
					os.Getenv("AWS_ENDPOINT_URL"), fixes[0][0].Commands, operatorKnows(sim.Simulator),
				); err != nil {
					t.Fatal(err)
				}
			}
			sim.ForgetCalls()
			check(preflight.Passed)
			if calls := sim.Calls("kms:*"); len(calls) != 2 {
				t.Errorf("%d calls of KMS, want 2", len(calls))
			}
			sim.ForgetCalls()
			sim.run(t, i, preflight.Control, nil)
			sim.run(t, worker, preflight.Worker, func(_ *aws.Provider, c *awstest.Config) {
				c.EncryptionKey = testSecretsKey
			})
			if calls := sim.Calls("kms:*"); len(calls) != 0 {
				t.Errorf("%d calls of KMS without a key and on a worker", len(calls))
			}
		})
	}
}
