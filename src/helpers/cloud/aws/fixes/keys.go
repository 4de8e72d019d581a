package fixes

import (
	"strings"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// OtherKey has volumes encrypted with another key.
func OtherKey(f *facts.Facts, name string) preflight.Fix {
	if f.Encryption.ByDefault && f.Encryption.Key == name {
		return ByCommand(
			"choose another key for EBS, or go back to that of AWS", AWS(f, "ec2", "reset-ebs-default-kms-key-id"),
		)
	}
	return ByHand("name another key in the StorageClass (kms_key_id of the job ebs-csi-controller)")
}

// EnableKey makes a key usable again that is in a state from which that is possible. A key that is not deleted after
// all is disabled at first.
func EnableKey(f *facts.Facts, name, state string) []preflight.Fix {
	enable := AWS(f, "kms", "enable-key", "--key-id", name)
	switch state {
	case "Disabled":
		return []preflight.Fix{ByCommand("enable the key", enable)}
	case "PendingDeletion":
		return []preflight.Fix{ByCommand(
			"keep the key", AWS(f, "kms", "cancel-key-deletion", "--key-id", name), enable,
		)}
	}
	return nil
}

// KeyGrant lets the machine's role use a key without a change of the key's policy.
func KeyGrant(f *facts.Facts, name string) []preflight.Fix {
	return []preflight.Fix{
		grant(f, name, iampolicy.KeyActions...),
		ByHand("or, if the key's policy allows it to EC2 only (kms:ViaService), let it allow " +
			iampolicy.DescribeKeyAction + " without that condition, which reveals no data"),
	}
}

// grant lets the machine's role do something with a key, by a grant.
func grant(f *facts.Facts, name string, actions ...string) preflight.Fix {
	words := []string{"--key-id", name, "--grantee-principal", Expand("role"), "--operations"}
	for _, action := range actions {
		words = append(words, strings.TrimPrefix(action, "kms:"))
	}
	return ByCommand(
		"let the role use the key, as an administrator of the key",
		Assign("role", Query(f, "Role.Arn", "iam", "get-role", "--role-name", f.MachineRole())),
		AWS(f, "kms", "create-grant", words...),
	)
}
