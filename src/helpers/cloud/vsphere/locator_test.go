package vsphere

import (
	"errors"
	"strings"
	"testing"

	"kubernetes-release/node"
)

// TestLocatorAsksTheProgram tells refusals, after which the VM is not asked about again, from what may pass.
func TestLocatorAsksTheProgram(t *testing.T) {
	instance := node.Instance{Deployment: "prod", ID: "0a1b2c3d"}
	for name, test := range map[string]struct {
		script, id, want string
		refused          bool
	}{
		"found": {
			`grep -q '"deployment":"prod","id":"0a1b2c3d"' && echo '{"provider_id": "vsphere://'$1'", "refusal": ""}'`,
			"vsphere://locate", "", false,
		},
		"refused":             {`echo '{"provider_id": "", "refusal": "two VMs"}'`, "", "two VMs", true},
		"failed":              {`echo 'vCenter is down' >&2; exit 1`, "", "vCenter is down", false},
		"without the program": {"", "", "the job vcenter", false},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := vm(t, test.script).NewLocator("cloud.conf").ProviderID(t.Context(), instance)
			var refusal *node.Refusal
			if id != test.id || (err == nil) != (test.want == "") || errors.As(err, &refusal) != test.refused ||
				err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q, %v", id, err)
			}
		})
	}
}
