package gather

import (
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/preflight"
)

// FuzzProfileARN: the ARN of the role that IAM is asked about is derived from the ARN of the instance profile.
func FuzzProfileARN(f *testing.F) {
	f.Add("arn:aws:iam::123456789012:instance-profile/team/kubernetes-control")
	f.Add("arn:aws-cn:iam::1:x")
	f.Add("arn:")
	f.Fuzz(func(t *testing.T, profile string) {
		facts := &facts.Facts{
			Conf:        &cloudconfig.Config{},
			Profile:     profile,
			Credentials: metadata.Credentials{Role: "r"},
			Request:     preflight.Config{Cluster: "prod", Role: preflight.Control},
			Settings:    facts.Settings{ConfigureCloudRoutes: true},
		}
		asked, known := facts.MachineIdentity()
		if !known {
			return
		}
		for _, q := range policyQuestions(facts, asked) {
			if len(q.Actions) == 0 {
				t.Errorf("a question without actions: %+v", q)
			}
			for _, r := range q.Resources {
				if !strings.HasPrefix(r, "arn:") {
					t.Errorf("asks about %q", r)
				}
			}
		}
	})
}
