package checks

import (
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "storage-keys",
	rank:     300,
	title:    "the role can use the keys that volumes are encrypted with",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionStorage,
	warnsIf:  "KMS does not answer which key an alias names, or IAM whether the role can use it",
	Needs:    facts.FromStorage | facts.FromPolicies,
	run:      onStorage(checkStorageKeys),
	fix: "Attach the generated policy, with `--key ARN`; `aws kms enable-key`, or `aws kms create-grant` if the " +
		"key's own policy excludes the role; or `aws ec2 reset-ebs-default-kms-key-id`.",
})

func checkStorageKeys(f *facts.Facts) preflight.Outcome {
	if f.EncryptionErr != nil {
		return skipped("it is unknown which key EBS uses by default: %s", awserr.Describe(f.EncryptionErr))
	}
	keys := f.Keys()
	if len(keys) == 0 {
		return passed("volumes are encrypted with the key of AWS, or not")
	}
	var findings []preflight.Finding
	var unknown error
	for _, k := range keys {
		if finding := unusableKey(f, k); finding != nil {
			findings = append(findings, *finding)
		}
		if err := f.KeyAnswers[k].Err; err != nil {
			unknown = err
		}
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	if outcome, done := withoutPolicies(f, iampolicy.IsForKeys); done {
		return outcome
	}
	outcome := byPolicy(f, iampolicy.IsForKeys)
	for i := range outcome.Findings {
		finding := &outcome.Findings[i]
		finding.Found += "; keys: " + strings.Join(keys, ", ")
		if f.Encryption.ByDefault && slices.Contains(keys, f.Encryption.Key) {
			finding.Found += "; EBS encrypts all new volumes with " + f.Encryption.Key
		}
	}
	if len(outcome.Findings) == 0 && unknown != nil {
		return skipped("KMS does not say whether the keys are enabled: %s", awserr.Describe(unknown))
	}
	return outcome
}

// noVolume is what happens to volumes whose key cannot be used: EC2 looks at the key after it has answered (KmsKeyId in
// the reference of CreateVolume).
const noVolume = "EC2 accepts the volume, which then disappears, and claims stay Pending."

// unusableKey is the finding of a key that EBS cannot use for the role, whatever the role's policies allow.
func unusableKey(f *facts.Facts, name string) *preflight.Finding {
	finding := preflight.Finding{Resource: name, Why: noVolume}
	answer := f.KeyAnswers[name]
	byHand := fixes.OtherKey(f, name)
	switch {
	case !f.IsKeyName(name):
		finding.Wanted, finding.Found = "the ID, alias or ARN of a KMS key", "no such name"
		finding.Fix = []preflight.Fix{byHand}
	case !f.IsInRegion(name):
		finding.Wanted, finding.Found = "a key of "+f.Region(), "the ARN of another region"
		finding.Fix = []preflight.Fix{byHand}
	case awserr.IsNoKey(answer.Err):
		finding.Wanted = "a key of this account or one that is shared with it"
		finding.Found = awserr.Describe(answer.Err)
		finding.Fix = []preflight.Fix{byHand}
	case awserr.Classify(answer.Err) == awserr.Denied && deniedByKey(f):
		finding.Wanted, finding.Found = "a key policy that leaves the decision to IAM, or allows "+
			strings.Join(iampolicy.KeyActions, ", "), awserr.Describe(answer.Err)
		finding.Eventual = true
		finding.Fix = fixes.KeyGrant(f, name)
	case answer.Err != nil && strings.Contains(name, "alias/"):
		finding.Wanted, finding.Found, finding.Advisory = "the ARN of the key", "an alias", true
		finding.Why = "IAM policies do not accept aliases of keys, so it is unknown whether the role can use the key."
		finding.Fix = []preflight.Fix{
			fixes.ByCommand(
				"find the key, and use its ARN in the StorageClass",
				fixes.Query(f, "KeyMetadata.Arn", "kms", "describe-key", "--key-id", name),
			),
		}
	case answer.Err != nil || answer.Key.ARN == "":
		return nil
	case answer.Key.Usage != "ENCRYPT_DECRYPT" || answer.Key.Spec != "SYMMETRIC_DEFAULT":
		finding.Wanted = "a symmetric encryption key (SYMMETRIC_DEFAULT, ENCRYPT_DECRYPT)"
		finding.Found = answer.Key.Spec + ", " + answer.Key.Usage
		finding.Fix = []preflight.Fix{byHand}
	case answer.Key.State != "Enabled":
		finding.Wanted, finding.Found = "Enabled", answer.Key.State
		finding.Fix = append(fixes.EnableKey(f, name, answer.Key.State), byHand)
	default:
		return nil
	}
	return &finding
}

// deniedByKey reports whether it is not the role's policies that keep it from a key, as far as IAM has answered.
func deniedByKey(f *facts.Facts) bool {
	return f.Policies == nil || f.Policies.Denied[iampolicy.DescribeKeyAction] == ""
}
