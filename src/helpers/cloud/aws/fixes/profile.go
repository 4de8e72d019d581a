package fixes

import (
	"cmp"
	"net/netip"
	"strings"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// ProfileArgument names an instance profile for the AWS CLI.
func ProfileArgument(profile string) string {
	if strings.HasPrefix(profile, "arn:") {
		return "Arn=" + profile
	}
	return "Name=" + profile
}

// association is the command that finds a property of the association of the instance with its profile.
func association(f *facts.Facts, property string) string {
	return Query(f, "IamInstanceProfileAssociations[0]."+property, "ec2", "describe-iam-instance-profile-associations",
		"--filters", "Name=instance-id,Values="+f.InstanceID(), "Name=state,Values=associated")
}

// ReplaceProfile associates another instance profile, or the same again, with the instance.
func ReplaceProfile(f *facts.Facts, text, profile string) preflight.Fix {
	return ByCommand(
		text,
		Assign("association", association(f, "AssociationId")),
		AWS(f,
			"ec2", "replace-iam-instance-profile-association", "--association-id", Expand("association"),
			"--iam-instance-profile", ProfileArgument(profile),
		),
	)
}

// AddRole gives the role of the same name to the instance profile of this instance, which has none.
func AddRole(f *facts.Facts) preflight.Fix {
	const text = "add a role to the instance profile, by convention the one with the same name"
	if f.Profile != "" {
		return ByCommand(
			text,
			AWS(f,
				"iam", "add-role-to-instance-profile", "--instance-profile-name", f.ProfileName(), "--role-name",
				f.ProfileName(),
			),
		)
	}
	// The profile's name is not in instance metadata.
	return ByCommand(
		text,
		Assign("profile", association(f, "IamInstanceProfile.Arn")),
		`profile=${profile##*/}`,
		AWS(f,
			"iam", "add-role-to-instance-profile", "--instance-profile-name", Expand("profile"), "--role-name",
			Expand("profile"),
		),
	)
}

// trustEC2 lets EC2 assume the instance's role.
func trustEC2(f *facts.Facts) preflight.Fix {
	trust := arn.EC2Trust(arn.PartitionOf(f.Region()).Name)
	return ByCommand(
		"let EC2 assume the role; the second command replaces the trust policy that the first one shows, so add "+
			"other principals that the role requires",
		AWS(f, "iam", "get-role", "--role-name", f.MachineRole(), "--query", "Role.AssumeRolePolicyDocument"),
		AWS(f, "iam", "update-assume-role-policy", "--role-name", f.MachineRole(), "--policy-document", trust),
	)
}

// FindInstance determines the id of this instance by its addresses, for when instance metadata does not answer.
func FindInstance(f *facts.Facts) string {
	var addresses []string
	for _, a := range f.Local {
		if a.Is4() && a != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && !a.IsLinkLocalUnicast() {
			addresses = append(addresses, a.String())
		}
	}
	if len(addresses) == 0 {
		return "instance=" + placeholders["instance"]
	}
	return Assign("instance", Query(f,
		"Reservations[].Instances[].InstanceId", "ec2", "describe-instances", "--filters",
		"Name=private-ip-address,Values="+strings.Join(addresses, ","), "Name=instance-state-name,Values=running",
	))
}

// Credentials is the fix if instance metadata has no usable credentials.
func Credentials(f *facts.Facts) preflight.Fix {
	switch {
	case f.Credentials.Role == "":
		return AddRole(f)
	case strings.Contains(f.CredentialsErr.Error(), "AssumeRole"): // the code AssumeRoleUnauthorizedAccess
		return trustEC2(f)
	}
	return ReplaceProfile(f,
		"associate the instance profile again, so that EC2 gets new credentials", cmp.Or(f.Profile, f.WantedProfile()),
	)
}
