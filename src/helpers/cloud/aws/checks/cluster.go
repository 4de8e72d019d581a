package checks

import (
	"fmt"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "cluster-name",
	rank:     10,
	title:    "the cluster's name fits into a tag",
	severity: preflight.Fail,
	Roles:    both,
	run:      checkClusterName,
	section:  sectionTags,
	fix:      "Choose a `cluster_name` of at most 105 characters.",
})

var _ = register(Check{
	ID:       "cluster-tag-value",
	rank:     440,
	title:    "cluster tags have the value owned or shared",
	severity: preflight.Warn,
	Roles:    both,
	section:  sectionTags,
	Needs:    facts.FromInstance | facts.FromSubnets | facts.FromGroups,
	run:      checkTagValues,
	fix:      "Set the tag's value to `shared`.",
})

func checkClusterName(f *facts.Facts) preflight.Outcome {
	if err := clustertags.ValidateName(f.Cluster()); err != nil {
		return found(preflight.Finding{
			Resource: fmt.Sprintf("cluster %q", awserr.Clip(f.Cluster())),
			Wanted:   "a name that can end the tag key " + clustertags.Prefix + "NAME",
			Found:    err.Error(),
			Why:      "The tag would be truncated or rejected, and no resource could be found by it.",
			Fix: []preflight.Fix{
				fixes.ByHand("set the variable cluster_name (property cluster.name) to a shorter or simpler name"),
			},
		})
	}
	return passed("%s", f.TagKey())
}

func checkTagValues(f *facts.Facts) preflight.Outcome {
	var findings []preflight.Finding
	examine := func(id string, t clustertags.Tags) {
		value, ok := t[f.TagKey()]
		if !ok || t.IsOwnedOrShared(f.TagKey()) {
			return
		}
		findings = append(findings, preflight.Finding{
			Resource: id,
			Wanted:   fmt.Sprintf("%s with the value shared or owned", f.TagKey()),
			Found:    fmt.Sprintf("the value %q", awserr.Clip(value)),
			Why: "The cloud controller ignores the value, but other tools do not: some delete resources that " +
				"are owned, some reject any other value.",
			Fix: []preflight.Fix{fixes.ByCommand("set the value", fixes.TagCommand(f, id))},
		})
	}
	if f.Instance == nil && len(f.Subnets) == 0 {
		return instanceMissing(f)
	}
	if f.Instance != nil {
		examine(f.InstanceID(), f.Instance.Tags)
	}
	for _, s := range f.Subnets {
		examine(s.ID, s.Tags)
	}
	for _, g := range f.Groups {
		examine(g.ID, g.Tags)
	}
	return preflight.Outcome{Findings: findings}
}
