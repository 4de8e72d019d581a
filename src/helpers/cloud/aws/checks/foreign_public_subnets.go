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
	ID:       "foreign-public-subnets",
	rank:     450,
	title:    "no zone has only public subnets of other clusters",
	severity: preflight.Warn,
	Roles:    controlOnly,
	section:  sectionSharing,
	Needs:    fromVPC,
	run:      onChoice(false, checkForeignSubnets),
	fix:      "Tag a public subnet in the zone for this cluster as well.",
})

func checkForeignSubnets(f *facts.Facts, choice subnetchoice.Choice) preflight.Outcome {
	if len(choice.Zones) == 0 {
		return skipped("there is no public subnet for the cluster at all (see public-subnet-cluster-tag)")
	}
	var lost []string
	for _, r := range foreignPublic(f, choice) {
		if !choice.Has(r.Subnet.Zone) {
			lost = append(lost, r.Subnet.ID)
		}
	}
	if len(lost) == 0 {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: strings.Join(lost, ", "),
		Wanted:   fmt.Sprintf("tag %s, or another public subnet in the zone", f.TagKey()),
		Found:    "tagged only for other clusters",
		Why:      "Internet-facing load balancers of this cluster are not attached to these zones.",
		Fix:      []preflight.Fix{fixes.TagForCluster(f, lost...)},
	})
}
