package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/leftbehind"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "left-behind-load-balancers",
	rank:     435,
	title:    "what controllers have created for load balancers belongs to an object of the cluster",
	severity: preflight.Warn,
	Roles:    controlOnly,
	section:  sectionTags,
	Needs:    facts.FromLeftBehind,
	run:      checkLeftBehind,
	fix: "Delete the load balancer, its target groups, the rules that refer to its security group, and the group, in " +
		"this order. Only the errand looks for them.",
})

func checkLeftBehind(f *facts.Facts) preflight.Outcome {
	err := f.LeftBehindErr
	switch {
	case !f.Request.Thorough:
		return skipped("only the errand looks for them")
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case awserr.Classify(err) == awserr.Denied:
		return skipped("load balancers could not be seen, for which the generated policy has a permission: %v", err)
	case err != nil:
		return skipped("load balancers and their owners could not be seen: %v", err)
	case len(f.LeftBehind) == 0:
		return passed("")
	}
	var findings []preflight.Finding
	for _, t := range f.LeftBehind {
		findings = append(findings, leftBehind(f, t))
	}
	return found(findings...)
}

// leftBehind is the finding for one load balancer, or for parts that are left without one.
func leftBehind(f *facts.Facts, t leftbehind.Thing) preflight.Finding {
	var parts []string
	created := ""
	if b := t.Balancer; b != nil {
		parts = append(parts, "load balancer "+b.Name)
		created = fmt.Sprintf(
			" (%s, %s, created %s)", b.Kind, cmp.Or(b.Scheme, "internal"), b.Created.UTC().Format(time.DateOnly),
		)
		created = cmp.Or(leftbehind.Object(b.Tags), "an object") + created
	}
	for _, g := range t.TargetGroups {
		parts = append(parts, "target group "+g.Name)
		created = cmp.Or(created, leftbehind.Object(g.Tags))
	}
	for _, g := range t.Groups {
		parts = append(parts, "security group "+g.ID)
		created = cmp.Or(created, leftbehind.Object(g.Tags))
	}
	for _, r := range t.Rules {
		created = cmp.Or(created, r.Description)
		if part := "rules of " + r.Group; !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return preflight.Finding{
		Resource: strings.Join(parts, ", "),
		Wanted:   "an object of the cluster that it belongs to",
		Found:    "no object has it; it was created for " + awserr.Clip(cmp.Or(created, "a Service")),
		Why: "No controller deletes it any more. A load balancer costs money and stays open, and so do the ports of " +
			"the nodes.",
		Fix: []preflight.Fix{fixes.DeleteLeftBehind(f, t)},
	}
}
