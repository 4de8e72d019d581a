package checks

import (
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "load-balancer-security-group",
	rank:     230,
	title:    "the configured security group of load balancers exists",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionConfig,
	Needs:    facts.FromGroups,
	run:      checkBalancersGroup,
	fix:      "Correct `ElbSecurityGroup` in the property `config`.",
})

var _ = register(Check{
	ID:       "load-balancer-permissions",
	rank:     260,
	title:    "the role can describe load balancers",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPolicies,
	Needs:    facts.FromProbes,
	run:      checkLoadBalancerPermissions,
	fix:      "Attach the generated policy.",
})

var _ = register(Check{
	ID:       "load-balancer-write-permissions",
	rank:     270,
	title:    "the role can create and manage load balancers",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPolicies,
	warnsIf:  rarelyUsedOnly,
	Needs:    facts.FromPolicies,
	run:      checkLoadBalancerWrites,
	fix:      "Attach the generated policy.",
})

var _ = register(Check{
	ID:       "load-balancer-endpoint",
	rank:     330,
	title:    "the load balancer APIs answer",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPrivate,
	Needs:    facts.FromProbes,
	run:      checkLoadBalancerEndpoint,
	fix:      "A route to the internet, or a VPC endpoint for elasticloadbalancing.",
})

func checkLoadBalancerPermissions(f *facts.Facts) preflight.Outcome {
	return testedBy(f, "elasticloadbalancing:DescribeLoadBalancers")
}

func checkLoadBalancerEndpoint(f *facts.Facts) preflight.Outcome {
	asked := false
	for _, p := range f.Probes {
		if !strings.HasPrefix(p.Action, "elasticloadbalancing:") {
			continue
		}
		asked = true
		switch awserr.Classify(p.Err) {
		case awserr.Unreachable, awserr.Server, awserr.Malformed, awserr.Throttled, awserr.Other:
			return found(preflight.Finding{
				Resource: "elasticloadbalancing." + f.Region(),
				Wanted:   "answers from the load balancer APIs",
				Found:    p.Resource + ": " + awserr.Describe(p.Err),
				Why:      "Services of type LoadBalancer would stay pending.",
				Eventual: true,
				Fix:      fixes.Endpoint(f, "elasticloadbalancing"),
			})
		}
	}
	if !asked {
		return skipped(noCalls)
	}
	return passed("")
}

// checkBalancersGroup checks the security group that all load balancers get.
func checkBalancersGroup(f *facts.Facts) preflight.Outcome {
	id := f.Conf.ElbSecurityGroup
	switch {
	case id == "":
		return passed("the cloud controller creates one for each load balancer")
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case f.BalancersErr != nil && awserr.Classify(f.BalancersErr) != awserr.UnknownID:
		return skipped("%s", facts.WhyMissing("security group", f.BalancersErr))
	}
	finding := preflight.Finding{
		Resource: id,
		Wanted:   "a security group of " + f.VPCID(),
		Why:      "ElbSecurityGroup names it, so the cloud controller could not create any load balancer.",
		Eventual: true,
		Fix: []preflight.Fix{
			fixes.ByHand(
				"correct ElbSecurityGroup in the property config of the job cloud-provider; without it the cloud " +
					"controller creates a group for each load balancer",
			),
		},
	}
	switch {
	case f.BalancersErr != nil:
		finding.Found = awserr.Describe(f.BalancersErr)
	case f.Balancers != nil && f.Balancers.VPC != "" && f.Balancers.VPC != f.VPCID():
		finding.Found = "it belongs to " + f.Balancers.VPC
	default:
		return passed("%s", id)
	}
	return found(finding)
}

func checkLoadBalancerWrites(f *facts.Facts) preflight.Outcome {
	if outcome, done := withoutPolicies(f, iampolicy.IsLoadBalancing); done {
		return outcome
	}
	return byPolicy(f, iampolicy.IsLoadBalancing)
}
