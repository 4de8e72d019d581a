// Package elbv2 has the actions of Elastic Load Balancing on network and application load balancers, and their data
// path.
package elbv2

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/store"
)

// allowCreate checks the permission to create a resource with tags.
func allowCreate(c *api.Call, path string, tags store.Tags) error {
	arn := c.ARN("elasticloadbalancing", c.Region, path+"/*")
	if err := c.Allow(api.Target{ARN: arn, RequestTags: tags}); err != nil {
		return err
	}
	return ec2api.AllowTagsOnCreate(c, "elasticloadbalancing:AddTags", "elasticloadbalancing:CreateAction", arn, tags)
}

type v2SubnetMapping struct {
	SubnetId           string
	AllocationId       string // accepted without effect: there are no elastic addresses
	PrivateIPv4Address string
}

type v2CreateInput struct {
	Name           string
	Type           string
	Scheme         string
	Subnets        []string
	SubnetMappings []v2SubnetMapping
	SecurityGroups []string
	IpAddressType  string
	Tags           []store.Pair
	// EnablePrefixForIpv6SourceNat can only be off: there is no IPv6.
	EnablePrefixForIpv6SourceNat string
}

type v2State struct{ Code string }

type v2Address struct {
	PrivateIPv4Address string `xml:",omitempty"`
	IpAddress          string `xml:",omitempty"`
}

type v2Zone struct {
	ZoneName  string
	SubnetId  string
	Addresses []v2Address `xml:"LoadBalancerAddresses>member"`
}

type v2LoadBalancer struct {
	LoadBalancerArn       string
	DNSName               string
	CanonicalHostedZoneId string
	CreatedTime           string
	LoadBalancerName      string
	Scheme                string
	VpcId                 string
	State                 v2State
	Type                  string
	AvailabilityZones     []v2Zone `xml:"AvailabilityZones>member"`
	SecurityGroups        []string `xml:"SecurityGroups>member"`
	IpAddressType         string
}

type v2LoadBalancers struct {
	LoadBalancers []v2LoadBalancer `xml:"LoadBalancers>member"`
	NextMarker    string           `xml:",omitempty"`
}

func v2View(c *api.Call, l store.LoadBalancer) v2LoadBalancer {
	v := v2LoadBalancer{
		LoadBalancerArn:       l.ARN,
		DNSName:               l.DNSName,
		CanonicalHostedZoneId: "Z26RNL4JYFTOTI",
		CreatedTime:           l.Created.Format(time.RFC3339),
		LoadBalancerName:      l.Name,
		Scheme:                l.Scheme,
		VpcId:                 l.VPC,
		State:                 v2State{"active"},
		Type:                  cmp.Or(l.Type, "network"),
		SecurityGroups:        l.SecurityGroups,
		IpAddressType:         l.IPAddressType,
	}
	for _, id := range store.SortedKeys(l.Addresses) {
		zone := v2Zone{SubnetId: id}
		if s := store.Find(c.Subnets, id); s != nil {
			zone.ZoneName = s.AvailabilityZone
		}
		if l.Scheme == "internal" {
			zone.Addresses = []v2Address{{PrivateIPv4Address: l.Addresses[id].String()}}
		}
		v.AvailabilityZones = append(v.AvailabilityZones, zone)
	}
	return v
}

func v2Create(c *api.Call, in v2CreateInput) (*v2LoadBalancers, error) {
	tags, err := balancing.MergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	in.Type = cmp.Or(in.Type, "application")
	kind, ok := map[string]string{"network": "net", "application": "app"}[in.Type]
	if !ok {
		return nil, api.Errorf(
			"ValidationError", "Load balancers of type '%s' are not simulated; 'network' and 'application' are",
			in.Type,
		)
	}
	if in.EnablePrefixForIpv6SourceNat == "on" {
		return nil, api.Errorf("ValidationError", "IPv6 is not simulated, so there can be no source NAT for it")
	}
	path := "loadbalancer/" + kind + "/" + in.Name
	if err := allowCreate(c, path, tags); err != nil {
		return nil, err
	}
	if err := c.AllowFirst(); err != nil {
		return nil, err
	}
	if in.Type == "application" { // AWS requires it in some accounts, and upstream's policy for the controller has it
		if err := c.AllowAction("ec2:GetSecurityGroupsForVpc", api.Target{ARN: "*"}); err != nil {
			return nil, err
		}
	}
	if err := balancing.CheckLoadBalancerName(in.Name); err != nil {
		return nil, err
	}
	if err := checkAddressType(in.IpAddressType); err != nil {
		return nil, err
	}
	scheme := cmp.Or(in.Scheme, "internet-facing")
	if scheme != "internet-facing" && scheme != "internal" {
		return nil, api.Errorf(
			"InvalidScheme", "Scheme '%s' is not valid; it must be internet-facing or internal", scheme,
		)
	}
	if slices.ContainsFunc(c.LoadBalancers, func(l store.LoadBalancer) bool { return l.Name == in.Name }) {
		return nil, api.Errorf(
			"DuplicateLoadBalancerName", "A load balancer with the same name '%s' exists, but with different settings",
			in.Name,
		)
	}
	ids, fixed, err := mappings(c, in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}
	subnets, err := balancing.Subnets(c.World, ids, scheme == "internet-facing")
	if err != nil {
		return nil, err
	}
	if in.Type == "application" && len(subnets) < 2 {
		return nil, api.Errorf(
			"InvalidConfigurationRequest", "At least two subnets in two different Availability Zones must be specified",
		)
	}
	if err := balancing.CheckGroups(c.World, in.SecurityGroups, subnets[0].VPC); err != nil {
		return nil, err
	}
	l := store.LoadBalancer{
		Name:           in.Name,
		Type:           in.Type,
		Scheme:         scheme,
		VPC:            subnets[0].VPC,
		SecurityGroups: in.SecurityGroups,
		IPAddressType:  cmp.Or(in.IpAddressType, "ipv4"),
		Created:        c.Now,
		Tags:           tags,
		Attributes: map[string]string{
			"access_logs.s3.enabled":            "false",
			"access_logs.s3.bucket":             "",
			"access_logs.s3.prefix":             "",
			"deletion_protection.enabled":       "false",
			"load_balancing.cross_zone.enabled": "false",
			"dns_record.client_routing_policy":  "any_availability_zone",
		},
	}
	if l.Application() {
		l.Attributes = applicationAttributes()
	}
	if l.Addresses, err = balancing.Attach(c.World, fixed, ids); err != nil {
		return nil, err
	}
	l.ARN, l.DNSName = v2ARN(c, path), balancing.DNSName(c.World, l.Name, scheme, l.Application())
	c.LoadBalancers = append(c.LoadBalancers, l)
	c.Settings.NoServiceLinkedRole = false
	view := v2View(c, l)
	view.State.Code = "provisioning"
	return &v2LoadBalancers{LoadBalancers: []v2LoadBalancer{view}}, nil
}

// mappings merges the two ways to specify subnets; fixed has the requested addresses.
func mappings(
	c *api.Call, ids []string, mappings []v2SubnetMapping,
) (all []string, fixed map[string]netip.Addr, err error) {
	if len(ids) > 0 && len(mappings) > 0 {
		return nil, nil, api.Errorf(
			"ValidationError", "You must specify either subnets or subnet mappings, but not both",
		)
	}
	all, fixed = ids, map[string]netip.Addr{}
	for _, m := range mappings {
		all = append(all, m.SubnetId)
		if m.PrivateIPv4Address == "" {
			continue
		}
		s := store.Find(c.Subnets, m.SubnetId)
		a, err := netip.ParseAddr(m.PrivateIPv4Address)
		if s == nil || err != nil || !s.CIDR.Contains(a) || c.AddressInUse(a) != "" {
			return nil, nil, api.Errorf(
				"ValidationError", "The private IPv4 address '%s' is not free in subnet '%s'", m.PrivateIPv4Address,
				m.SubnetId,
			)
		}
		fixed[m.SubnetId] = a
	}
	return all, fixed, nil
}

type v2DescribeInput struct {
	balancing.Paging
	LoadBalancerArns []string
	Names            []string
}

func v2Describe(c *api.Call, in v2DescribeInput) (*v2LoadBalancers, error) {
	var list []store.LoadBalancer
	for _, l := range c.LoadBalancers {
		named := slices.Contains(in.LoadBalancerArns, l.ARN) || slices.Contains(in.Names, l.Name)
		if named || len(in.LoadBalancerArns)+len(in.Names) == 0 {
			list = append(list, l)
		}
	}
	if asked := len(in.LoadBalancerArns) + len(in.Names); asked > len(list) {
		return nil, api.Errorf("LoadBalancerNotFound", "One or more load balancers not found")
	}
	part, next, err := balancing.Paginate(list, in.Paging)
	out := &v2LoadBalancers{NextMarker: next}
	for _, l := range part {
		out.LoadBalancers = append(out.LoadBalancers, v2View(c, l))
	}
	return out, err
}

type v2LoadBalancerArn struct{ LoadBalancerArn string }

// v2Delete succeeds if the load balancer does not exist, as on AWS.
func v2Delete(c *api.Call, in v2LoadBalancerArn) (*api.Nothing, error) {
	if err := touch(c, in.LoadBalancerArn); err != nil {
		if api.IsCode(err, "LoadBalancerNotFound") {
			return nil, nil
		}
		return nil, err
	}
	if store.Find(c.LoadBalancers, in.LoadBalancerArn).Attributes["deletion_protection.enabled"] == "true" {
		return nil, api.Errorf(
			"OperationNotPermitted", "Load balancer '%s' cannot be deleted because deletion protection is enabled",
			in.LoadBalancerArn,
		)
	}
	c.LoadBalancers = store.Remove(c.LoadBalancers, in.LoadBalancerArn)
	for _, l := range c.Listeners {
		if l.LoadBalancer == in.LoadBalancerArn {
			removeRules(c.World, l.ARN)
		}
	}
	c.Listeners = slices.DeleteFunc(
		c.Listeners, func(l store.Listener) bool { return l.LoadBalancer == in.LoadBalancerArn },
	)
	return nil, nil
}

// ForwardBalancer adds the load balancer to the data path.
func ForwardBalancer(l *store.LoadBalancer, w *store.World, c *forward.Config) {
	b := forward.Balancer{ID: l.ARN, Addresses: store.SortedAddresses(l.Addresses)}
	for _, listener := range w.Listeners {
		if listener.LoadBalancer != l.ARN {
			continue
		}
		if l.Application() {
			b.Listeners = append(b.Listeners, forward.Listener{
				Port: listener.Port, Rules: forwardRules(w, listener), Certificates: forwardCertificates(w, listener),
			})
		} else if listener.Protocol != "UDP" {
			b.Listeners = append(b.Listeners, forward.Listener{
				Port: listener.Port, Group: listener.TargetGroup, Certificates: forwardCertificates(w, listener),
			})
		}
	}
	c.Balancers = append(c.Balancers, b)
}

type v2Attributes struct {
	Attributes []store.Pair `xml:"Attributes>member"` // key and value, as tags
}

func viewAttributes(m map[string]string) *v2Attributes {
	return &v2Attributes{balancing.Pairs(m)}
}

// setAttributes changes known attributes and refuses others.
func setAttributes(m map[string]string, asked []store.Pair) (*v2Attributes, error) {
	for _, a := range asked {
		if _, known := m[a.Key]; !known {
			return nil, api.Errorf("ValidationError", "Attribute key '%s' is not recognized", a.Key)
		}
	}
	for _, a := range asked {
		m[a.Key] = a.Value
	}
	return viewAttributes(m), nil
}

func v2DescribeAttributes(c *api.Call, in v2LoadBalancerArn) (*v2Attributes, error) {
	l := store.Find(c.LoadBalancers, in.LoadBalancerArn)
	if l == nil {
		return nil, api.Errorf("LoadBalancerNotFound", "Load balancer '%s' not found", in.LoadBalancerArn)
	}
	return viewAttributes(l.Attributes), nil
}

type v2ModifyAttributesInput struct {
	LoadBalancerArn string
	Attributes      []store.Pair
}

func v2ModifyAttributes(c *api.Call, in v2ModifyAttributesInput) (*v2Attributes, error) {
	if err := touch(c, in.LoadBalancerArn); err != nil {
		return nil, err
	}
	return setAttributes(store.Find(c.LoadBalancers, in.LoadBalancerArn).Attributes, in.Attributes)
}

type v2SecurityGroupsInput struct {
	LoadBalancerArn                                      string
	SecurityGroups                                       []string
	EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic string
}

type v2SecurityGroupsOutput struct {
	SecurityGroupIds []string `xml:"SecurityGroupIds>member"`
}

// v2SetSecurityGroups refuses to add the first group to a load balancer that was created without groups, as AWS does.
func v2SetSecurityGroups(c *api.Call, in v2SecurityGroupsInput) (*v2SecurityGroupsOutput, error) {
	if err := touch(c, in.LoadBalancerArn); err != nil {
		return nil, err
	}
	l := store.Find(c.LoadBalancers, in.LoadBalancerArn)
	if !l.Application() && len(l.SecurityGroups) == 0 && len(in.SecurityGroups) > 0 {
		return nil, api.Errorf(
			"InvalidConfigurationRequest",
			"You cannot set security groups on a Network Load Balancer that was created without security groups",
		)
	}
	if err := balancing.CheckGroups(c.World, in.SecurityGroups, l.VPC); err != nil {
		return nil, err
	}
	l.SecurityGroups = in.SecurityGroups
	return &v2SecurityGroupsOutput{l.SecurityGroups}, nil
}

type v2SetSubnetsInput struct {
	LoadBalancerArn string
	Subnets         []string
	SubnetMappings  []v2SubnetMapping
	IpAddressType   string

	EnablePrefixForIpv6SourceNat string
}

type v2SetSubnetsOutput struct {
	AvailabilityZones []v2Zone `xml:"AvailabilityZones>member"`
	IpAddressType     string
}

func v2SetSubnets(c *api.Call, in v2SetSubnetsInput) (*v2SetSubnetsOutput, error) {
	if err := touch(c, in.LoadBalancerArn); err != nil {
		return nil, err
	}
	l := store.Find(c.LoadBalancers, in.LoadBalancerArn)
	ids, fixed, err := mappings(c, in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}
	if _, err := balancing.Subnets(c.World, ids, l.Scheme == "internet-facing"); err != nil {
		return nil, err
	}
	for id, a := range l.Addresses {
		if _, asked := fixed[id]; !asked {
			fixed[id] = a
		}
	}
	addresses, err := balancing.Attach(c.World, fixed, ids)
	if err != nil {
		return nil, err
	}
	l.Addresses = addresses
	return &v2SetSubnetsOutput{v2View(c, *l).AvailabilityZones, l.IPAddressType}, nil
}

// checkAddressType refuses IPv6, which no subnet has.
func checkAddressType(asked string) error {
	if asked != "" && asked != "ipv4" {
		return api.Errorf("ValidationError", "You must specify subnets with an associated IPv6 CIDR block.")
	}
	return nil
}

type ipAddressTypeInput struct{ LoadBalancerArn, IpAddressType string }

type ipAddressTypeOutput struct{ IpAddressType string }

func setIPAddressType(c *api.Call, in ipAddressTypeInput) (*ipAddressTypeOutput, error) {
	if err := touch(c, in.LoadBalancerArn); err != nil {
		return nil, err
	}
	return &ipAddressTypeOutput{in.IpAddressType}, checkAddressType(in.IpAddressType)
}

type modifyIPPoolsInput struct {
	LoadBalancerArn string
	IpamPools       struct{ Ipv4IpamPoolId string }
	RemoveIpamPools []string
}

// modifyIPPools only removes: the account has no pools.
func modifyIPPools(c *api.Call, in modifyIPPoolsInput) (*api.Nothing, error) {
	if err := touch(c, in.LoadBalancerArn); err != nil || in.IpamPools.Ipv4IpamPoolId == "" {
		return nil, err
	}
	return nil, api.Errorf("ValidationError", "The IPAM pool '%s' does not exist", in.IpamPools.Ipv4IpamPoolId)
}

type describeTrustStoresInput struct {
	balancing.Paging
	Names, TrustStoreArns []string
}

// describeTrustStores finds none: nothing creates them.
func describeTrustStores(_ *api.Call, in describeTrustStoresInput) (*api.Nothing, error) {
	if len(in.Names)+len(in.TrustStoreArns) > 0 {
		return nil, api.Errorf("TrustStoreNotFound", "One or more trust stores not found")
	}
	return nil, nil
}
