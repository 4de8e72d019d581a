package cloudconfig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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

// zoneRegion matches the region in the name of a zone (azToRegion in cloud-provider-aws).
var zoneRegion = regexp.MustCompile(`^([a-zA-Z]+-)+[0-9]+`)
