package awssim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/wire"
)

// Code that both load balancing APIs share.

// elbTag is a tag in the form of Elastic Load Balancing.
type elbTag struct {
	Key, Value string
}

func elbTags(tags Tags) []elbTag {
	var list []elbTag
	for _, t := range tags.list() {
		list = append(list, elbTag(t))
	}
	return list
}

// mergeTags adds tags to others, as ELB's rules allow.
func mergeTags(old Tags, added []elbTag) (Tags, error) {
	merged := Tags{}
	for key, value := range old {
		merged[key] = value
	}
	seen := Tags{}
	for _, t := range added {
		if _, twice := seen[t.Key]; twice {
			return nil, errorf("DuplicateTagKeys", "The tag key '%s' is specified more than once", t.Key)
		}
		seen[t.Key] = t.Value
		merged[t.Key] = t.Value
	}
	if len(merged) > maxTags {
		return nil, errorf("TooManyTags", "The quota for the number of tags that can be assigned to a load balancer has been reached")
	}
	return merged, nil
}

var loadBalancerName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?$`)

func checkLoadBalancerName(name string) error {
	if !loadBalancerName.MatchString(name) {
		return errorf("ValidationError", "Load balancer name '%s' is not valid: it can have up to 32 characters of a-z, A-Z, 0-9 and '-', and must not begin or end with '-'", name)
	}
	if strings.HasPrefix(name, "internal-") {
		return errorf("ValidationError", "Load balancer name '%s' cannot begin with 'internal-'", name)
	}
	return nil
}

// balancerSubnets validates the subnets of a load balancer: they must exist in one VPC, one per zone, and for an internet-facing load
// balancer with a route to an internet gateway.
func (w *World) balancerSubnets(ids []string, internetFacing bool) ([]*Subnet, error) {
	var subnets []*Subnet
	for _, id := range ids {
		s := find(w.Subnets, id)
		if s == nil {
			return nil, errorf("SubnetNotFound", "The subnet ID '%s' does not exist", id)
		}
		for _, other := range subnets {
			if other.VPC != s.VPC {
				return nil, errorf("InvalidSubnet", "The subnets '%s' and '%s' are in different VPCs", other.ID, s.ID)
			}
			if other.AvailabilityZone == s.AvailabilityZone {
				return nil, errorf("InvalidConfigurationRequest", "A load balancer cannot be attached to multiple subnets in the same Availability Zone")
			}
		}
		if internetFacing && !w.hasInternetGateway(s) {
			return nil, errorf("InvalidSubnet", "VPC %s has no route to an internet gateway from subnet %s", s.VPC, s.ID)
		}
		subnets = append(subnets, s)
	}
	if len(subnets) == 0 {
		return nil, errorf("ValidationError", "At least one subnet must be specified")
	}
	return subnets, nil
}

// hasInternetGateway reads the subnet's own route table, or else the main one of its VPC.
func (w *World) hasInternetGateway(s *Subnet) bool {
	t := w.tableOf(s)
	return t != nil && slices.ContainsFunc(t.Routes, func(r Route) bool { return strings.HasPrefix(r.Gateway, "igw-") })
}

// attach assigns a load balancer an address in each of the subnets and releases those in others.
func (w *World) attach(addresses map[string]netip.Addr, ids []string) (map[string]netip.Addr, error) {
	result := map[string]netip.Addr{}
	for _, id := range ids {
		if a, has := addresses[id]; has {
			result[id] = a
			continue
		}
		a, err := w.freeAddress(find(w.Subnets, id))
		if err != nil {
			return nil, err
		}
		result[id] = a
	}
	return result, nil
}

// checkGroups returns an error if a security group does not exist in the VPC.
func (w *World) checkGroups(ids []string, vpc string) error {
	for _, id := range ids {
		if g := find(w.SecurityGroups, id); g == nil || g.VPC != vpc {
			return errorf("InvalidSecurityGroup", "The security group '%s' does not exist in VPC '%s'", id, vpc)
		}
	}
	return nil
}

// balancerDNSName is the DNS name of a load balancer: NAME-NUMBER.REGION.elb… for classic load balancers (with the prefix internal-
// for internal ones), NAME-HEX.elb.REGION… for network load balancers.
func (w *World) balancerDNSName(name, scheme string, classic bool) string {
	w.Serial++
	digest := w.mac("dns", name, fmt.Sprint(w.Serial))
	if !classic {
		return fmt.Sprintf("%s-%x.elb.%s.%s", name, digest[:8], w.Region, w.domain())
	}
	prefix := ""
	if scheme == "internal" {
		prefix = "internal-"
	}
	number := uint32(digest[0])<<24 | uint32(digest[1])<<16 | uint32(digest[2])<<8 | uint32(digest[3])
	return fmt.Sprintf("%s%s-%d.%s.elb.%s", prefix, name, number, w.Region, w.domain())
}

// elbPaging are the paging parameters of both APIs.
type elbPaging struct {
	Marker   string
	PageSize *int
}

// maxELBPage is the maximum number of load balancers in a response.
const maxELBPage = 400

func paginateELB[T any](list []T, p elbPaging) ([]T, string, error) {
	size := maxELBPage
	if p.PageSize != nil {
		size = *p.PageSize
	}
	if size < 1 || size > maxELBPage {
		return nil, "", errorf("ValidationError", "PageSize must be between 1 and %d", maxELBPage)
	}
	part, next, err := paginate(list, page{NextToken: p.Marker, MaxResults: &size}, 1, maxELBPage)
	if err != nil {
		return nil, "", errorf("ValidationError", "The marker '%s' is not valid", p.Marker)
	}
	return part, next, nil
}

// instanceAddress is the address of an instance for the data path; false if it is not running.
func (w *World) instanceAddress(id string) (netip.Addr, bool) {
	if i := find(w.Instances, id); i != nil && i.State == Running {
		return i.Address, true
	}
	return netip.Addr{}, false
}

// deregisterEverywhere removes a terminated instance from load balancers.
func (w *World) deregisterEverywhere(id string) {
	for i := range w.ClassicLoadBalancers {
		l := &w.ClassicLoadBalancers[i]
		l.Instances = slices.DeleteFunc(l.Instances, func(s string) bool { return s == id })
	}
	for i := range w.TargetGroups {
		g := &w.TargetGroups[i]
		g.Targets = slices.DeleteFunc(g.Targets, func(t GroupTarget) bool { return t.ID == id })
	}
}

// sortedKeys returns a map's keys in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// isCode reports whether an error is an API error with the code.
func isCode(err error, code string) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Code == code
}

// allowFirst checks, for the first load balancer of an account, the permissions that creating the service-linked role takes. AWS
// names them one at a time in AccessDenied errors of CreateLoadBalancer (kubernetes/cloud-provider-aws pull request 59 and
// eksctl-io/eksctl issue 2570).
func (c *call) allowFirst() error {
	if !c.Settings.NoServiceLinkedRole {
		return nil
	}
	for _, action := range []string{"ec2:DescribeAccountAttributes", "ec2:DescribeInternetGateways"} {
		if err := c.allowAction(action, target{arn: "*"}); err != nil {
			return err
		}
	}
	const service = "elasticloadbalancing.amazonaws.com"
	return c.allowAction("iam:CreateServiceLinkedRole", target{
		arn:     c.arn("iam", "", "role/aws-service-role/"+service+"/AWSServiceRoleForElasticLoadBalancing"),
		context: map[string][]string{"iam:AWSServiceName": {service}},
	})
}
