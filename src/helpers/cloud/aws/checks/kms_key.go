package checks

import (
	"strings"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "kms-key",
	rank:     305,
	title:    "KMS encrypts and decrypts with the key of Secrets",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionEncryption,
	warnsIf:  "KMS throttles the calls",
	Needs:    facts.FromEncryption,
	run:      checkKMSKey,
	fix: "Attach the generated policy, with `--encryption-key ARN`; `aws kms enable-key`, or `aws kms create-grant` " +
		"if the key's own policy excludes the role; or a VPC endpoint for kms.",
})

func checkKMSKey(f *facts.Facts) preflight.Outcome {
	name := f.Settings.EncryptionKey
	if name == "" {
		return skipped("Secrets are not encrypted with KMS")
	}
	finding := preflight.Finding{
		Resource: name,
		Why: "The API server does not become ready without it, and cannot read Secrets that are encrypted " +
			"with it.",
	}
	use := f.EncryptionUse
	other := fixes.OtherEncryptionKey()
	key, err := arn.ParseKey(name)
	switch {
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case err != nil:
		finding.Wanted, finding.Found = "the ARN of a KMS key", "no such ARN"
		finding.Fix = []preflight.Fix{other}
	case key.Region != f.Metadata.Region:
		finding.Wanted, finding.Found = "a key of "+f.Metadata.Region, "a key of "+key.Region
		finding.Fix = []preflight.Fix{other}
	case awserr.IsNotAsked(use.Err):
		return skipped("%v", use.Err)
	case use.Err == nil:
		return passed("with the encryption context %s=%s", iampolicy.ContextKey, f.Cluster())
	default:
		finding.Wanted, finding.Found = use.Action+" succeeds", awserr.Describe(use.Err)
		finding.Fix = append(keyFixes(f, &finding, use.Err), other)
	}
	return found(finding)
}

// keyFixes are what makes a key usable that KMS refuses.
func keyFixes(f *facts.Facts, finding *preflight.Finding, err error) []preflight.Fix {
	name := finding.Resource
	switch awserr.Code(err) {
	case "DisabledException":
		finding.Wanted = "an enabled key"
		return fixes.EnableKey(f, name, "Disabled")
	case "KMSInvalidStateException":
		finding.Wanted = "an enabled key"
		if strings.Contains(finding.Found, "pending deletion") {
			return fixes.EnableKey(f, name, "PendingDeletion")
		}
		return nil
	case "InvalidKeyUsageException":
		finding.Wanted = "a symmetric encryption key (SYMMETRIC_DEFAULT, ENCRYPT_DECRYPT)"
		return nil
	case "NotFoundException":
		finding.Wanted = "a key of this account or one that is shared with it"
		return nil
	}
	switch awserr.Classify(err) {
	case awserr.Denied:
		finding.Eventual = true
		if strings.Contains(err.Error(), "no resource-based policy allows") {
			finding.Wanted = "a key policy that leaves the decision to IAM, or allows " + iampolicy.EncryptAction +
				" and " + iampolicy.DecryptAction
			return []preflight.Fix{fixes.EncryptionGrant(f, name)}
		}
		return fixes.MachinePolicy(f)
	case awserr.Throttled:
		finding.Advisory = true
		return []preflight.Fix{fixes.ByHand("none: KMS answers again when there are fewer calls in the account")}
	case awserr.Unreachable, awserr.Malformed, awserr.Server:
		return []preflight.Fix{fixes.ByHand(
			"give the subnet a route to kms.%s.%s, or a VPC endpoint for kms; outages of AWS are temporary",
			f.Metadata.Region, arn.PartitionOf(f.Metadata.Region).Domain,
		)}
	}
	return nil
}
