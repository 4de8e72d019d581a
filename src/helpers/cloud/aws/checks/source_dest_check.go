package checks

import (
	"cmp"
	"strings"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "source-dest-check",
	rank:     380,
	title:    "the source/destination check allows the pod network's packets",
	severity: preflight.Fail,
	Roles:    both,
	section:  sectionCloudConfig,
	warnsIf:  "`configure_cloud_routes` is set: the cloud controller turns it off itself",
	advisory: func(f *facts.Facts) bool { return f.Settings.ConfigureCloudRoutes },
	Needs:    facts.FromInstance,
	run:      checkSourceDest,
	fix: "`source_dest_check: false` in the VM extension; for the running VM `aws ec2 " +
		"modify-network-interface-attribute --no-source-dest-check`.",
})

func checkSourceDest(f *facts.Facts) preflight.Outcome {
	if !f.Settings.UnencapsulatedPodNetwork && !f.Settings.ConfigureCloudRoutes {
		return passed("the pod network is encapsulated")
	}
	if f.Instance == nil {
		return instanceMissing(f)
	}
	var on []string
	for _, i := range f.Instance.Interfaces {
		if i.SourceDestCheck {
			on = append(on, i.ID)
		}
	}
	if len(on) == 0 && (len(f.Instance.Interfaces) > 0 || !f.Instance.SourceDestCheck) {
		return passed("off")
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "the source/destination check off",
		Found:    "on: " + cmp.Or(strings.Join(on, ", "), "the instance"),
		Why:      "AWS drops packets with pod addresses while it is on.",
		Fix:      []preflight.Fix{disableSourceDestCheck(f, on), fixes.InExtension(f, "source_dest_check: false")},
	})
}

// disableSourceDestCheck turns the check off on the given interfaces: EC2 refuses the same for an instance with
// several.
func disableSourceDestCheck(f *facts.Facts, interfaces []string) preflight.Fix {
	var lines []string
	for _, id := range interfaces {
		lines = append(
			lines,
			fixes.AWS(
				f,
				"ec2",
				"modify-network-interface-attribute",
				"--network-interface-id",
				id,
				"--no-source-dest-check",
			),
		)
	}
	if len(lines) == 0 {
		lines = []string{
			fixes.AWS(f, "ec2", "modify-instance-attribute", "--instance-id", f.InstanceID(), "--no-source-dest-check"),
		}
	}
	return fixes.ByCommand("turn the check off", lines...)
}
