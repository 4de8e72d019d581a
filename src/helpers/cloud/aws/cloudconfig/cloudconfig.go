// Package cloudconfig reads the configuration file of the AWS cloud controller manager, and checks it for everything
// that the cloud controller would silently ignore or fail on.
package cloudconfig

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/gcfg.v1"

	"kubernetes-release/cloud/aws/awserr"
)

// Config is the part of the cloud controller manager's configuration file that the checks use.
type Config struct {
	ClusterID           string // KubernetesClusterID, else KubernetesClusterTag
	Zone                string
	SourceARN           string
	NodeIPFamilies      []string // empty: ipv4
	Overrides           []Override
	Region              string
	VPC                 string
	SubnetID            string
	RouteTableID        string
	ElbSecurityGroup    string
	RoleARN             string
	NoIngressManagement bool // DisableSecurityGroupIngress
}

// Override is the endpoint of one of AWS' services in one region.
type Override struct {
	Service, Region, URL, SigningRegion, SigningName string
}

// ControllerRegion is the one that the cloud controller calls: that of Zone, or Region (getRegionFromMetadata in
// cloud-provider-aws); "" if instance metadata decides.
func (c Config) ControllerRegion() string {
	if c.Zone != "" {
		return zoneRegion.FindString(c.Zone)
	}
	return c.Region
}

// IsElsewhere reports whether the cloud controller does not look up the instance that it runs on, but uses the VPC and
// the subnet of the configuration; it ignores them otherwise (newAWSCloud2 in cloud-provider-aws).
func (c Config) IsElsewhere() bool {
	return c.VPC != "" && (c.SubnetID != "" || c.RoleARN != "") && c.ClusterID != ""
}

// ControllerVPC is the VPC that the cloud controller uses on an instance in the given one.
func (c Config) ControllerVPC(own string) string {
	if c.IsElsewhere() {
		return c.VPC
	}
	return own
}

// RoleName is the name of the role in RoleARN, without its path.
func (c Config) RoleName() string { return c.RoleARN[strings.LastIndex(c.RoleARN, "/")+1:] }

// Parse reads the file as the cloud controller manager does (readAWSCloudConfig in cloud-provider-aws), and checks it
// for everything that it would silently ignore or fail on. The error lists all problems.
func Parse(content []byte) (*Config, error) {
	var read settings
	problems := newProblems(content)
	problems.addReading(gcfg.ReadStringInto(&read, string(content)))
	problems.addEmpty()
	problems.addValues("Global", reflect.ValueOf(read.Global))
	g := read.Global
	result := &Config{
		ClusterID: cmp.Or(g.KubernetesClusterID, g.KubernetesClusterTag), Zone: g.Zone, SourceARN: g.SourceARN,
		NodeIPFamilies: g.NodeIPFamilies, Region: g.Region, VPC: g.VPC, SubnetID: g.SubnetID,
		RouteTableID: g.RouteTableID, ElbSecurityGroup: g.ElbSecurityGroup, RoleARN: g.RoleARN,
		NoIngressManagement: g.DisableSecurityGroupIngress,
	}
	if tag := g.KubernetesClusterTag; tag != "" && result.ClusterID != tag {
		problems.add(
			"KubernetesClusterTag %q and KubernetesClusterID %q differ, with which the cloud controller does not start",
			awserr.Clip(tag), awserr.Clip(result.ClusterID),
		)
	}
	for _, name := range slices.Sorted(maps.Keys(read.ServiceOverride)) {
		o := read.ServiceOverride[name]
		values := reflect.ValueOf(*o)
		problems.addValues("ServiceOverride", values)
		for _, key := range requiredOverrideKeys {
			if values.FieldByName(key).IsZero() {
				problems.add("[ServiceOverride %q] lacks a valid %s", awserr.Clip(name), key)
			}
		}
		same := func(other Override) bool { return other.Service == o.Service && other.Region == o.Region }
		if o.Service != "" && slices.ContainsFunc(result.Overrides, same) {
			problems.add(
				"[ServiceOverride %q] is the second one for %s in %s, with which the cloud controller does not start",
				awserr.Clip(name), o.Service, awserr.Clip(o.Region),
			)
		}
		result.Overrides = append(
			result.Overrides, Override{o.Service, o.Region, o.URL, o.SigningRegion, o.SigningName},
		)
	}
	return result, problems.err()
}
