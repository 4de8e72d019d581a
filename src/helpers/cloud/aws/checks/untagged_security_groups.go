package checks

import (
	"fmt"
	"strings"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "untagged-security-groups",
	rank:     220,
	title:    "one of several security groups is tagged",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionTags,
	Needs:    facts.FromInstance | facts.FromGroups,
	run:      checkUntaggedGroups,
	fix: "Tag one of the instance's security groups; if all are other clusters', give it one of this " +
		"cluster in addition.",
})

func checkUntaggedGroups(f *facts.Facts) preflight.Outcome {
	tagged, untagged, why := splitGroups(f)
	switch {
	case why != "":
		return skipped("%s", why)
	case f.Conf.NoIngressManagement:
		return passed("DisableSecurityGroupIngress is set")
	case len(tagged) == 0 && len(untagged) > 0 && f.UntaggedGroup(untagged) == "":
		return found(foreignGroups(f, untagged))
	case len(tagged) > 0 || len(untagged) < 2:
		return passed("%s", strings.Join(append(tagged, untagged...), ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(untagged, ", "),
		Wanted:   fmt.Sprintf("tag %s on exactly one of them", f.TagKey()),
		Found:    "none is tagged",
		Why: "The cloud controller does not know which one to open for load balancers (Multiple untagged " +
			"security groups found).",
		Eventual: true,
		Fix: []preflight.Fix{
			fixes.ByCommand(
				"add the tag to the group that nodes receive traffic through",
				fixes.TagCommand(f, f.UntaggedGroup(untagged)),
			),
		},
	})
}

// foreignGroups is the finding if all security groups of the instance are other clusters'. Their tags stay as they are.
func foreignGroups(f *facts.Facts, ids []string) preflight.Finding {
	return preflight.Finding{
		Resource: strings.Join(ids, ", "),
		Wanted:   "a security group with the tag " + f.TagKey(),
		Found:    f.Group(ids[0]).Found(f.TagKey()),
		Why: "The cloud controller would open the security group of another cluster for the load balancers of this " +
			"one, or not know which one to open.",
		Eventual: true,
		Fix: []preflight.Fix{
			fixes.OwnGroup(f, ids),
			fixes.ByHand(
				"also, so that recreated VMs have it, name the group in the cloud config's vm_extension "+
					"kubernetes-%s: cloud_properties: {security_groups: [GROUP]}",
				f.Request.Role,
			),
		},
	}
}
