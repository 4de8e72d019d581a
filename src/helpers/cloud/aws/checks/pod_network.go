package checks

import (
	"net/netip"
	"strings"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "pod-network-ingress",
	rank:     390,
	title:    "a security group of the instance admits the pod network",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionSubnets,
	warnsIf:  "`configure_cloud_routes` is not set: a CNI of your own may use other addresses",
	advisory: func(f *facts.Facts) bool { return !f.Settings.ConfigureCloudRoutes },
	Needs:    facts.FromGroups,
	run:      checkPodIngress,
	fix:      "`aws ec2 authorize-security-group-ingress --protocol all --cidr POD_NETWORK`.",
})

// checkPodIngress: pods are not members of a security group, so only a rule with their network admits their packets.
func checkPodIngress(f *facts.Facts) preflight.Outcome {
	switch {
	case !f.PodsRouted():
		return passed("the pod network is encapsulated")
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case f.GroupsErr != nil:
		return skipped("%s", facts.WhyMissing("security groups", f.GroupsErr))
	}
	var ids []string
	for _, g := range f.Groups {
		ids = append(ids, g.ID)
	}
	rules := ingressOf(f.Groups)
	pods := netip.MustParsePrefix(f.Settings.PodNetwork).Masked() // it is validated
	admitted := func(admits func(resource.Rules) bool) bool {     // port 0 is not used
		return rules.Each("tcp", 1, 65535, admits) && rules.Each("udp", 1, 65535, admits)
	}
	covered := func(r resource.Rules) bool { return resource.Cover(r.Networks(), pods) }
	switch {
	case admitted(covered):
		return passed("%s", f.Settings.PodNetwork)
	case len(ids) == 0:
		return instanceMissing(f)
	case admitted(func(r resource.Rules) bool { return covered(r) || len(r.Lists()) > 0 }):
		return skipped(
			"what is in %s is not read; it must contain %s", strings.Join(rules.Lists(), ", "), f.Settings.PodNetwork,
		)
	}
	allow := fixes.AWS(f,
		"ec2", "authorize-security-group-ingress", "--group-id", fixes.Word(f.ManagedGroup(ids), "group"), "--protocol",
		"all", "--cidr", f.Settings.PodNetwork,
	)
	fix := fixes.ByCommand("allow the pod network to connect to the nodes", allow)
	if f.GroupsErr == nil && f.ManagedGroup(ids) == "" {
		fix = fixes.OwnGroupFirst(f)
	}
	return found(preflight.Finding{
		Resource: strings.Join(ids, ", "),
		Wanted:   "a rule that allows all traffic from " + f.Settings.PodNetwork,
		Found:    "none",
		Why: "AWS drops what pods send to this node and its pods: a rule that names the group does not apply to " +
			"addresses of pods.",
		Eventual: true,
		Fix:      []preflight.Fix{fix},
	})
}
