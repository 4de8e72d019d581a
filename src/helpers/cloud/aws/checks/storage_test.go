package checks

import (
	"fmt"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/resource"
)

// TestFullInstancesAreOneFinding has a thousand of one type without room for a volume, and one of another type.
func TestFullInstancesAreOneFinding(t *testing.T) {
	f := &facts.Facts{Conf: &cloudconfig.Config{}}
	for i := range 1000 {
		f.Machines = append(f.Machines, resource.Machine{
			ID: fmt.Sprintf("i-%04d", i), Kind: "m5.large", State: "running", Limit: 27, Volumes: 27,
		})
	}
	f.Machines = append(f.Machines, resource.Machine{
		ID: "i-other", Kind: "t3.large", State: "running", Limit: 27, Volumes: 27,
	})
	findings := checkStorageAttachments(f).Findings
	if len(findings) != 2 {
		t.Fatalf("%d findings, want one for each type", len(findings))
	}
	first := findings[0]
	for text, want := range map[string]string{
		first.Resource: "i-0000, i-0001, i-0002, i-0003, i-0004, i-0005, i-0006, i-0007, i-0008, i-0009 and 990 more",
		first.Found:    "m5.large can have 27 attachments (volumes only); 1000 instances have as many",

		findings[1].Resource: "i-other",
	} {
		if text != want {
			t.Errorf("got %q, want %q", text, want)
		}
	}
	if command := strings.Join(first.Fix[0].Commands, "\n"); !strings.Contains(command, "Values=i-0000,i-0001,") {
		t.Errorf("the command does not name instances: %s", command)
	}
}
