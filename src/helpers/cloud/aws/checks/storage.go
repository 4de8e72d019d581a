package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "storage-permissions",
	rank:     290,
	title:    "the role can create, attach and remove volumes",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionPolicies,
	warnsIf:  "IAM does not answer whether it can",
	Needs:    facts.FromPolicies | facts.FromProbes,
	run:      onStorage(checkStoragePermissions),
	fix:      "Attach the generated policy, without `--no-storage`.",
})

var _ = register(Check{
	ID:       "storage-zones",
	rank:     310,
	title:    "volumes can be created in the zones of StorageClasses, and attached there",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionStorage,
	warnsIf:  "no subnet in the zone has the cluster's tag",
	Needs:    facts.FromZones | facts.FromSubnets,
	run:      onStorage(checkStorageZones),
	fix:      "Correct the zones of the StorageClass, or tag the subnets of the nodes there.",
})

var _ = register(Check{
	ID:       "storage-attachments",
	rank:     320,
	title:    "every instance of the cluster can attach another volume",
	severity: preflight.Warn,
	Roles:    controlOnly,
	section:  sectionStorage,
	Needs:    facts.FromStorage | facts.FromCluster,
	run:      onStorage(checkStorageAttachments),
	fix: "`aws ec2 detach-volume` for volumes that are not the cluster's, or an `instance_type` with more " +
		"attachments.",
})

func checkStoragePermissions(f *facts.Facts) preflight.Outcome {
	if tested := testedBy(f, "ec2:CreateVolume"); len(tested.Findings) > 0 {
		return tested
	}
	outcome, done := withoutPolicies(f, iampolicy.IsStorage)
	if !done {
		outcome = byPolicy(f, iampolicy.IsStorage)
	}
	if warnings := slices.Concat(deniedLimits(f), deniedDeletions(f)); len(warnings) > 0 {
		return found(append(outcome.Findings, warnings...)...)
	}
	return outcome
}

// deniedDeletions is a warning: BOSH has changed no tags of volumes yet, or an operator can change them back.
func deniedDeletions(f *facts.Facts) []preflight.Finding {
	const action = "ec2:DeleteVolume"
	if f.Policies == nil || f.Policies.Denied[action] != "" {
		return nil
	}
	refusal := f.Policies.Denied[action+iampolicy.Retagged]
	if refusal == "" {
		return nil
	}
	return []preflight.Finding{{
		Resource: action + iampolicy.Retagged,
		Wanted: fmt.Sprintf(
			"allowed for role %s with the tags %s=shared and %s=true", f.RoleName(), f.TagKey(), iampolicy.DriverTag,
		),
		Found:    refusal,
		Why:      iampolicy.WhyRetagged,
		Advisory: true,
		Fix:      policyFix(f, refusal),
	}}
}

// deniedLimits are warnings: volumes are created without limits too.
func deniedLimits(f *facts.Facts) []preflight.Finding {
	findings := testedBy(f, facts.VolumeLimits).Findings
	for i := range findings {
		findings[i].Wanted = fmt.Sprintf(
			"allowed for role %s with the tag %s=%s and %d IOPS, which create no volume", f.RoleName(),
			iampolicy.LimitsTag, iampolicy.LimitsValue, iampolicy.LimitsIOPS,
		)
		findings[i].Why = iampolicy.WhyLimits
		findings[i].Advisory = true
	}
	return findings
}

func checkStorageZones(f *facts.Facts) preflight.Outcome {
	if len(f.Settings.StorageZones) == 0 {
		return passed("no StorageClass names zones")
	}
	if f.ZonesErr != nil {
		return skipped("the zones are unknown: %s", awserr.Describe(f.ZonesErr))
	}
	var known []string
	for _, z := range f.Zones {
		known = append(known, z.Name)
	}
	slices.Sort(known)
	var findings []preflight.Finding
	for _, name := range f.Settings.StorageZones {
		switch {
		case !slices.Contains(known, name):
			findings = append(findings, preflight.Finding{
				Resource: name,
				Wanted:   "a zone of " + f.Region() + ": " + strings.Join(known, ", "),
				Found:    "no such zone",
				Why:      "EC2 refuses to create volumes in it, and claims stay Pending.",
				Fix:      []preflight.Fix{fixes.ByHand("correct the zones of the StorageClass in the manifest")},
			})
		case f.SubnetsErr == nil && !f.HasSubnetIn(name):
			findings = append(findings, preflight.Finding{
				Resource: name,
				Wanted:   "a subnet with the tag " + f.TagKey(),
				Found:    "none in this zone",
				Advisory: true,
				Why: "A volume can only be attached in its own zone, and no node of the cluster seems to be " +
					"there.",
				Fix: []preflight.Fix{
					fixes.ByHand("remove the zone from the StorageClass in the manifest, or create nodes there"),
				},
			})
		}
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	return passed("%s", strings.Join(f.Settings.StorageZones, ", "))
}

func checkStorageAttachments(f *facts.Facts) preflight.Outcome {
	if f.MachinesErr != nil {
		return skipped("the cluster's instances are unknown: %s", awserr.Describe(f.MachinesErr))
	}
	running := 0
	var unknown []string
	full := map[string][]resource.Machine{}
	for _, m := range f.Machines {
		if m.State != "running" {
			continue // no pod waits for a volume there
		}
		running++
		switch {
		case m.Limit == 0 && !slices.Contains(unknown, m.Kind):
			unknown = append(unknown, m.Kind)
		case m.Limit > 0 && m.Free() <= 0:
			full[m.Kind] = append(full[m.Kind], m)
		}
	}
	var findings []preflight.Finding
	for _, kind := range slices.Sorted(maps.Keys(full)) {
		findings = append(findings, noRoom(f, full[kind]))
	}
	switch {
	case len(findings) > 0:
		return found(findings...)
	case len(unknown) > 0:
		return skipped("EC2 names no limit of attachments for instances of the type %s", strings.Join(unknown, ", "))
	}
	return passed("%d instances", running)
}

// maxListed is how many instances a finding names; there can be a thousand.
const maxListed = 10

// noRoom is the finding for instances of one type that can have no further attachment.
func noRoom(f *facts.Facts, machines []resource.Machine) preflight.Finding {
	var ids []string
	for _, m := range machines {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	named := ids[:min(maxListed, len(ids))]
	more, first := "", machines[0]
	if len(named) < len(ids) {
		more = fmt.Sprintf(" and %d more", len(ids)-len(named))
	}
	counts := "volumes only"
	if first.Shared {
		counts = "volumes and network interfaces"
	}
	has := fmt.Sprintf("it has %d volumes and %d network interfaces", first.Volumes, first.Interfaces)
	if len(ids) > 1 {
		has = fmt.Sprintf("%d instances have as many", len(ids))
	}
	return preflight.Finding{
		Resource: strings.Join(named, ", ") + more,
		Wanted:   "room for another volume",
		Found:    fmt.Sprintf("%s can have %d attachments (%s); %s", first.Kind, first.Limit, counts, has),
		Why:      "Pods with claims stay Pending if no other node has room.",
		Fix: []preflight.Fix{
			fixes.ByCommand(
				"see what is attached, and detach what the cluster does not use",
				fixes.AWS(
					f, "ec2", "describe-volumes", "--filters",
					"Name=attachment.instance-id,Values="+strings.Join(named, ","),
				),
			),
			fixes.ByHand("or use an instance_type with more attachments, or more VMs"),
		},
	}
}
