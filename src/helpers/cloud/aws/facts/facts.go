// Package facts has what one round of a preflight knows about its machine and the account, as plain data, and what
// follows from it.
package facts

import (
	"errors"
	"net/netip"
	"time"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/cloud/aws/leftbehind"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/cloud/aws/subnetchoice"
	"kubernetes-release/preflight"
)

// ControllerReadsNoTags reports whether no cloud controller takes the cluster's name from this instance's tags.
func (f *Facts) ControllerReadsNoTags() bool { return !f.IsControl() || f.Conf.ClusterID != "" }

// NoMetadata is the reason to skip what requires instance metadata.
const NoMetadata = "instance metadata does not answer"

// PodsRouted reports whether packets leave machines with the addresses of pods.
func (f *Facts) PodsRouted() bool {
	return f.Settings.PodNetwork != "" && (f.Settings.UnencapsulatedPodNetwork || f.Settings.ConfigureCloudRoutes)
}

// NeedsRules reports whether checks look at the rules of the instance's security groups, and not only at their tags.
func (f *Facts) NeedsRules() bool { return f.PodsRouted() || f.Conf.NoIngressManagement }

// WhyNoChoice is the reason why the cloud controller's choice of subnets cannot be predicted; "" if it can.
func (f *Facts) WhyNoChoice() string {
	switch {
	case f.MetadataErr != nil:
		return NoMetadata
	case f.SubnetsErr != nil:
		return WhyMissing("subnets", f.SubnetsErr)
	case f.TablesErr != nil:
		return WhyMissing("route tables", f.TablesErr)
	case len(f.Subnets) == 0:
		return "EC2 describes no subnet of the VPC"
	}
	return "" // without zones, all are treated as regular ones, as the cloud controller does
}

// WhyMissing is the reason to skip what requires resources that could not be described.
func WhyMissing(what string, err error) string {
	if awserr.IsNotAsked(err) {
		return err.Error()
	}
	return "the " + what + " could not be described"
}

// Probe is the result of a call that tests a permission.
type Probe struct {
	Action   string   // the call, such as ec2:CreateSecurityGroup
	Covers   []string // the permissions that the call requires
	Resource string
	Err      error // nil: allowed
}

// VolumeLimits is the call, of ec2:CreateVolume, with which the EBS CSI driver asks EC2 for limits of volumes.
const VolumeLimits = "ec2:CreateVolume for limits"

// Facts is the information that one round has gathered. A source that failed has its error here, and its value is
// empty.
type Facts struct {
	Request  preflight.Config
	Settings Settings
	Conf     *cloudconfig.Config // never nil
	ConfErr  error
	ConfText []byte
	Now      time.Time

	Metadata       metadata.Instance
	MetadataErr    error
	MedianReply    time.Duration // of instance metadata
	SlowReply      time.Duration // maximum that needs no warning
	Profile        string
	ProfileErr     error
	Credentials    metadata.Credentials
	CredentialsErr error

	Instance     *resource.Instance
	InstanceErr  error
	Subnets      []resource.Subnet
	SubnetsErr   error
	Tables       resource.RouteTables
	TablesErr    error
	Zones        []resource.Zone
	ZonesErr     error
	Groups       []resource.SecurityGroup
	GroupsErr    error
	TagsOnly     bool // of the worker's subnet and security groups only the tags are known
	Probes       []Probe
	AssumeErr    error                   // of assuming the role that the cloud controller is configured to use
	Balancers    *resource.SecurityGroup // ElbSecurityGroup
	BalancersErr error
	Policies     *iampolicy.Answers
	PoliciesErr  error
	Questions    []iampolicy.Question // that IAM was asked about the policies
	RouteTables  resource.RouteTables // for cloud routes: those with the cluster's tag or the configured id
	RoutesErr    error
	RegistryHost string
	RegistryErr  error
	TokenHost    string // of STS
	TokenErr     error
	TokenRefused bool // STS answered, and does not accept a proof of this machine

	Encryption    resource.Encryption // of EBS, if there is storage
	EncryptionErr error
	KeyAnswers    map[string]KeyAnswer // of KMS, by the name of the key
	Machines      []resource.Machine   // the cluster's instances; their limits only if there is storage
	MachinesErr   error

	Issuer        *issuer.Config // whose keys job pod-roles publishes; nil without the job
	IssuerErrs    []error        // what the errand has found about it
	EncryptionUse KeyUse         // of the key that encrypts Secrets in etcd, if there is one

	LeftBehind    []leftbehind.Thing // that the errand has found
	LeftBehindErr error

	NodeProviderID string // of the Node object
	NodeErr        error

	Skew      time.Duration // local clock minus AWS's
	SkewKnown bool
	Local     []netip.Addr
	LocalErr  error
}

// KeyAnswer is what KMS says about a key.
type KeyAnswer struct {
	Key resource.Key
	Err error
}

// Cluster is the name of the cluster.
func (f *Facts) Cluster() string { return f.Request.Cluster }

// TagKey is the key of the cluster's tag.
func (f *Facts) TagKey() string { return clustertags.Prefix + f.Request.Cluster }

// IsControl reports whether this is a control VM.
func (f *Facts) IsControl() bool { return f.Request.Role == preflight.Control }

// InstanceID is the id of this instance; empty if instance metadata does not answer.
func (f *Facts) InstanceID() string { return f.Metadata.InstanceID }

// Region is the one that calls go to: that of the cloud controller on a control VM.
func (f *Facts) Region() string {
	if region := f.Conf.ControllerRegion(); f.IsControl() && region != "" {
		return region
	}
	return f.Metadata.Region
}

// VPCID is the VPC of the instance, or on a control VM the one that the cloud controller uses.
func (f *Facts) VPCID() string {
	if f.IsControl() {
		return f.Conf.ControllerVPC(f.OwnVPC())
	}
	return f.OwnVPC()
}

// OwnVPC is the VPC of the instance.
func (f *Facts) OwnVPC() string {
	switch {
	case f.Metadata.VPC != "":
		return f.Metadata.VPC
	case f.Instance != nil:
		return f.Instance.VPC
	}
	return ""
}

// SubnetID is the subnet of the instance.
func (f *Facts) SubnetID() string {
	if f.Metadata.Subnet == "" && f.Instance != nil {
		return f.Instance.Subnet
	}
	return f.Metadata.Subnet
}

// GroupIDs are the security groups of the instance.
func (f *Facts) GroupIDs() []string {
	if len(f.Metadata.Groups) > 0 || f.Instance == nil {
		return f.Metadata.Groups
	}
	return f.Instance.Groups
}

// Choices is what the cloud controller chooses the subnets of load balancers from.
func (f *Facts) Choices() subnetchoice.VPC {
	own := f.SubnetID()
	if f.Conf.IsElsewhere() {
		own = f.Conf.SubnetID
	}
	return subnetchoice.VPC{Cluster: f.Cluster(), OwnSubnet: own, Subnets: f.Subnets, Tables: f.Tables, Zones: f.Zones}
}

// Subnet returns one of the subnets that were described, or nil.
func (f *Facts) Subnet(id string) *resource.Subnet {
	for i := range f.Subnets {
		if f.Subnets[i].ID == id {
			return &f.Subnets[i]
		}
	}
	return nil
}

// MetadataFailure is the temporary fault of instance metadata that prevented reading the profile or the credentials.
func (f *Facts) MetadataFailure() *metadata.Fault {
	for _, err := range []error{f.ProfileErr, f.CredentialsErr} {
		var fault *metadata.Fault
		if errors.As(err, &fault) && fault.Temporary() {
			return fault
		}
	}
	return nil
}

// Overrides are the endpoints that the configuration replaces. Only the cloud controller reads them.
func (f *Facts) Overrides() []cloudconfig.Override {
	if !f.IsControl() {
		return nil
	}
	return f.Conf.Overrides
}

// ClusterTable is the route table that the cloud controller writes pod routes to, or nil if it cannot choose one.
func (f *Facts) ClusterTable() *resource.RouteTable {
	if len(f.RouteTables) != 1 {
		return nil
	}
	return &f.RouteTables[0]
}

// AssumesRole reports whether the cloud controller on this machine makes its calls as another role.
func (f *Facts) AssumesRole() bool { return f.IsControl() && f.Conf.RoleARN != "" }

// KeyUse is what KMS says to the encryption and decryption of a text.
type KeyUse struct {
	Action string // the one that failed
	Err    error
}
