package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/node"
)

var (
	// InstanceIDForm matches the id of an instance.
	InstanceIDForm = regexp.MustCompile(`^i-[0-9a-f]{8,32}$`)
	zoneForm       = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
)

// parseIdentityDocument reads the instance identity document. The fields of a node's identity must be present and well
// formed.
func parseIdentityDocument(content string) (Instance, error) {
	var document struct{ InstanceID, Region, AvailabilityZone, PrivateIP string }
	if err := json.Unmarshal([]byte(content), &document); err != nil {
		return Instance{}, fmt.Errorf("the instance identity document is not JSON: %w", err)
	}
	switch {
	case !InstanceIDForm.MatchString(document.InstanceID):
		return Instance{}, fmt.Errorf(
			"the instance identity document has the instance id %q", awserr.Clip(document.InstanceID),
		)
	case !zoneForm.MatchString(document.Region):
		return Instance{}, fmt.Errorf(
			"the instance identity document has the region %q",
			awserr.Clip(document.Region),
		)
	case !zoneForm.MatchString(document.AvailabilityZone):
		return Instance{}, fmt.Errorf(
			"the instance identity document has the zone %q", awserr.Clip(document.AvailabilityZone),
		)
	}
	if a, err := netip.ParseAddr(document.PrivateIP); err != nil || !a.Is4() {
		return Instance{}, fmt.Errorf(
			"the instance identity document has the private address %q", awserr.Clip(document.PrivateIP),
		)
	}
	return Instance{
		InstanceID: document.InstanceID,
		Region:     document.Region,
		Zone:       document.AvailabilityZone,
		Address:    document.PrivateIP,
	}, nil
}

// parseProfile reads iam/info and returns the ARN of the instance profile.
func parseProfile(content string) (string, error) {
	var info struct{ Code, InstanceProfileArn string }
	if err := json.Unmarshal([]byte(content), &info); err != nil {
		return "", fmt.Errorf("iam/info is not JSON: %w", err)
	}
	if !strings.EqualFold(info.Code, "Success") {
		return "", fmt.Errorf("iam/info has the code %q", awserr.Clip(info.Code))
	}
	if !strings.HasPrefix(info.InstanceProfileArn, "arn:") {
		return "", fmt.Errorf("iam/info has the instance profile ARN %q", awserr.Clip(info.InstanceProfileArn))
	}
	return info.InstanceProfileArn, nil
}

// parseHostname takes the first of the names in local-hostname (a VPC with several domain names lists one for each).
func parseHostname(content string) (string, error) {
	fields := strings.Fields(strings.ToLower(content))
	if len(fields) == 0 {
		return "", errors.New("local-hostname is empty")
	}
	return fields[0], nil
}

// Instance describes this machine according to instance metadata.
type Instance struct {
	InstanceID string
	Region     string
	Zone       string
	Hostname   string // the private DNS name, once the preflight has asked EC2 for it; see HasEC2Name
	Address    string // the primary private IPv4 address
	VPC        string // empty if metadata lacks it
	Subnet     string // empty if metadata lacks it
	Groups     []string
	ProfileARN string // empty without an instance profile
}

// HasEC2Name reports whether the host name is in EC2's own domain of the region. The domain-name of a VPC's DHCP
// options can replace it in instance metadata, but not in the answers of EC2, by which the cloud controller knows
// instances (buildSelfAWSInstance in pkg/providers/v1/aws.go of cloud-provider-aws).
func (m Instance) HasEC2Name() bool {
	own := m.Region + ".compute.internal"
	if m.Region == "us-east-1" {
		own = "ec2.internal"
	}
	_, domain, _ := strings.Cut(m.Hostname, ".")
	return domain == own
}

// Identity returns the identity of the instance as a node.
func (m Instance) Identity() node.Identity {
	return node.Identity{
		Name:       m.Hostname,
		ProviderID: ProviderID(m.Zone, m.InstanceID),
		Address:    m.Address,
		Region:     m.Region,
		Zone:       m.Zone,
	}
}

// ProviderID is the cloud controller manager's ID of an instance.
func ProviderID(zone, instance string) string { return fmt.Sprintf("aws:///%s/%s", zone, instance) }
