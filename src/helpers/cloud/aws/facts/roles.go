package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/cloud/aws/resource"
)

// ProfileName is the name of the instance profile without its path.
func (f *Facts) ProfileName() string { return f.Profile[strings.LastIndex(f.Profile, "/")+1:] }

// PolicyOptions select the policy that a role of this machine requires: that of its instance profile, or the one that
// the cloud controller assumes.
func (f *Facts) PolicyOptions(assumed bool) iampolicy.Options {
	o := iampolicy.Options{
		Role:        f.Request.Role,
		Cluster:     f.Cluster(),
		Partition:   arn.PartitionOf(f.Region()).Name,
		CloudRoutes: f.Settings.ConfigureCloudRoutes,
		Storage:     f.Settings.Storage && f.IsControl() && !assumed,
		Keys:        f.KeyARNs(),
		Secrets:     f.SecretKeys(assumed),
		RoleName:    f.MachineRole(),

		LoadBalancerController: f.Settings.LoadBalancerController && !assumed,
		Published:              f.Published(assumed),
	}
	if own, known := f.MachineIdentity(); known {
		o.Partition = own.Partition
	}
	if f.IsControl() {
		o.VPC, o.CloudConfig, o.AssumedRole = f.VPCID(), f.ConfText, assumed
	}
	if assumed {
		o.RoleName = f.Conf.RoleName()
	}
	return o
}

// MachineRole is the name of this machine's IAM role, or if it has none, of the one that it should have.
func (f *Facts) MachineRole() string {
	return cmp.Or(f.Credentials.Role, f.WantedProfile())
}

// RoleName is the name of the role that the cloud controller, or on a worker kubelet, makes its calls as.
func (f *Facts) RoleName() string {
	if f.AssumesRole() {
		return f.Conf.RoleName()
	}
	return f.MachineRole()
}

// WantedProfile is the name of the instance profile that this machine should have. docs/aws.md gives roles the same
// names.
func (f *Facts) WantedProfile() string {
	name := cmp.Or(f.Settings.InstanceProfile, f.Profile, iampolicy.DefaultRoleName(f.Request.Role))
	return name[strings.LastIndex(name, "/")+1:]
}

// CallingRole is a role that makes calls from this machine: the instance profile's, or the one that the cloud
// controller assumes.
type CallingRole struct {
	Partition, Account string
	Role               string // name
	Path               string // if it is known
	Assumed            bool
}

// ARN is the one of the role.
func (i CallingRole) ARN() string {
	return fmt.Sprintf("arn:%s:iam::%s:role%s%s", i.Partition, i.Account, cmp.Or(i.Path, "/"), i.Role)
}

// MachineIdentity is the role of the instance profile; known is false if its account is not.
func (f *Facts) MachineIdentity() (i CallingRole, known bool) {
	parts := strings.Split(f.Profile, ":")
	if len(parts) < 6 || f.Credentials.Role == "" {
		return CallingRole{}, false
	}
	return CallingRole{Partition: parts[1], Account: parts[4], Role: f.Credentials.Role}, true
}

// AssumedIdentity is the role in the configuration's RoleARN.
func (f *Facts) AssumedIdentity() CallingRole {
	parts := strings.Split(f.Conf.RoleARN, ":")
	if len(parts) < 6 {
		return CallingRole{Assumed: true, Role: f.Conf.RoleName()}
	}
	path := strings.TrimSuffix(strings.TrimPrefix(parts[5], "role"), f.Conf.RoleName())
	return CallingRole{Partition: parts[1], Account: parts[4], Role: f.Conf.RoleName(), Path: path, Assumed: true}
}

// PolicyNeeds is what the machine's permissions depend on.
func (f *Facts) PolicyNeeds() iampolicy.Needs {
	return iampolicy.Needs{
		Role:    f.Request.Role,
		Routes:  f.Settings.ConfigureCloudRoutes,
		Storage: f.Storage(),
		Keys:    f.KeyARNs(),
		Conf:    *f.Conf,
		// With RoleARN all questions are asked as the role that the cloud controller assumes.
		LoadBalancerController: f.Settings.LoadBalancerController && !f.AssumesRole(),
		Published:              f.Published(f.AssumesRole()),
	}
}

// Published are the objects that job pod-roles writes with the role of the instance profile.
func (f *Facts) Published(assumed bool) []string {
	if f.Issuer == nil || !f.IsControl() || assumed {
		return nil
	}
	return f.Issuer.Bucket.Objects()
}

// Storage reports whether the EBS CSI driver runs on this machine, with permissions that can be checked.
func (f *Facts) Storage() bool { return f.Settings.Storage && f.IsControl() && !f.AssumesRole() }

// KeyARNs are those of the keys, except of aliases that KMS did not resolve.
func (f *Facts) KeyARNs() []string {
	if !f.Settings.Storage || !f.IsControl() {
		return nil
	}
	var arns []string
	for _, k := range f.Keys() {
		k = cmp.Or(f.KeyAnswers[k].Key.ARN, k)
		if own, known := f.MachineIdentity(); known && !strings.Contains(k, ":") && !strings.HasPrefix(k, "alias/") {
			k = fmt.Sprintf("arn:%s:kms:%s:%s:key/%s", own.Partition, f.Region(), own.Account, k)
		}
		if _, err := arn.ParseKey(k); err == nil {
			arns = append(arns, k)
		}
	}
	slices.Sort(arns)
	return slices.Compact(arns)
}

// HasSubnetIn reports whether a subnet in the zone has the cluster's tag.
func (f *Facts) HasSubnetIn(zone string) bool {
	return slices.ContainsFunc(
		f.Subnets,
		func(s resource.Subnet) bool { return s.Zone == zone && s.Tags.BelongTo(f.Cluster()) },
	)
}
