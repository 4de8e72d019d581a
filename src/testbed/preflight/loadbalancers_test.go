package preflight_test

import (
	"strings"
	"testing"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// TestLoadBalancerControllerPermissions: the preflight names what the policy of a cluster without the AWS Load Balancer
// Controller lacks, and is satisfied with the policy for it. Without the controller it asks for nothing more.
func TestLoadBalancerControllerPermissions(t *testing.T) {
	for name, test := range map[string]struct{ deployed, allowed, passes bool }{
		"without the controller":              {passes: true},
		"with it, and the policy for it":      {deployed: true, allowed: true, passes: true},
		"with it, and the policy without it":  {deployed: true},
		"policy for it before it is deployed": {allowed: true, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			i := simulatedInstance(1, preflight.Control)
			sim := simulate(t, func(w *store.World) {
				w.Instances = []store.Instance{i}
				store.Find(w.Roles, "kubernetes-control").Policies = enforced(t, aws.PolicyOptions{
					Role: preflight.Control, Cluster: "prod", VPC: awssim.LabVPC, LoadBalancerController: test.allowed,
				})
			})
			r := sim.run(t, i, preflight.Control, func(_ *aws.Provider, c *awstest.Config) {
				c.LoadBalancerController = test.deployed
			})
			for id, action := range map[string]string{
				"load-balancer-write-permissions": "elasticloadbalancing:CreateRule",
				"other-permissions":               "acm:ListCertificates",
			} {
				got := result(r, id)
				if passed := got.Status == preflight.Passed; passed != test.passes {
					t.Errorf("%s: %s\n%s", id, got.Status, text(r))
				}
				if !test.passes && !strings.Contains(text(r), action) {
					t.Errorf("%s is not named:\n%s", action, text(r))
				}
			}
		})
	}
}
