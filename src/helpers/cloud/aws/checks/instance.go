package checks

import (
	"cmp"
	"fmt"
	"slices"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "instance-profile",
	rank:     40,
	title:    "the instance has an instance profile",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionPolicies,
	Needs:    facts.FromProfile | facts.FromCredentials,
	run:      checkProfile,
	fix: "`iam_instance_profile` in the VM extension; for the running VM `aws ec2 " +
		"associate-iam-instance-profile`.",
})

var _ = register(Check{
	ID:       "instance-role",
	rank:     110,
	title:    "the instance has the configured instance profile",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionCloudConfig,
	Needs:    facts.FromProfile,
	run:      checkInstanceRole,
	fix:      "Make the VM extension's `iam_instance_profile` and `preflight.instance_profile` equal.",
})

var _ = register(Check{
	ID:       "instance-known",
	rank:     130,
	title:    "EC2 describes the instance",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionPrivate,
	Needs:    facts.FromInstance,
	run:      checkInstanceKnown,
	fix: "Wait, because EC2 shows new instances late; otherwise the endpoint belongs to another account or " +
		"region.",
})

var _ = register(Check{
	ID:       "instance-cluster-tag",
	rank:     140,
	title:    "the instance has the cluster's tag",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionTags,
	Needs:    facts.FromInstance,
	run:      checkInstanceTag,
	fix:      "`aws ec2 create-tags --resources INSTANCE`, and `tags:` in the manifest (ops-files/aws.yml).",
})

var _ = register(Check{
	ID:       "instance-cluster-ids",
	rank:     150,
	title:    "the instance is tagged for one cluster only",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionRenaming,
	warnsIf:  onlyControllerStops,
	advisory: (*facts.Facts).ControllerReadsNoTags,
	Needs:    facts.FromInstance,
	run:      checkClusterIDs,
	fix:      "`aws ec2 delete-tags` for the other cluster's tag, or `bosh recreate`.",
})

var _ = register(Check{
	ID:       "instance-legacy-tag",
	rank:     160,
	title:    "old and new cluster tag agree",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionRenaming,
	warnsIf:  onlyControllerStops,
	advisory: (*facts.Facts).ControllerReadsNoTags,
	Needs:    facts.FromInstance,
	run:      checkLegacyTag,
	fix:      "`aws ec2 delete-tags --tags Key=KubernetesCluster`.",
})

var _ = register(Check{
	ID:       "instance-tag-limit",
	rank:     420,
	title:    "the instance has fewer tags than AWS allows",
	severity: preflight.Warn,
	Roles:    both,
	section:  sectionTags,
	Needs:    facts.FromInstance,
	run:      checkTagLimit,
	fix:      "Use fewer than 50 tags in the manifest and the runtime config.",
})

func checkProfile(f *facts.Facts) preflight.Outcome {
	if awserr.IsNotAsked(f.ProfileErr) {
		return skipped("%v", f.ProfileErr)
	}
	if f.MetadataFailure() != nil {
		return skipped(facts.NoMetadata)
	}
	if f.ProfileErr == nil && f.Profile != "" {
		return passed("%s", f.Profile)
	}
	seen := "none (iam/info answers 404)"
	if f.ProfileErr != nil {
		seen = f.ProfileErr.Error()
	}
	wanted := cmp.Or(f.Settings.InstanceProfile, f.WantedProfile())
	fix := []preflight.Fix{
		fixes.ByCommand(
			"associate the instance profile",
			fixes.AWS(f,
				"ec2", "associate-iam-instance-profile", "--instance-id", f.InstanceID(), "--iam-instance-profile",
				fixes.ProfileArgument(wanted),
			),
		),
		fixes.InExtension(f, "iam_instance_profile: "+wanted),
	}
	if f.ProfileErr != nil { // there is one, but without a role
		fix = []preflight.Fix{fixes.AddRole(f)}
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "an instance profile",
		Found:    seen,
		Why: "Without a profile there are no credentials: the cloud controller cannot start, and images in ECR " +
			"cannot be pulled.",
		Eventual: true,
		Fix:      fix,
	})
}

func checkInstanceRole(f *facts.Facts) preflight.Outcome {
	if f.Settings.InstanceProfile == "" {
		return skipped("preflight.instance_profile is not set")
	}
	if f.ProfileErr != nil || f.Profile == "" {
		return skipped("there is no instance profile (see instance-profile)")
	}
	name := f.ProfileName()
	if name == f.Settings.InstanceProfile || f.Profile == f.Settings.InstanceProfile {
		return passed("%s", name)
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "instance profile " + f.Settings.InstanceProfile,
		Found:    "instance profile " + name,
		Why: "The role of another profile lacks permissions that this machine requires, or has permissions that " +
			"it must not have.",
		Eventual: true,
		Fix: []preflight.Fix{
			fixes.ReplaceProfile(f, "associate the configured instance profile", f.Settings.InstanceProfile),
			fixes.InExtension(f, "iam_instance_profile: "+f.Settings.InstanceProfile)},
	})
}

func checkInstanceKnown(f *facts.Facts) preflight.Outcome {
	switch {
	case awserr.IsEmpty(f.InstanceErr), awserr.Classify(f.InstanceErr) == awserr.UnknownID:
		return found(preflight.Finding{
			Resource: f.InstanceID(),
			Wanted:   "EC2 to describe the instance",
			Found:    awserr.Describe(f.InstanceErr),
			Why:      "The cloud controller would treat the node as deleted.",
			Eventual: true,
			Fix: []preflight.Fix{
				fixes.ByCommand(
					"look whether EC2 shows the instance now; if so, deploy again, otherwise the API endpoint "+
						"belongs to another account or region (see the property environment)",
					fixes.AWS(f, "ec2", "describe-instances", "--instance-ids", f.InstanceID()),
				),
			},
		})
	case f.InstanceErr != nil:
		return instanceMissing(f)
	}
	return passed("")
}

func checkInstanceTag(f *facts.Facts) preflight.Outcome {
	if f.Instance == nil {
		return instanceMissing(f)
	}
	if f.Instance.Tags.Has(f.TagKey()) {
		return passed("%s on %s", f.TagKey(), f.InstanceID())
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   fmt.Sprintf("tag %s with the value shared or owned", f.TagKey()),
		Found:    f.Instance.Tags.Found(f.TagKey()),
		Why:      whyInstanceTags(f),
		Eventual: true,
		Fix: []preflight.Fix{
			tagInstance(f),
			fixes.ByHand(
				"also, so that recreated VMs have it, in the manifest: tags: {%s: shared} (as in ops-files/aws.yml)",
				f.TagKey(),
			),
		},
	})
}

// tagInstance makes the instance this cluster's. It removes other clusters' tags, because an instance can have only
// one.
func tagInstance(f *facts.Facts) preflight.Fix {
	var others []string
	for _, name := range f.Instance.Tags.Clusters() {
		others = append(others, clustertags.Prefix+name)
	}
	if value, ok := f.Instance.Tags[clustertags.Legacy]; ok && value != f.Cluster() {
		others = append(others, clustertags.Legacy)
	}
	tag := fixes.TagCommand(f, f.InstanceID())
	switch {
	case len(others) > 0:
		return fixes.ByCommand(
			"replace the other cluster's tag by this cluster's", fixes.UntagCommand(
				f,
				[]string{f.InstanceID()},
				others...,
			),
			tag,
		)
	case f.Instance.Tags.Count() >= clustertags.Limit:
		return fixes.ByCommand(
			fmt.Sprintf(
				"replace a tag that is not needed by the cluster's, because the instance has %d",
				clustertags.Limit,
			),
			fixes.AWS(f, "ec2", "delete-tags", "--resources", f.InstanceID(), "--tags", "Key="+fixes.Expand("key")),
			tag,
		)
	}
	return fixes.ByCommand("add the cluster's tag", tag)
}

// whyInstanceTags explains what the cloud controller does with the instance's tags if they are not the cluster's only.
// On a control VM it takes the name of the cluster from them, unless it is configured.
func whyInstanceTags(f *facts.Facts) string {
	t := f.Instance.Tags
	names := t.Clusters()
	if name, ok := t[clustertags.Legacy]; ok && !slices.Contains(names, name) {
		names = append(names, name)
	}
	switch {
	case t.BelongTo(f.Cluster()) && (f.ControllerReadsNoTags() || len(names) == 1):
		return "The cloud controller accepts the old tag " + clustertags.Legacy +
			", but the generated policies and other controllers do not."
	case f.ControllerReadsNoTags():
		return "The cloud controller silently omits instances without the tag from load balancers."
	case len(names) == 0:
		return "The cloud controller does not start on an instance without the tag."
	case len(names) > 1:
		return "The cloud controller does not start on an instance whose tags name different clusters."
	}
	return fmt.Sprintf(
		"The cloud controller would run as cluster %q: it would tag load balancers and security groups for that "+
			"cluster, and not register this cluster's nodes.",
		awserr.Clip(names[0]),
	)
}

func checkClusterIDs(f *facts.Facts) preflight.Outcome {
	if f.Instance == nil {
		return instanceMissing(f)
	}
	ids := f.Instance.Tags.Clusters()
	if len(ids) < 2 {
		return passed("")
	}
	var keys, others []string
	for _, id := range ids {
		if id != f.Cluster() {
			others = append(others, id)
			keys = append(keys, clustertags.Prefix+id)
		}
	}
	why := "The cloud controller does not start on an instance that is tagged for several clusters. BOSH never " +
		"removes tags, so renaming a cluster leaves the old one."
	if f.ControllerReadsNoTags() {
		why = "The controllers of both clusters treat the instance as theirs. BOSH never removes tags, so renaming a " +
			"cluster leaves the old one."
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "one tag that starts with " + clustertags.Prefix,
		Found:    "tags of the " + clustertags.Quote(ids),
		Why:      why,
		Eventual: true,
		Fix: []preflight.Fix{
			fixes.ByCommand(
				"remove the tag of "+clustertags.Quote(others),
				fixes.UntagCommand(f, []string{f.InstanceID()}, keys...),
			),
			fixes.ByHand("or recreate the VM (bosh recreate), which creates an instance without it"),
		},
	})
}

func checkLegacyTag(f *facts.Facts) preflight.Outcome {
	if f.Instance == nil {
		return instanceMissing(f)
	}
	value, ok := f.Instance.Tags[clustertags.Legacy]
	if !ok || value == f.Cluster() {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   fmt.Sprintf("no tag %s, or the value %s", clustertags.Legacy, f.Cluster()),
		Found:    fmt.Sprintf("%s=%s", clustertags.Legacy, awserr.Clip(value)),
		Why:      whyLegacyTag(f),
		Eventual: true,
		Fix: []preflight.Fix{
			fixes.ByCommand("remove the old tag", fixes.UntagCommand(f, []string{f.InstanceID()}, clustertags.Legacy)),
		},
	})
}

func whyLegacyTag(f *facts.Facts) string {
	if f.ControllerReadsNoTags() {
		return "The controllers of both clusters treat the instance as theirs."
	}
	return whyInstanceTags(f)
}

func checkTagLimit(f *facts.Facts) preflight.Outcome {
	if f.Instance == nil {
		return instanceMissing(f)
	}
	n := f.Instance.Tags.Count()
	if n < clustertags.Limit {
		return passed("%d of %d", n, clustertags.Limit)
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   fmt.Sprintf("fewer than %d tags", clustertags.Limit),
		Found:    fmt.Sprintf("%d tags", n),
		Why: "AWS rejects additional tags, and BOSH only logs that: a tag of the manifest may be missing on the " +
			"next VM.",
		Fix: []preflight.Fix{
			fixes.ByHand("remove tags from the manifest or the runtime config, then recreate the VM (bosh recreate)"),
		},
	})
}
