// Package cloudconfig reads the configuration file of the AWS cloud controller manager, and checks it for everything
// that the cloud controller would silently ignore or fail on.
package cloudconfig

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/internal/spelling"
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
	NoIngressManagement bool   // DisableSecurityGroupIngress
	legacyClusterID     string // KubernetesClusterTag
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

func anyText(string) error { return nil }

func boolean(value string) error {
	_, err := parseBoolean(value)
	return err
}

func parseBoolean(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, errors.New("is not one of true, yes, on, 1, false, no, off, 0")
}

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

// globalKeys and overrideKeys are the keys that the cloud controller manager 1.37 supports. It silently ignores all
// others.
var (
	globalKeys = map[string]valueKind{
		"Zone":                        zoneName,
		"Region":                      anyText,
		"VPC":                         form("vpc-"),
		"SubnetID":                    form("subnet-"),
		"RouteTableID":                form("rtb-"),
		"RoleARN":                     roleARN,
		"SourceARN":                   form("arn:"),
		"KubernetesClusterTag":        anyText,
		"KubernetesClusterID":         anyText,
		"DisableSecurityGroupIngress": boolean,
		"ElbSecurityGroup":            form("sg-"),
		"NodeIPFamilies":              oneOf("ipv4", "ipv6"),
		"ClusterServiceLoadBalancerHealthProbeMode":       oneOf("Shared", "ServiceNodePort"),
		"ClusterServiceSharedLoadBalancerHealthProbePort": port,
		"ClusterServiceSharedLoadBalancerHealthProbePath": form("/"),
		"SupportedTopologyInstanceTypePattern":            pattern,
		"NLBSecurityGroupMode":                            oneOf("Managed"),
	}
	overrideKeys = map[string]valueKind{
		"Service":       oneOf("EC2", "Elastic Load Balancing", "Elastic Load Balancing v2", "KMS", "ec2imds"),
		"Region":        anyText,
		"URL":           form("http"),
		"SigningRegion": anyText,
		"SigningMethod": anyText,
		"SigningName":   anyText,
	}
	requiredOverrideKeys = []string{"Service", "Region", "URL", "SigningRegion"}
)

// Parse reads the file and checks it for everything that the cloud controller manager would silently ignore
// or fail on. The error lists all problems, with line numbers.
func Parse(content []byte) (*Config, error) {
	entries, problems := scan(string(content))
	result := &Config{}
	overrides := map[string]map[string]string{}
	var order []string
	for _, e := range entries {
		keys, section := globalKeys, "Global"
		switch {
		case strings.EqualFold(e.section, "ServiceOverride"):
			keys, section = overrideKeys, "ServiceOverride"
			if overrides[e.subsection] == nil {
				overrides[e.subsection] = map[string]string{}
				order = append(order, e.subsection)
			}
		case !strings.EqualFold(e.section, "Global"):
			problems = append(
				problems,
				fmt.Sprintf(
					"line %d: section [%s] is unknown; allowed are [Global] and [ServiceOverride \"n\"]", e.line,
					awserr.Clip(e.section),
				),
			)
			continue
		}
		if e.key == "" {
			continue // the section's own line
		}
		key, kind := lookup(keys, e.key)
		if kind == nil {
			problems = append(
				problems,
				fmt.Sprintf(
					"line %d: key %q in [%s] is unknown, and the cloud controller would silently ignore it%s", e.line,
					awserr.Clip(e.key), section, nearestKey(e.key, keys),
				),
			)
			continue
		}
		if e.value == "" {
			problems = append(problems, fmt.Sprintf("line %d: %s has no value", e.line, key))
			continue
		}
		if err := kind(e.value); err != nil {
			problems = append(problems, fmt.Sprintf("line %d: %s: %q %v", e.line, key, awserr.Clip(e.value), err))
			continue
		}
		if section == "Global" {
			result.set(key, e.value)
		} else {
			overrides[e.subsection][key] = e.value
		}
	}
	result.ClusterID = cmp.Or(result.ClusterID, result.legacyClusterID)
	if result.legacyClusterID != "" && result.ClusterID != result.legacyClusterID {
		problems = append(
			problems,
			fmt.Sprintf(
				"KubernetesClusterTag %q and KubernetesClusterID %q differ, with which the cloud controller does not "+
					"start",
				awserr.Clip(result.legacyClusterID), awserr.Clip(result.ClusterID),
			),
		)
	}
	for _, name := range order {
		o := overrides[name]
		for _, key := range requiredOverrideKeys {
			if o[key] == "" {
				problems = append(
					problems,
					fmt.Sprintf("[ServiceOverride %q] lacks a valid %s", awserr.Clip(name), key),
				)
			}
		}
		same := func(other Override) bool { return other.Service == o["Service"] && other.Region == o["Region"] }
		if o["Service"] != "" && slices.ContainsFunc(result.Overrides, same) {
			problems = append(
				problems,
				fmt.Sprintf(
					"[ServiceOverride %q] is the second one for %s in %s, with which the cloud controller does not "+
						"start",
					awserr.Clip(name), o["Service"], awserr.Clip(o["Region"]),
				),
			)
		}
		result.Overrides = append(
			result.Overrides,
			Override{o["Service"], o["Region"], o["URL"], o["SigningRegion"], o["SigningName"]},
		)
	}
	if len(problems) > 0 {
		return result, errors.New(strings.Join(problems, "; "))
	}
	return result, nil
}

func (c *Config) set(key, value string) {
	switch key {
	case "KubernetesClusterID":
		c.ClusterID = value
	case "KubernetesClusterTag":
		c.legacyClusterID = value
	case "Zone":
		c.Zone = value
	case "SourceARN":
		c.SourceARN = value
	case "NodeIPFamilies":
		c.NodeIPFamilies = append(c.NodeIPFamilies, value)
	case "Region":
		c.Region = value
	case "VPC":
		c.VPC = value
	case "SubnetID":
		c.SubnetID = value
	case "RouteTableID":
		c.RouteTableID = value
	case "ElbSecurityGroup":
		c.ElbSecurityGroup = value
	case "RoleARN":
		c.RoleARN = value
	case "DisableSecurityGroupIngress":
		c.NoIngressManagement, _ = parseBoolean(value) // has been validated
	}
}

func lookup(keys map[string]valueKind, name string) (string, valueKind) {
	for key, kind := range keys {
		if strings.EqualFold(key, name) {
			return key, kind
		}
	}
	return "", nil
}

func nearestKey(name string, keys map[string]valueKind) string {
	names := make([]string, 0, len(keys))
	for key := range keys {
		names = append(names, key)
	}
	slices.Sort(names)
	if near := spelling.Nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; known are " + strings.Join(names, ", ")
}
