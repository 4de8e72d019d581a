package aws

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/internal/spelling"
)

// cloudConfig is the part of the cloud controller manager's configuration file that the checks use.
type cloudConfig struct {
	ClusterID           string // KubernetesClusterID, else KubernetesClusterTag
	Zone                string
	SourceARN           string
	NodeIPFamilies      []string // empty: ipv4
	Overrides           []serviceOverride
	Region              string
	VPC                 string
	SubnetID            string
	RouteTableID        string
	ElbSecurityGroup    string
	RoleARN             string
	NoIngressManagement bool   // DisableSecurityGroupIngress
	legacyClusterID     string // KubernetesClusterTag
}

// serviceOverride is the endpoint of one of AWS' services in one region.
type serviceOverride struct {
	Service, Region, URL, SigningRegion, SigningName string
}

// region is the one that the cloud controller calls: that of Zone, or Region (getRegionFromMetadata in
// cloud-provider-aws); "" if instance metadata decides.
func (c cloudConfig) region() string {
	if c.Zone != "" {
		return zoneRegion.FindString(c.Zone)
	}
	return c.Region
}

// zoneRegion matches the region in the name of a zone (azToRegion in cloud-provider-aws).
var zoneRegion = regexp.MustCompile(`^([a-zA-Z]+-)+[0-9]+`)

// isElsewhere reports whether the cloud controller does not look up the instance that it runs on, but uses the VPC and
// the subnet of the configuration; it ignores them otherwise (newAWSCloud2 in cloud-provider-aws).
func (c cloudConfig) isElsewhere() bool {
	return c.VPC != "" && (c.SubnetID != "" || c.RoleARN != "") && c.ClusterID != ""
}

// controllerVPC is the VPC that the cloud controller uses on an instance in the given one.
func (c cloudConfig) controllerVPC(own string) string {
	if c.isElsewhere() {
		return c.VPC
	}
	return own
}

// roleName is the name of the role in RoleARN, without its path.
func (c cloudConfig) roleName() string { return c.RoleARN[strings.LastIndex(c.RoleARN, "/")+1:] }

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

// parseCloudConfig reads the file and checks it for everything that the cloud controller manager would silently ignore
// or fail on. The error lists all problems, with line numbers.
func parseCloudConfig(content []byte) (*cloudConfig, error) {
	entries, problems := scanCloudConfig(string(content))
	result := &cloudConfig{}
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
					clip(e.section),
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
					clip(e.key), section, nearestKey(e.key, keys),
				),
			)
			continue
		}
		if e.value == "" {
			problems = append(problems, fmt.Sprintf("line %d: %s has no value", e.line, key))
			continue
		}
		if err := kind(e.value); err != nil {
			problems = append(problems, fmt.Sprintf("line %d: %s: %q %v", e.line, key, clip(e.value), err))
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
				clip(result.legacyClusterID), clip(result.ClusterID),
			),
		)
	}
	for _, name := range order {
		o := overrides[name]
		for _, key := range requiredOverrideKeys {
			if o[key] == "" {
				problems = append(problems, fmt.Sprintf("[ServiceOverride %q] lacks a valid %s", clip(name), key))
			}
		}
		same := func(other serviceOverride) bool { return other.Service == o["Service"] && other.Region == o["Region"] }
		if o["Service"] != "" && slices.ContainsFunc(result.Overrides, same) {
			problems = append(
				problems,
				fmt.Sprintf(
					"[ServiceOverride %q] is the second one for %s in %s, with which the cloud controller does not "+
						"start",
					clip(name), o["Service"], clip(o["Region"]),
				),
			)
		}
		result.Overrides = append(
			result.Overrides,
			serviceOverride{o["Service"], o["Region"], o["URL"], o["SigningRegion"], o["SigningName"]},
		)
	}
	if len(problems) > 0 {
		return result, errors.New(strings.Join(problems, "; "))
	}
	return result, nil
}

func (c *cloudConfig) set(key, value string) {
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

// configEntry is one line with a setting. The line of a section itself has an empty key.
type configEntry struct {
	line                     int
	section, subsection, key string
	value                    string
}

var sectionLine = regexp.MustCompile(`^\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]\s*(?:[;#].*)?$`)

// scanCloudConfig splits the file, which has the syntax of git's configuration, into entries.
func scanCloudConfig(content string) (entries []configEntry, problems []string) {
	section, subsection := "", ""
	lines := strings.Split(strings.TrimPrefix(content, "\ufeff"), "\n")
	for i := 0; i < len(lines); i++ {
		number := i + 1
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			match := sectionLine.FindStringSubmatch(line)
			if match == nil {
				problems = append(
					problems,
					fmt.Sprintf(
						"line %d: %q is not a section such as [Global] or [ServiceOverride \"1\"]", number, clip(line),
					),
				)
				section = ""
				continue
			}
			section, subsection = match[1], match[2]
			entries = append(entries, configEntry{line: number, section: section, subsection: subsection})
			continue
		}
		key, raw, hasValue := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		for hasValue && strings.HasSuffix(raw, `\`) && i+1 < len(lines) { // continued on the next line
			i++
			raw = strings.TrimSuffix(raw, `\`) + strings.TrimSpace(lines[i])
		}
		value, err := unquote(strings.TrimSpace(raw))
		switch {
		case section == "":
			problems = append(
				problems, fmt.Sprintf("line %d: %q is before the first section, such as [Global]", number, clip(line)),
			)
		case err != nil:
			problems = append(problems, fmt.Sprintf("line %d: %s: %v", number, clip(key), err))
		default:
			if !hasValue {
				key, value = stripComment(key), "true" // a key without a value means true
			}
			entries = append(
				entries, configEntry{line: number, section: section, subsection: subsection, key: key, value: value},
			)
		}
	}
	return entries, problems
}

func stripComment(s string) string {
	if i := strings.IndexAny(s, ";#"); i >= 0 {
		s = s[:i]
	}
	return strings.TrimSpace(s)
}

// unquote resolves double quotes and escapes, and removes a comment at the end.
func unquote(raw string) (string, error) {
	var value strings.Builder
	quoted := false
	plainEnd := 0 // end of the value without unquoted spaces at its end
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '"':
			quoted = !quoted
			plainEnd = value.Len()
			continue
		case c == '\\':
			i++
			if i == len(raw) {
				return "", errors.New("ends in a backslash")
			}
			escaped, ok := map[byte]byte{'"': '"', '\\': '\\', 'n': '\n', 't': '\t', 'b': '\b'}[raw[i]]
			if !ok {
				return "", fmt.Errorf(`unknown escape \%c`, raw[i])
			}
			value.WriteByte(escaped)
			plainEnd = value.Len()
			continue
		case !quoted && (c == ';' || c == '#'):
			return value.String()[:plainEnd], nil
		}
		value.WriteByte(c)
		if quoted || c != ' ' && c != '\t' {
			plainEnd = value.Len()
		}
	}
	if quoted {
		return "", errors.New("a quote is not closed")
	}
	return value.String()[:plainEnd], nil
}
