package aws

import (
	"errors"
	"net/netip"
	"time"

	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/preflight"
)

// source is one thing that is asked for. Checks list the sources that they need, so that only those are asked again.
type source uint

const (
	fromMetadata source = 1 << iota
	fromProfile
	fromCredentials
	fromInstance
	fromSubnets
	fromRouteTables
	fromZones
	fromGroups
	fromProbes
	fromPolicies
	fromRegistry
	fromTokenService
	fromNode
	fromStorage
	fromCluster
	everything source = 1<<iota - 1
)

// fromEC2 are the sources that require credentials.
const fromEC2 = fromInstance | fromSubnets | fromRouteTables | fromZones | fromGroups | fromProbes | fromPolicies | fromStorage | fromCluster

// sourceActions are the permissions that asking a source requires. Probes test permissions instead of requiring them.
var sourceActions = map[source][]string{
	fromInstance:    {"ec2:DescribeInstances"},
	fromSubnets:     {"ec2:DescribeSubnets"},
	fromRouteTables: {"ec2:DescribeRouteTables"},
	fromZones:       {"ec2:DescribeAvailabilityZones"},
	fromGroups:      {"ec2:DescribeSecurityGroups"},
	fromCluster:     {"ec2:DescribeInstances"},
	fromPolicies:    {simulateAction, findRoleAction},
	fromStorage:     {"ec2:DescribeInstanceTypes", "ec2:GetEbsDefaultKmsKeyId", "ec2:GetEbsEncryptionByDefault"},
}

// facts is the information that one round has gathered. A source that failed has its error here, and its value is
// empty.
type facts struct {
	request  preflight.Config
	conf     *cloudconfig.Config // never nil
	confErr  error
	confText []byte
	now      time.Time

	metadata       metadata.Instance
	metadataErr    error
	medianReply    time.Duration // of instance metadata
	slowReply      time.Duration // maximum that needs no warning
	profile        string
	profileErr     error
	credentials    metadata.Credentials
	credentialsErr error

	instance     *instance
	instanceErr  error
	subnets      []subnet
	subnetsErr   error
	tables       []routeTable
	tablesErr    error
	zones        []zone
	zonesErr     error
	groups       []securityGroup
	groupsErr    error
	probes       []probe
	assumeErr    error          // of assuming the role that the cloud controller is configured to use
	balancers    *securityGroup // ElbSecurityGroup
	balancersErr error
	policies     *policyAnswers
	policiesErr  error
	routeTables  []routeTable // for cloud routes: those with the cluster's tag or the configured id
	routesErr    error
	registryHost string
	registryErr  error
	tokenHost    string // of STS
	tokenErr     error

	encryption    encryption // of EBS, if there is storage
	encryptionErr error
	machines      []machine // the cluster's instances; their limits only if there is storage
	machinesErr   error

	nodeProviderID string // of the Node object
	nodeErr        error

	skew      time.Duration // local clock minus AWS's
	skewKnown bool
	local     []netip.Addr
	localErr  error
}

func (f *facts) cluster() string { return f.request.Cluster }

func (f *facts) tagKey() string { return clustertags.Prefix + f.request.Cluster }

func (f *facts) isControl() bool { return f.request.Role == preflight.Control }

func (f *facts) instanceID() string { return f.metadata.InstanceID }

// region is the one that calls go to: that of the cloud controller on a control VM.
func (f *facts) region() string {
	if region := f.conf.ControllerRegion(); f.isControl() && region != "" {
		return region
	}
	return f.metadata.Region
}

// vpcID is the VPC of the instance, or on a control VM the one that the cloud controller uses.
func (f *facts) vpcID() string {
	if f.isControl() {
		return f.conf.ControllerVPC(f.ownVPC())
	}
	return f.ownVPC()
}

func (f *facts) ownVPC() string {
	switch {
	case f.metadata.VPC != "":
		return f.metadata.VPC
	case f.instance != nil:
		return f.instance.VPC
	}
	return ""
}

func (f *facts) subnetID() string {
	if f.metadata.Subnet == "" && f.instance != nil {
		return f.instance.Subnet
	}
	return f.metadata.Subnet
}

func (f *facts) groupIDs() []string {
	if len(f.metadata.Groups) > 0 || f.instance == nil {
		return f.metadata.Groups
	}
	return f.instance.Groups
}

func (f *facts) vpc() vpc {
	own := f.subnetID()
	if f.conf.IsElsewhere() {
		own = f.conf.SubnetID
	}
	return vpc{cluster: f.cluster(), ownSubnet: own, subnets: f.subnets, tables: f.tables, zones: f.zones}
}

// subnet returns one of the subnets that were described, or nil.
func (f *facts) subnet(id string) *subnet {
	for i := range f.subnets {
		if f.subnets[i].ID == id {
			return &f.subnets[i]
		}
	}
	return nil
}

// metadataFailure is the temporary fault of instance metadata that prevented reading the profile or the credentials.
func (f *facts) metadataFailure() *metadata.Fault {
	for _, err := range []error{f.profileErr, f.credentialsErr} {
		var fault *metadata.Fault
		if errors.As(err, &fault) && fault.Temporary() {
			return fault
		}
	}
	return nil
}
