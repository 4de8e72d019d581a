package checks

import (
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// TestClosedPortsOfForeignGroups: where every group of the instance is another cluster's, no command adds a rule.
func TestClosedPortsOfForeignGroups(t *testing.T) {
	const own, other = clustertags.Prefix + "prod", clustertags.Prefix + "other"
	for tag, want := range map[string]string{
		own: "--group-id sg-1", other: "first give the instance a security group",
	} {
		f := &facts.Facts{
			Request: preflight.Config{Cluster: "prod", Role: preflight.Worker},
			Conf:    &cloudconfig.Config{},
			Groups:  []resource.SecurityGroup{{ID: "sg-1", Tags: clustertags.Tags{tag: "owned"}}},
		}
		fix := nodePortsOf(f).closed(f, nil).Fix[0]
		if text := fix.Text + " " + strings.Join(fix.Commands, " "); !strings.Contains(text, want) ||
			strings.Contains(text, "SECURITY_GROUP_ID") {
			t.Errorf("%s: the fix is %s, want %s", tag, text, want)
		}
	}
}
