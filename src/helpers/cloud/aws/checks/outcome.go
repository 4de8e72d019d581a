package checks

import (
	"fmt"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/subnetchoice"
	"kubernetes-release/preflight"
)

func found(findings ...preflight.Finding) preflight.Outcome {
	return preflight.Outcome{Findings: findings}
}

func passed(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Note: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Skip: fmt.Sprintf(format, args...)}
}

// The reasons to skip a check of answers.
const (
	noCalls   = "no call was made"
	noAnswers = "no call was answered"
)

// decided reports whether an answer shows what AWS makes of the caller: it is neither missing, nor a fault of AWS or of
// what stands before it.
func decided(err error) bool {
	if awserr.IsNotAsked(err) || awserr.IsEmpty(err) {
		return false
	}
	switch awserr.Classify(err) {
	case awserr.Throttled, awserr.Server, awserr.Malformed, awserr.Unreachable:
		return false
	default:
		return true
	}
}

// instanceMissing is the outcome of checks that need the instance's description and have none.
func instanceMissing(f *facts.Facts) preflight.Outcome {
	if awserr.IsNotAsked(f.InstanceErr) {
		return skipped("%v", f.InstanceErr)
	}
	if f.MetadataErr != nil {
		return skipped(facts.NoMetadata)
	}
	return skipped("the instance could not be described")
}

func subnetsMissing(f *facts.Facts) preflight.Outcome {
	switch {
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case awserr.IsNotAsked(f.SubnetsErr):
		return skipped("%v", f.SubnetsErr)
	}
	return skipped("the subnets could not be described")
}

// onChoice runs a check of the subnets that the cloud controller would choose for one kind of load balancer.
func onChoice(
	internal bool,
	check func(*facts.Facts, subnetchoice.Choice) preflight.Outcome,
) func(*facts.Facts) preflight.Outcome {
	return func(f *facts.Facts) preflight.Outcome {
		if why := f.WhyNoChoice(); why != "" {
			return skipped("%s", why)
		}
		return check(f, f.Choices().Choose(internal))
	}
}

// onStorage skips a check where there is no storage. With RoleARN all questions are asked as the role that the cloud
// controller assumes, which is not the EBS CSI driver's.
func onStorage(run func(*facts.Facts) preflight.Outcome) func(*facts.Facts) preflight.Outcome {
	return func(f *facts.Facts) preflight.Outcome {
		switch {
		case !f.Settings.Storage:
			return skipped("there is no storage")
		case f.AssumesRole():
			return skipped(
				"the cloud controller assumes another role, and the EBS CSI driver does not; it is not checked",
			)
		}
		return run(f)
	}
}
