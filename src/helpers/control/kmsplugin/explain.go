package kmsplugin

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/iampolicy"
)

// explain turns an error of KMS into one sentence, with what to do. The API server logs it, and answers with it to
// those who read a Secret that it cannot decrypt.
func explain(err error, action string, key arn.Key) error {
	code, advice := codes.FailedPrecondition, "see docs/operations.md"
	switch awserr.Code(err) {
	case "DisabledException":
		advice = fmt.Sprintf("enable it: aws kms enable-key --region %s --key-id %s", key.Region, key.ID)
	case "KMSInvalidStateException":
		advice = fmt.Sprintf("if it is pending deletion, keep it: aws kms cancel-key-deletion --region %[1]s "+
			"--key-id %[2]s, then aws kms enable-key --region %[1]s --key-id %[2]s", key.Region, key.ID)
	case "NotFoundException":
		advice = "check the ARN in the property encryption.kms_key; a key that was deleted cannot be restored"
	case "InvalidKeyUsageException":
		advice = "encryption.kms_key must be a symmetric key (SYMMETRIC_DEFAULT) for encryption (ENCRYPT_DECRYPT)"
	case "InvalidCiphertextException", "IncorrectKeyException":
		code = codes.InvalidArgument
		advice = "it was encrypted with another key, or for another cluster (encryption context " +
			iampolicy.ContextKey + ")"
	default:
		switch awserr.Classify(err) {
		case awserr.Credentials, awserr.Clock:
			advice = "correct the clock of this VM (is NTP reachable?), or the role of its instance profile"
		case awserr.Denied:
			advice = "attach the generated policy to the role of the control VMs: cloud-preflight iam-policy " +
				"--role control --encryption-key " + key.String()
		case awserr.Throttled:
			code, advice = codes.Unavailable, "it is asked again"
		case awserr.Server, awserr.Malformed, awserr.Unreachable:
			code = codes.Unavailable
			advice = "it is asked again; the subnet requires a route to KMS, or a VPC endpoint for it"
		}
	}
	return status.Errorf(code, "%s with the KMS key %s fails: %s; %s", action, key, awserr.Describe(err), advice)
}
