package preflight_test

import (
	"net/netip"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

const (
	ccmRole       = "arn:aws:iam::" + awssim.LabAccount + ":role/ccm"
	balancerGroup = "sg-0a0b0c0d0e0f00009"
	withRoutes    = "RouteTableID = rtb-0a0b0c0d0e0f00001" // the table has no tag
)

// routingPolicy is the policy of a control VM whose cloud controller manager sets routes.
var routingPolicy = aws.PolicyOptions{Role: preflight.Control, Cluster: "prod", CloudRoutes: true, VPC: awssim.LabVPC}

// configurations are those of the cloud controller, and what makes the preflight fail or warn with them.
var configurations = map[string]struct {
	conf    string
	prepare func(*store.World)
	without func(*testing.T, *store.World) // makes it fail again
	check   string                         // that then fails or warns
	warns   bool
	found   string
	unused  []string // actions that the policy for the configuration does not have
}{
	"RouteTableID": {
		conf: withRoutes, check: "other-permissions", found: "ec2:CreateRoute",
		without: func(t *testing.T, w *store.World) { w.Roles[0].Policies = enforced(t, routingPolicy) },
	},
	"RouteTableID, no such table": {
		conf: withRoutes, check: "cloud-routes-table", found: "none",
		without: func(_ *testing.T, w *store.World) { w.RouteTables[0].ID = "rtb-0a0b0c0d0e0f00008" },
	},
	"VPC of another one's policy": {
		conf: withRoutes, check: "security-group-permissions", found: "ec2:CreateSecurityGroup",
		without: func(t *testing.T, w *store.World) {
			w.Roles[0].Policies = enforced(
				t, aws.PolicyOptions{Role: preflight.Control, Cluster: "prod", CloudRoutes: true, VPC: "vpc-1"},
			)
		},
	},
	"VPC and SubnetID": {
		conf: withRoutes + "\nVPC = " + awssim.LabVPC + "\nSubnetID = " +
			"subnet-0a0b0c0d0e0f00011\nKubernetesClusterID = prod",
		check: "cloud-config-scope", found: awssim.LabVPC,
		without: func(_ *testing.T, w *store.World) {
			w.VPCs = append(w.VPCs, store.VPC{ID: "vpc-2", CIDR: netip.MustParsePrefix("127.78.0.0/16")})
			w.Subnets = append(
				w.Subnets,
				store.Subnet{
					ID: "subnet-2", VPC: "vpc-2", AvailabilityZone: "us-east-1a",
					CIDR: netip.MustParsePrefix("127.78.0.0/20"),
				},
			)
			own := &w.Instances[0]
			own.Subnet, own.Address, own.SecurityGroups = "subnet-2", netip.MustParseAddr("127.78.0.9"), nil
		},
	},
	"ElbSecurityGroup": {
		conf: withRoutes + "\nElbSecurityGroup = " + balancerGroup, check: "load-balancer-security-group",
		found: "InvalidGroup.NotFound",
		prepare: func(w *store.World) {
			w.SecurityGroups = append(
				w.SecurityGroups, store.SecurityGroup{ID: balancerGroup, Name: "balancers", VPC: awssim.LabVPC},
			)
		},
		without: func(_ *testing.T, w *store.World) { w.SecurityGroups = w.SecurityGroups[:1] },
		unused:  []string{"ec2:CreateSecurityGroup", "ec2:CreateTags", "ec2:DeleteSecurityGroup"},
	},
	"ElbSecurityGroup of another VPC": {
		conf: withRoutes + "\nElbSecurityGroup = " + balancerGroup, check: "load-balancer-security-group",
		found: "belongs to vpc-2",
		prepare: func(w *store.World) {
			w.VPCs = append(w.VPCs, store.VPC{ID: "vpc-2", CIDR: netip.MustParsePrefix("127.78.0.0/16")})
			w.SecurityGroups = append(
				w.SecurityGroups, store.SecurityGroup{ID: balancerGroup, Name: "balancers", VPC: awssim.LabVPC},
			)
		},
		without: func(_ *testing.T, w *store.World) { w.SecurityGroups[1].VPC = "vpc-2" },
	},
	"DisableSecurityGroupIngress": {
		conf: withRoutes + "\nDisableSecurityGroupIngress = true", check: "node-ports", warns: true,
		found: "none",
		prepare: func(w *store.World) {
			w.SecurityGroups[0].Ingress = append(
				w.SecurityGroups[0].Ingress,
				store.Rule{Protocol: "tcp", FromPort: 30000, ToPort: 32767, CIDR: "127.77.0.0/16"},
			)
		},
		without: func(_ *testing.T, w *store.World) {
			w.SecurityGroups[0].Ingress = w.SecurityGroups[0].Ingress[:1]
		},
	},
	"DisableSecurityGroupIngress and ElbSecurityGroup": {
		conf:  withRoutes + "\nDisableSecurityGroupIngress = true\nElbSecurityGroup = " + balancerGroup,
		check: "node-ports", warns: true, found: "none",
		prepare: func(w *store.World) {
			w.SecurityGroups = append(
				w.SecurityGroups, store.SecurityGroup{ID: balancerGroup, Name: "balancers", VPC: awssim.LabVPC},
			)
			w.SecurityGroups[0].Ingress = append(
				w.SecurityGroups[0].Ingress, store.Rule{Protocol: "-1", Group: balancerGroup},
			)
		},
		without: func(_ *testing.T, w *store.World) {
			w.SecurityGroups[0].Ingress = w.SecurityGroups[0].Ingress[:1]
		},
		unused: []string{
			"ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress", "ec2:CreateSecurityGroup",
		},
	},
	"RoleARN, trust": {
		conf: withRoutes + "\nRoleARN = " + ccmRole, check: "assumed-role", found: "sts:AssumeRole",
		without: func(_ *testing.T, w *store.World) { w.Roles[2].TrustedBy = nil },
		unused:  []string{"ec2:CreateSecurityGroup", "elasticloadbalancing:CreateLoadBalancer"},
	},
	"RoleARN, permission to assume": {
		conf: withRoutes + "\nRoleARN = " + ccmRole, check: "assumed-role", found: "sts:AssumeRole",
		without: func(t *testing.T, w *store.World) { w.Roles[0].Policies = enforced(t, routingPolicy) },
	},
	"RoleARN, permissions of the role": {
		conf: withRoutes + "\nRoleARN = " + ccmRole, check: "ec2-read-permissions",
		found:   "ec2:DescribeInstances",
		without: func(_ *testing.T, w *store.World) { w.Roles[2].Policies = nil },
	},
	"RoleARN, load balancers of the role": {
		conf: withRoutes + "\nRoleARN = " + ccmRole, check: "load-balancer-write-permissions",
		found: "no policy",
		without: func(t *testing.T, w *store.World) {
			w.Roles[2].Policies = enforced(t,
				aws.PolicyOptions{Role: preflight.Control, Cluster: "prod", CloudRoutes: true, AssumedRole: true,
					CloudConfig: []byte("[Global]\n" + withRoutes + "\nRoleARN = " + ccmRole + "\n"),
				}, "elasticloadbalancing:CreateLoadBalancer")
		},
	},
}

// TestConfigurationAndPolicy checks a configuration and the policies together, as the simulator enforces them: with
// those that are generated for the configuration the machine passes, and with others, or without what the configuration
// names, it does not.
func TestConfigurationAndPolicy(t *testing.T) {
	for name, test := range configurations {
		t.Run(name, func(t *testing.T) {
			conf := "[Global]\n" + test.conf + "\n"
			configured := routingPolicy
			configured.CloudConfig = []byte(conf)
			off := false
			run := func(without bool) (*preflight.Report, preflight.Result) {
				i := simulatedInstance(1, preflight.Control)
				i.SourceDestCheck = &off
				sim := simulate(t, func(w *store.World) {
					w.Instances = []store.Instance{i}
					w.Roles[0].Policies = enforced(t, configured)
					if strings.Contains(conf, "RoleARN") {
						other := configured
						other.AssumedRole = true
						w.Roles = append(
							w.Roles,
							store.Role{
								Name:      "ccm",
								Policies:  enforced(t, other),
								TrustedBy: []string{"arn:aws:iam::" + awssim.LabAccount + ":root"},
							},
						)
					}
					if test.prepare != nil {
						test.prepare(w)
					}
					if without {
						test.without(t, w)
						i = w.Instances[0]
					}
				})
				r := sim.runConfigured(
					t, i, preflight.Control, conf,
					func(_ *aws.Provider, c *awstest.Config) { c.ConfigureCloudRoutes = true },
				)
				return r, result(r, test.check)
			}
			if r, _ := run(false); r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
				t.Errorf("want no findings with the generated policy:\n%s", text(r))
			}
			r, got := run(true)
			want := preflight.Failed
			if test.warns {
				want = preflight.Warned
			}
			seen := ""
			for _, f := range got.Findings {
				seen += f.Resource + " " + f.Found + " " + f.Wanted
			}
			if got.Status != want || !strings.Contains(seen, test.found) {
				t.Errorf("%s is %q, want %q with %q:\n%s", test.check, got.Status, want, test.found, text(r))
			}
			policy, err := aws.NewPolicy(configured)
			if err != nil {
				t.Fatal(err)
			}
			content, _ := policy.JSON()
			for _, action := range test.unused {
				if strings.Contains(string(content), action+`"`) {
					t.Errorf(
						"the policy allows %s, which the cloud controller does not call with this configuration",
						action,
					)
				}
			}
		})
	}
}
