package checks

import (
	"fmt"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "other-deployment",
	rank:     430,
	title:    "no other deployment has a cluster of that name in the VPC",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionSharing,
	Needs:    facts.FromInstance | facts.FromCluster,
	run:      checkOtherDeployment,
	fix:      "Choose another `cluster_name` for the new deployment, or delete the other one first.",
})

func checkOtherDeployment(f *facts.Facts) preflight.Outcome {
	switch {
	case f.Instance == nil:
		return instanceMissing(f)
	case f.MachinesErr != nil && len(f.Machines) == 0:
		return skipped("the cluster's instances are unknown: %s", awserr.Describe(f.MachinesErr))
	}
	director, name := f.Instance.Tags.Deployment()
	if name == "" {
		return skipped("the instance has no tag deployment, which the Director sets")
	}
	var findings []preflight.Finding
	reported := map[string]bool{}
	for _, i := range f.Machines {
		otherDirector, other := i.Tags.Deployment()
		if i.VPC != f.VPCID() || other == "" || other == name && (otherDirector == director || otherDirector == "") ||
			reported[otherDirector+"/"+other] {
			continue
		}
		reported[otherDirector+"/"+other] = true
		findings = append(findings, preflight.Finding{
			Resource: i.ID,
			Wanted: fmt.Sprintf(
				"tag %s on VMs of deployment %s of Director %s only",
				f.TagKey(),
				awserr.Clip(name),
				awserr.Clip(director),
			),
			Found: fmt.Sprintf(
				"it is a VM of deployment %s of Director %s (%s)",
				awserr.Clip(other),
				awserr.Clip(otherDirector),
				i.State,
			),
			Why: "both deployments would treat each other's load balancers, security groups, routes and volumes as " +
				"their own, and change or delete them.",
			Fix: []preflight.Fix{
				fixes.ByHand(
					"choose another cluster_name for the deployment that is new; a deployed cluster keeps its name",
				),
				fixes.ByHand("or delete the other deployment first"),
			},
		})
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	return passed("%d instances are tagged for the cluster", len(f.Machines))
}
