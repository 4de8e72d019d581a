// Package balancing is what both APIs of Elastic Load Balancing share.
package balancing

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

// Pairs are tags in the form of Elastic Load Balancing.
func Pairs(tags store.Tags) []store.Pair {
	var list []store.Pair
	for _, t := range tags.List() {
		list = append(list, store.Pair(t))
	}
	return list
}

// tagForm matches what ELB's API allows in the keys and values of tags ("Tag" in the API references of Elastic Load
// Balancing). EC2 allows every character.
var tagForm = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

// The maximum lengths of tags, in characters.
const maxTagKey, maxTagValue = 128, 256

// checkTag refuses a tag by the form of its key or value.
func checkTag(number int, tag store.Pair) error {
	for _, part := range []struct {
		name, text       string
		minimum, maximum int
	}{{"key", tag.Key, 1, maxTagKey}, {"value", tag.Value, 0, maxTagValue}} {
		var constraint string
		switch length := utf8.RuneCountInString(part.text); {
		case length < part.minimum:
			constraint = fmt.Sprintf("have length greater than or equal to %d", part.minimum)
		case length > part.maximum:
			constraint = fmt.Sprintf("have length less than or equal to %d", part.maximum)
		case !tagForm.MatchString(part.text):
			constraint = `satisfy regular expression pattern: ^([\p{L}\p{Z}\p{N}_.:/=+\-@]*)$`
		default:
			continue
		}
		return api.Errorf(
			"ValidationError",
			"1 validation error detected: Value '%s' at 'tags.%d.member.%s' failed to satisfy constraint: Member must "+
				"%s",
			part.text, number, part.name, constraint,
		)
	}
	return nil
}

// MergeTags adds tags to others, as ELB's rules allow.
func MergeTags(old store.Tags, added []store.Pair) (store.Tags, error) {
	merged := store.Tags{}
	for key, value := range old {
		merged[key] = value
	}
	seen := store.Tags{}
	for n, t := range added {
		if err := checkTag(n+1, t); err != nil {
			return nil, err
		}
		if _, twice := seen[t.Key]; twice {
			return nil, api.Errorf("DuplicateTagKeys", "The tag key '%s' is specified more than once", t.Key)
		}
		seen[t.Key] = t.Value
		merged[t.Key] = t.Value
	}
	if len(merged) > ec2api.MaxTags {
		return nil, api.Errorf(
			"TooManyTags", "The quota for the number of tags that can be assigned to a load balancer has been reached",
		)
	}
	return merged, nil
}

var loadBalancerName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?$`)

// CheckLoadBalancerName refuses what cannot be the name of a load balancer.
func CheckLoadBalancerName(name string) error {
	if !loadBalancerName.MatchString(name) {
		return api.Errorf(
			"ValidationError",
			"Load balancer name '%s' is not valid: it can have up to 32 characters of a-z, A-Z, 0-9 and '-', and "+
				"must not begin or end with '-'",
			name,
		)
	}
	if strings.HasPrefix(name, "internal-") {
		return api.Errorf("ValidationError", "Load balancer name '%s' cannot begin with 'internal-'", name)
	}
	return nil
}

// Subnets validates the subnets of a load balancer: they must exist in one VPC, one per zone, and for an
// internet-facing load balancer with a route to an internet gateway.
func Subnets(w *store.World, ids []string, internetFacing bool) ([]*store.Subnet, error) {
	var subnets []*store.Subnet
	for _, id := range ids {
		s := store.Find(w.Subnets, id)
		if s == nil {
			return nil, api.Errorf("SubnetNotFound", "The subnet ID '%s' does not exist", id)
		}
		for _, other := range subnets {
			if other.VPC != s.VPC {
				return nil, api.Errorf(
					"InvalidSubnet", "The subnets '%s' and '%s' are in different VPCs", other.ID, s.ID,
				)
			}
			if other.AvailabilityZone == s.AvailabilityZone {
				return nil, api.Errorf(
					"InvalidConfigurationRequest",
					"A load balancer cannot be attached to multiple subnets in the same Availability Zone",
				)
			}
		}
		if internetFacing && !w.HasInternetGateway(s) {
			return nil, api.Errorf(
				"InvalidSubnet", "VPC %s has no route to an internet gateway from subnet %s", s.VPC, s.ID,
			)
		}
		subnets = append(subnets, s)
	}
	if len(subnets) == 0 {
		return nil, api.Errorf("ValidationError", "At least one subnet must be specified")
	}
	return subnets, nil
}

// Attach assigns a load balancer an address in each of the subnets and releases those in others.
func Attach(w *store.World, addresses map[string]netip.Addr, ids []string) (map[string]netip.Addr, error) {
	result := map[string]netip.Addr{}
	for _, id := range ids {
		if a, has := addresses[id]; has {
			result[id] = a
			continue
		}
		a, err := ec2api.FreeAddress(w, store.Find(w.Subnets, id))
		if err != nil {
			return nil, err
		}
		result[id] = a
	}
	return result, nil
}

// CheckGroups returns an error if a security group does not exist in the VPC.
func CheckGroups(w *store.World, ids []string, vpc string) error {
	for _, id := range ids {
		if g := store.Find(w.SecurityGroups, id); g == nil || g.VPC != vpc {
			return api.Errorf("InvalidSecurityGroup", "The security group '%s' does not exist in VPC '%s'", id, vpc)
		}
	}
	return nil
}

// DNSName is the DNS name of a load balancer: NAME-NUMBER.REGION.elb… for classic load balancers (with the prefix
// internal- for internal ones), NAME-HEX.elb.REGION… for network load balancers.
func DNSName(w *store.World, name, scheme string, classic bool) string {
	w.Serial++
	digest := w.MAC("dns", name, fmt.Sprint(w.Serial))
	if !classic {
		return fmt.Sprintf("%s-%x.elb.%s.%s", name, digest[:8], w.Region, w.Domain())
	}
	prefix := ""
	if scheme == "internal" {
		prefix = "internal-"
	}
	number := uint32(digest[0])<<24 | uint32(digest[1])<<16 | uint32(digest[2])<<8 | uint32(digest[3])
	return fmt.Sprintf("%s%s-%d.%s.elb.%s", prefix, name, number, w.Region, w.Domain())
}

// Paging are the paging parameters of both APIs.
type Paging struct {
	Marker   string
	PageSize *int
}

// maxELBPage is the maximum number of load balancers in a response.
const maxELBPage = 400

// Paginate returns the page of a list that the parameters ask for, and the marker of the next one.
func Paginate[T any](list []T, p Paging) ([]T, string, error) {
	size := maxELBPage
	if p.PageSize != nil {
		size = *p.PageSize
	}
	if size < 1 || size > maxELBPage {
		return nil, "", api.Errorf("ValidationError", "PageSize must be between 1 and %d", maxELBPage)
	}
	part, next, err := ec2api.Paginate(list, ec2api.Page{NextToken: p.Marker, MaxResults: &size}, 1, maxELBPage)
	if err != nil {
		return nil, "", api.Errorf("ValidationError", "The marker '%s' is not valid", p.Marker)
	}
	return part, next, nil
}

// maxDescribed is of how many resources one call describes the tags ("DescribeTags" in both API references).
const maxDescribed = 20

// CheckDescribed refuses to describe the tags of more resources than one call may, or of none.
func CheckDescribed(resources []string) error {
	if len(resources) < 1 || len(resources) > maxDescribed {
		return api.Errorf(
			"ValidationError", "Tags of 1 to %d resources can be described, not of %d", maxDescribed, len(resources),
		)
	}
	return nil
}

// DeregisterEverywhere removes a terminated instance from load balancers.
func DeregisterEverywhere(w *store.World, id string) {
	for i := range w.ClassicLoadBalancers {
		l := &w.ClassicLoadBalancers[i]
		l.Instances = slices.DeleteFunc(l.Instances, func(s string) bool { return s == id })
	}
	for i := range w.TargetGroups {
		g := &w.TargetGroups[i]
		g.Targets = slices.DeleteFunc(g.Targets, func(t store.GroupTarget) bool { return t.ID == id })
	}
}
