package checks

import (
	"fmt"
	"strings"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/subnetchoice"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "internal-subnets",
	rank:     200,
	title:    "there is a subnet for internal load balancers",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionSubnets,
	Needs:    fromVPC,
	run:      onChoice(true, checkInternalSubnets),
	fix:      "Tag a subnet in a regular zone for the cluster.",
})

var _ = register(Check{
	ID:       "internal-subnet-choice",
	rank:     480,
	title:    "the choice of internal subnets does not depend on ids",
	severity: preflight.Warn,
	Roles:    controlOnly,
	section:  sectionSubnets,
	Needs:    fromVPC,
	run:      onChoice(true, checkSubnetChoice),
	fix:      "Tag one subnet in each zone with `kubernetes.io/role/internal-elb`.",
})

// tagForInternal makes a subnet eligible for internal load balancers: the instance's own if that is in a regular zone.
func tagForInternal(f *facts.Facts) preflight.Fix {
	best := ""
	for _, s := range f.Subnets {
		better := best == "" || s.ID == f.SubnetID() || s.ID < best && best != f.SubnetID()
		if better && f.Choices().IsRegular(s.Zone) {
			best = s.ID
		}
	}
	if best == "" {
		return fixes.ByHand(
			"create a subnet in a zone of the type %s, and tag it: internal load balancers cannot be in other zones",
			subnetchoice.RegularZone,
		)
	}
	return fixes.TagForCluster(f, best)
}

func checkInternalSubnets(f *facts.Facts, choice subnetchoice.Choice) preflight.Outcome {
	if len(choice.Zones) > 0 {
		return passed("%s", strings.Join(choice.IDs(), ", "))
	}
	return found(preflight.Finding{
		Resource: f.VPCID(),
		Wanted:   "a subnet tagged for the cluster or for none, in a zone of the type " + subnetchoice.RegularZone,
		Found:    fmt.Sprintf("none of %d subnets", len(f.Subnets)),
		Why:      "The cloud controller would not find any suitable subnet for an internal load balancer.",
		Eventual: true,
		Fix:      []preflight.Fix{tagForInternal(f)},
	})
}
