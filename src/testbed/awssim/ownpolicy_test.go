package awssim_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/testbed/awssim/iam"
)

// ownPolicyOfSnapshots is that of docs/storage.md, for this cluster.
func ownPolicyOfSnapshots(t *testing.T, cluster string) (policy iam.Policy) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```json\n")
	text, _, _ := strings.Cut(after, "```")
	text = strings.ReplaceAll(text, "cluster/prod", "cluster/"+cluster)
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return policy
}

// TestOwnPolicyOfSnapshots evaluates the policy that docs/storage.md has for those who permit what the generated one
// leaves out: it is for snapshots of the driver and of the cluster only.
func TestOwnPolicyOfSnapshots(t *testing.T) {
	policy := ownPolicyOfSnapshots(t, "prod")
	if err := policy.Validate(); err != nil {
		t.Fatal(err)
	}
	const tag = "aws:ResourceTag/"
	own := map[string][]string{tag + "kubernetes.io/cluster/prod": {"owned"}, tag + iampolicy.DriverTag: {"true"}}
	for name, c := range map[string]struct {
		context map[string][]string
		want    iam.Decision
	}{
		"own":               {own, iam.Allowed},
		"no tags":           {nil, iam.ImplicitDeny},
		"without driver":    {map[string][]string{tag + "kubernetes.io/cluster/prod": {"owned"}}, iam.ImplicitDeny},
		"another cluster's": {map[string][]string{tag + "kubernetes.io/cluster/b": {"owned"}}, iam.ImplicitDeny},
	} {
		for _, action := range []string{"ec2:EnableFastSnapshotRestores", "ec2:LockSnapshot"} {
			request := iam.Request{
				Action: action, Resource: "arn:aws:ec2:us-east-1::snapshot/snap-1", Context: c.context,
			}
			if got := iam.Evaluate([]iam.Policy{policy}, request); got != c.want {
				t.Errorf("%s of a snapshot (%s): got %d, want %d", action, name, got, c.want)
			}
		}
	}
}
