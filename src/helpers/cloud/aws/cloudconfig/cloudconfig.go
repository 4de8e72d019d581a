// Package cloudconfig reads the configuration file of the AWS cloud controller manager, and checks it for everything
// that the cloud controller would silently ignore or fail on.
package cloudconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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

// zoneRegion matches the region in the name of a zone (azToRegion in cloud-provider-aws).
var zoneRegion = regexp.MustCompile(`^([a-zA-Z]+-)+[0-9]+`)

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

// valueKind checks the value of a key.
type valueKind func(value string) error

func oneOf(allowed ...string) valueKind {
	return func(value string) error {
		if slices.Contains(allowed, value) {
			return nil
		}
		return fmt.Errorf("is not one of %s", strings.Join(allowed, ", "))
	}
}

func port(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n < 1 || n > 65535 {
		return errors.New("is not a port from 1 to 65535")
	}
	return nil
}

func pattern(value string) error {
	if _, err := regexp.Compile(value); err != nil {
		return fmt.Errorf("is not a regular expression (%w), which would crash the cloud controller", err)
	}
	return nil
}

func form(prefix string) valueKind {
	return func(value string) error {
		if !strings.HasPrefix(value, prefix) {
			return fmt.Errorf("does not start with %q", prefix)
		}
		return nil
	}
}

func zoneName(value string) error {
	if zoneRegion.FindString(value) == "" {
		return errors.New("is not a zone such as us-east-1a")
	}
	return nil
}

func roleARN(value string) error {
	if parts := strings.Split(value, ":"); len(parts) != 6 || parts[0] != "arn" || parts[2] != "iam" ||
		!strings.HasPrefix(parts[5], "role/") {
		return errors.New("is not the ARN of a role, such as arn:aws:iam::123456789012:role/cloud-controller")
	}
	return nil
}

// settings are the keys that the cloud controller manager 1.37 supports (CloudConfig in pkg/providers/v1/config of
// cloud-provider-aws).
type settings struct {
	Global          global
	ServiceOverride map[string]*override
}

type global struct {
	Zone, Region, VPC, SubnetID, RouteTableID, RoleARN, SourceARN string
	KubernetesClusterTag, KubernetesClusterID                     string
	DisableSecurityGroupIngress                                   bool
	ElbSecurityGroup                                              string
	NodeIPFamilies                                                []string
	ClusterServiceLoadBalancerHealthProbeMode                     string
	ClusterServiceSharedLoadBalancerHealthProbePort               int32
	ClusterServiceSharedLoadBalancerHealthProbePath               string
	SupportedTopologyInstanceTypePattern                          string
	NLBSecurityGroupMode                                          string
}

type override struct {
	Service, Region, URL, SigningRegion, SigningMethod, SigningName string
}

var requiredOverrideKeys = []string{"Service", "Region", "URL", "SigningRegion"}

// kinds check the values of keys that have some.
var kinds = map[string]valueKind{
	"Zone":             zoneName,
	"VPC":              form("vpc-"),
	"SubnetID":         form("subnet-"),
	"RouteTableID":     form("rtb-"),
	"RoleARN":          roleARN,
	"SourceARN":        form("arn:"),
	"ElbSecurityGroup": form("sg-"),
	"NodeIPFamilies":   oneOf("ipv4", "ipv6"),
	"ClusterServiceLoadBalancerHealthProbeMode":       oneOf("Shared", "ServiceNodePort"),
	"ClusterServiceSharedLoadBalancerHealthProbePort": port,
	"ClusterServiceSharedLoadBalancerHealthProbePath": form("/"),
	"SupportedTopologyInstanceTypePattern":            pattern,
	"NLBSecurityGroupMode":                            oneOf("Managed"),
	"Service": oneOf(
		"EC2", "Elastic Load Balancing", "Elastic Load Balancing v2", "KMS", "ec2imds",
	),
	"URL": form("http"),
}

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
