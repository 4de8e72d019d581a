package iampolicy

// loadBalancerControllerPermissions are the calls of the AWS Load Balancer Controller that the cloud controller does
// not make; pkg/aws/services in its source has all. It uses the role of the control machines' instance profile, and
// sets the cluster's tag on what it creates (its flag default-tags), so that the same conditions hold. What is left out
// is in reasons (evidence_test.go).
func loadBalancerControllerPermissions() []Permission {
	var table []Permission
	row := func(s scope, resources []string, why string, actions ...string) {
		for _, a := range actions {
			table = append(table, Permission{
				Action: a, roles: controlMachines, holder: machines, Scope: s, Resources: resources, Why: why,
				when: withLoadBalancerController,
			})
		}
	}
	const balance = "elasticloadbalancing:"
	row(
		anything, nil, "The AWS Load Balancer Controller finds load balancers and their parts with it.",
		balance+"DescribeListenerAttributes", balance+"DescribeListenerCertificates", balance+"DescribeRules",
		balance+"DescribeTags", balance+"DescribeTrustStores",
	)
	row(
		anything, nil, "The AWS Load Balancer Controller finds the network of load balancers and targets with it.",
		"ec2:DescribeNetworkInterfaces", "ec2:DescribeVpcs",
	)
	const pools = "The AWS Load Balancer Controller gives load balancers addresses of a pool of IPAM with it."
	row(anything, nil, pools, "ec2:DescribeIpamPools")
	row(
		anything, nil, "The AWS Load Balancer Controller finds the certificates of Ingresses with it.",
		"acm:DescribeCertificate", "acm:ListCertificates",
	)
	const tag = "The AWS Load Balancer Controller tags what it has created with it."
	row(changesOwn, []string{"ec2:*:*:security-group/*"}, tag, "ec2:CreateTags", "ec2:DeleteTags")
	parts := []string{
		"elasticloadbalancing:*:*:loadbalancer/*", "elasticloadbalancing:*:*:listener/*",
		"elasticloadbalancing:*:*:targetgroup/*",
	}
	row(changesOwn, parts, tag, balance+"AddTags", balance+"RemoveTags")
	const change = "The AWS Load Balancer Controller changes load balancers with it."
	row(
		changesOwn, parts, change, balance+"AddListenerCertificates", balance+"CreateRule",
		balance+"ModifyListenerAttributes", balance+"RemoveListenerCertificates", balance+"SetIpAddressType",
		balance+"SetSubnets",
	)
	row(changesOwn, parts, pools, balance+"ModifyIpPools")
	rule := []string{"elasticloadbalancing:*:*:listener-rule/*"}
	row(TagsNew, rule, "The AWS Load Balancer Controller tags the rules of listeners with it.", balance+"AddTags")
	row(changesOwn, rule, tag, balance+"AddTags", balance+"RemoveTags")
	row(changesOwn, rule, change, balance+"DeleteRule", balance+"ModifyRule", balance+"SetRulePriorities")
	return table
}

func withLoadBalancerController(n Needs) bool { return n.LoadBalancerController }
