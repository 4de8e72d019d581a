package checks

import (
	"cmp"
	"fmt"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "tagged-security-groups",
	rank:     210,
	title:    "at most one of the instance's security groups is tagged",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionTags,
	warnsIf:  "there is only one, and it is tagged for another cluster too",
	Needs:    facts.FromInstance | facts.FromGroups,
	run:      checkTaggedGroups,
	fix:      "Keep the tag on only one of the instance's security groups (`aws ec2 delete-tags`).",
})

// splitGroups splits the ids of the instance's security groups as the cloud controller does; why is the reason if that
// is not possible.
func splitGroups(f *facts.Facts) (tagged, untagged []string, why string) {
	switch {
	case f.MetadataErr != nil:
		return nil, nil, facts.NoMetadata
	case f.GroupsErr != nil:
		return nil, nil, facts.WhyMissing("security groups", f.GroupsErr)
	}
	for _, id := range f.GroupIDs() {
		if f.IsOwnGroup(id) {
			tagged = append(tagged, id)
		} else {
			untagged = append(untagged, id)
		}
	}
	return tagged, untagged, ""
}

func checkTaggedGroups(f *facts.Facts) preflight.Outcome {
	tagged, _, why := splitGroups(f)
	switch {
	case why != "":
		return skipped("%s", why)
	case f.Conf.NoIngressManagement:
		return passed("DisableSecurityGroupIngress is set")
	case len(tagged) == 1 && len(f.Group(tagged[0]).Clusters()) > 1:
		return found(sharedGroup(f, tagged[0]))
	case len(tagged) < 2:
		return passed("%s", strings.Join(tagged, ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(tagged, ", "),
		Wanted:   "one security group of the instance with the tag " + f.TagKey(),
		Found:    fmt.Sprintf("%d have it", len(tagged)),
		Why: "The cloud controller does not know which one to open for load balancers (Multiple tagged security " +
			"groups found).",
		Eventual: true,
		Fix:      []preflight.Fix{keepTagOnOne(f, tagged)},
	})
}

// sharedGroup is the finding of a security group that is tagged for other clusters too.
func sharedGroup(f *facts.Facts, id string) preflight.Finding {
	return preflight.Finding{
		Resource: id,
		Wanted:   "a security group that is tagged for this cluster only",
		Found:    "tags of the " + clustertags.Quote(f.Group(id).Clusters()),
		Why: "The cloud controllers of all these clusters open and close the group, so load balancers of one can " +
			"connect to the nodes of the others.",
		Advisory: true,
		Fix: []preflight.Fix{
			fixes.ByHand("create a security group for the nodes of this cluster with the tag %s, name it "+
				"instead in the "+
				"cloud config's vm_extension kubernetes-%s: cloud_properties: {security_groups: [GROUP]}, recreate "+
				"the VMs (bosh recreate), then remove the tag from %s", f.TagKey(), f.Request.Role, id),
		},
	}
}

// keepTagOnOne keeps the cluster's tag on one of the instance's security groups: preferably the first that has the
// current tag and no other cluster's.
func keepTagOnOne(f *facts.Facts, tagged []string) preflight.Fix {
	all := map[string]clustertags.Tags{}
	kept, shared := "", ""
	for _, id := range tagged {
		all[id] = f.Group(id)
		switch {
		case !all[id].Has(f.TagKey()):
		case len(all[id].Clusters()) == 1:
			kept = cmp.Or(kept, id)
		default:
			shared = cmp.Or(shared, id)
		}
	}
	return fixes.KeepTagOn(f, cmp.Or(kept, shared, tagged[0]), all)
}
