package checks

import (
	"fmt"
	"time"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "clock",
	rank:     60,
	title:    "the clock agrees with AWS",
	severity: preflight.Fail,
	warnsIf:  "up to 4.5 minutes of difference",
	Roles:    both,
	section:  sectionOverview,
	Needs:    facts.FromEC2,
	run:      checkClock,
	fix:      "Correct the VM's time source (`chronyc tracking`; on AWS 169.254.169.123 is always available).",
})

// AWS rejects a request whose time of signing differs from its own by more than five minutes.
const (
	skewLimit = 4*time.Minute + 30*time.Second // fails
	skewNote  = 30 * time.Second               // warns
)

func checkClock(f *facts.Facts) preflight.Outcome {
	rejected := ""
	for _, a := range f.Answers() {
		if awserr.Classify(a.Err) == awserr.Clock {
			rejected = "; " + a.Action + ": " + awserr.Describe(a.Err)
		}
	}
	if !f.SkewKnown && rejected == "" {
		return skipped("AWS has not answered, so its time is unknown")
	}
	skew := f.Skew
	direction := "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	if skew < skewNote && rejected == "" {
		return passed("within %v of AWS's", max(time.Second, skew.Round(time.Second)))
	}
	return found(preflight.Finding{
		Resource: f.InstanceID(),
		Wanted:   "a clock within 30 s of AWS's",
		Found:    fmt.Sprintf("%v %s AWS's%s", skew.Round(time.Second), direction, rejected),
		Why: "AWS rejects requests whose signature is more than five minutes off, and the cluster's " +
			"certificates and tokens are validated with this clock.",
		Advisory: skew < skewLimit && rejected == "",
		Fix: []preflight.Fix{
			fixes.ByCommand("on the VM, see where its time comes from", "chronyc tracking", "chronyc sources"),
			fixes.ByHand(
				"also set the stemcell's time servers with env.ntp of the Director; on AWS 169.254.169.123 is always " +
					"available",
			),
		},
	})
}
