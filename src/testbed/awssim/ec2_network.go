package awssim

import (
	"net/netip"
	"slices"
	"strconv"
)

type availabilityZone struct {
	Name        string `xml:"zoneName"`
	ID          string `xml:"zoneId"`
	State       string `xml:"zoneState"`
	Region      string `xml:"regionName"`
	Type        string `xml:"zoneType"`
	Group       string `xml:"groupName"`
	Border      string `xml:"networkBorderGroup"`
	OptInStatus string `xml:"optInStatus"`
}

type describeAvailabilityZonesInput struct {
	AllAvailabilityZones bool
	Filter               []filter
	ZoneName             []string
	ZoneId               []string
}

type describeAvailabilityZonesOutput struct {
	Zones []availabilityZone `xml:"availabilityZoneInfo>item"`
}

// zones are the availability zones of the subnets.
func (w *World) zones() []string {
	var zones []string
	for _, s := range w.Subnets {
		zones = append(zones, s.AvailabilityZone)
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

func (c *call) describeAvailabilityZones(in describeAvailabilityZonesInput) (*describeAvailabilityZonesOutput, error) {
	var all []availabilityZone
	for _, name := range c.zones() {
		all = append(all, availabilityZone{name, c.zoneID(name), "available", c.Region, "availability-zone", c.Region + "-zg-1", c.Region, "opt-in-not-required"})
	}
	for _, name := range in.ZoneName {
		if !slices.ContainsFunc(all, func(z availabilityZone) bool { return z.Name == name }) {
			return nil, errorf("InvalidParameterValue", "Invalid availability zone: [%s]", name)
		}
	}
	selected, err := selectBy(all, in.Filter, func(z *availabilityZone) (attributes, Tags) {
		return attributes{
			"zone-name": one(z.Name), "zone-id": one(z.ID), "state": one(z.State), "region-name": one(z.Region), "zone-type": one(z.Type),
			"group-name": one(z.Group), "opt-in-status": one(z.OptInStatus),
		}, nil
	})
	out := &describeAvailabilityZonesOutput{}
	for _, z := range selected {
		if (len(in.ZoneName) == 0 || slices.Contains(in.ZoneName, z.Name)) && (len(in.ZoneId) == 0 || slices.Contains(in.ZoneId, z.ID)) {
			out.Zones = append(out.Zones, *z)
		}
	}
	return out, err
}

// dhcpOptions is the id of every VPC's DHCP options.
const dhcpOptions = "dopt-0a0b0c0d0e0f00001"

type vpcView struct {
	ID              string `xml:"vpcId"`
	Owner           string `xml:"ownerId"`
	State           string `xml:"state"`
	CIDR            string `xml:"cidrBlock"`
	DHCPOptions     string `xml:"dhcpOptionsId"`
	InstanceTenancy string `xml:"instanceTenancy"`
	IsDefault       bool   `xml:"isDefault"`
	Tags            []tag  `xml:"tagSet>item"`
}

type describeVpcsInput struct {
	page
	VpcId []string
}

type describeVpcsOutput struct {
	VPCs      []vpcView `xml:"vpcSet>item"`
	NextToken string    `xml:"nextToken,omitempty"`
}

func (c *call) describeVpcs(in describeVpcsInput) (*describeVpcsOutput, error) {
	list, err := withIDs(c.VPCs, in.VpcId, "InvalidVpcID", "vpc")
	if err != nil {
		return nil, err
	}
	views, next, err := described(list, in.page, 1000, c.vpcAttributes, c.vpcView)
	return &describeVpcsOutput{views, next}, err
}

func (c *call) vpcAttributes(v *VPC) (attributes, Tags) {
	return attributes{"vpc-id": one(v.ID), "cidr": one(v.CIDR.String()), "state": one("available"), "owner-id": one(c.Account), "is-default": one("false")}, v.Tags
}

func (c *call) vpcView(v *VPC) vpcView {
	return vpcView{v.ID, c.Account, "available", v.CIDR.String(), dhcpOptions, "default", false, v.Tags.list()}
}

type subnetView struct {
	ID                  string `xml:"subnetId"`
	ARN                 string `xml:"subnetArn"`
	State               string `xml:"state"`
	Owner               string `xml:"ownerId"`
	VPC                 string `xml:"vpcId"`
	CIDR                string `xml:"cidrBlock"`
	FreeAddresses       int    `xml:"availableIpAddressCount"`
	AvailabilityZone    string `xml:"availabilityZone"`
	AvailabilityZoneID  string `xml:"availabilityZoneId"`
	DefaultForAZ        bool   `xml:"defaultForAz"`
	MapPublicIPOnLaunch bool   `xml:"mapPublicIpOnLaunch"`
	Tags                []tag  `xml:"tagSet>item"`
}

type describeSubnetsInput struct {
	page
	SubnetId []string
}

type describeSubnetsOutput struct {
	Subnets   []subnetView `xml:"subnetSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

func (c *call) describeSubnets(in describeSubnetsInput) (*describeSubnetsOutput, error) {
	list, err := withIDs(c.Subnets, in.SubnetId, "InvalidSubnetID", "subnet")
	if err != nil {
		return nil, err
	}
	views, next, err := described(list, in.page, 1000, c.subnetAttributes, c.subnetView)
	return &describeSubnetsOutput{views, next}, err
}

func (c *call) subnetAttributes(s *Subnet) (attributes, Tags) {
	return attributes{
		"subnet-id": one(s.ID), "vpc-id": one(s.VPC), "availability-zone": one(s.AvailabilityZone), "availabilityZone": one(s.AvailabilityZone),
		"cidr-block": one(s.CIDR.String()), "cidr": one(s.CIDR.String()), "state": one("available"), "owner-id": one(c.Account), "default-for-az": one("false"),
	}, s.Tags
}

func (c *call) subnetView(s *Subnet) subnetView {
	return subnetView{
		ID: s.ID, ARN: c.ec2ARN("subnet", s.ID), State: "available", Owner: c.Account, VPC: s.VPC, CIDR: s.CIDR.String(), FreeAddresses: c.freeAddresses(s),
		AvailabilityZone: s.AvailabilityZone, AvailabilityZoneID: c.zoneID(s.AvailabilityZone), Tags: s.Tags.list(),
	}
}

func (w *World) freeAddresses(s *Subnet) int {
	free := 1<<(32-s.CIDR.Bits()) - reservedAddresses - 1
	for _, i := range w.Instances {
		if i.Subnet == s.ID && i.State != Terminated {
			free--
		}
	}
	for _, l := range w.ClassicLoadBalancers {
		if _, has := l.Addresses[s.ID]; has {
			free--
		}
	}
	for _, l := range w.LoadBalancers {
		if _, has := l.Addresses[s.ID]; has {
			free--
		}
	}
	return free
}

type routeView struct {
	Destination string `xml:"destinationCidrBlock"`
	Gateway     string `xml:"gatewayId,omitempty"`
	NAT         string `xml:"natGatewayId,omitempty"`
	Instance    string `xml:"instanceId,omitempty"`
	Owner       string `xml:"instanceOwnerId,omitempty"`
	Interface   string `xml:"networkInterfaceId,omitempty"`
	State       string `xml:"state"`
	Origin      string `xml:"origin"`
}

type associationView struct {
	ID     string `xml:"routeTableAssociationId"`
	Table  string `xml:"routeTableId"`
	Subnet string `xml:"subnetId,omitempty"`
	Main   bool   `xml:"main"`
	State  string `xml:"associationState>state"`
}

type routeTableView struct {
	ID           string            `xml:"routeTableId"`
	VPC          string            `xml:"vpcId"`
	Owner        string            `xml:"ownerId"`
	Routes       []routeView       `xml:"routeSet>item"`
	Associations []associationView `xml:"associationSet>item"`
	Tags         []tag             `xml:"tagSet>item"`
}

type describeRouteTablesInput struct {
	page
	RouteTableId []string
}

type describeRouteTablesOutput struct {
	Tables    []routeTableView `xml:"routeTableSet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func (c *call) describeRouteTables(in describeRouteTablesInput) (*describeRouteTablesOutput, error) {
	list, err := withIDs(c.RouteTables, in.RouteTableId, "InvalidRouteTableID", "routeTable")
	if err != nil {
		return nil, err
	}
	views, next, err := described(list, in.page, 100, c.routeTableAttributes, c.routeTableView)
	return &describeRouteTablesOutput{views, next}, err
}

func (c *call) routeTableAttributes(t *RouteTable) (attributes, Tags) {
	routes := func(get func(Route) string) func() []string {
		return func() (values []string) {
			for _, r := range t.Routes {
				values = append(values, get(r))
			}
			return values
		}
	}
	return attributes{
		"route-table-id": one(t.ID), "vpc-id": one(t.VPC), "owner-id": one(c.Account), "association.main": one(strconv.FormatBool(t.Main)),
		"association.subnet-id":             func() []string { return t.Subnets },
		"association.route-table-id":        one(t.ID),
		"route.gateway-id":                  routes(func(r Route) string { return r.Gateway }),
		"route.nat-gateway-id":              routes(func(r Route) string { return r.NAT }),
		"route.instance-id":                 routes(func(r Route) string { return r.Instance }),
		"route.destination-cidr-block":      routes(func(r Route) string { return r.Destination }),
		"association.gateway-id":            func() []string { return nil },
		"route.destination-ipv6-cidr-block": func() []string { return nil },
	}, t.Tags
}

func (c *call) routeTableView(t *RouteTable) routeTableView {
	v := routeTableView{ID: t.ID, VPC: t.VPC, Owner: c.Account, Tags: t.Tags.list()}
	suffix := t.ID[len("rtb-"):]
	if t.Main {
		v.Associations = append(v.Associations, associationView{ID: "rtbassoc-" + suffix, Table: t.ID, Main: true, State: "associated"})
	}
	for _, s := range t.Subnets {
		v.Associations = append(v.Associations, associationView{ID: associationOf(s), Table: t.ID, Subnet: s, State: "associated"})
	}
	for _, r := range t.Routes {
		view := routeView{Destination: r.Destination, Gateway: r.Gateway, NAT: r.NAT, Instance: r.Instance, State: "active", Origin: "CreateRoute"}
		if r.Gateway == "local" {
			view.Origin = "CreateRouteTable"
		}
		if r.Instance != "" {
			view.Owner, view.Interface, view.State = c.Account, interfaceID(r.Instance), "blackhole"
			if i := find(c.Instances, r.Instance); i != nil && i.State == Running {
				view.State = "active"
			}
		}
		v.Routes = append(v.Routes, view)
	}
	return v
}

type routeInput struct {
	RouteTableId         string
	DestinationCidrBlock string
	GatewayId            string
	NatGatewayId         string
	InstanceId           string
}

// routeTable finds a route table for a changing action and checks the permission.
func (c *call) routeTable(id string) (*RouteTable, error) {
	t := find(c.RouteTables, id)
	subject := target{arn: c.ec2ARN("route-table", id)}
	if t != nil {
		subject.tags = t.Tags
	}
	if err := c.allow(subject); err != nil {
		return nil, err
	}
	if t == nil {
		return nil, notFound("InvalidRouteTableID", "routeTable", id)
	}
	return t, nil
}

func (t *RouteTable) route(destination string) int {
	return slices.IndexFunc(t.Routes, func(r Route) bool { return r.Destination == destination })
}

func (c *call) createRoute(in routeInput) (*done, error) {
	t, err := c.routeTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}
	destination, err := netip.ParsePrefix(in.DestinationCidrBlock)
	if err != nil {
		return nil, errorf("InvalidParameterValue", "Value (%s) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block.", in.DestinationCidrBlock)
	}
	if t.route(destination.String()) >= 0 {
		return nil, errorf("RouteAlreadyExists", "The route identified by %s already exists.", destination)
	}
	in.DestinationCidrBlock = destination.String()
	r, err := c.beginRoute(t, in)
	if err != nil {
		return nil, err
	}
	t.Routes = append(t.Routes, r)
	return &done{true}, nil
}

// beginRoute validates the target of a new route of the table, and begins the change.
func (c *call) beginRoute(t *RouteTable, in routeInput) (Route, error) {
	r := Route{Destination: in.DestinationCidrBlock, Gateway: in.GatewayId, NAT: in.NatGatewayId, Instance: in.InstanceId}
	if in.InstanceId != "" && find(c.Instances, in.InstanceId) == nil {
		return r, notFound("InvalidInstanceID", "instance", in.InstanceId)
	}
	if in.GatewayId == "" && in.NatGatewayId == "" && in.InstanceId == "" {
		return r, errorf("InvalidParameterCombination", "A route needs exactly one target")
	}
	if err := c.checkGateway(t, in.GatewayId); err != nil {
		return r, err
	}
	return r, c.begin()
}

type deleteRouteInput struct {
	RouteTableId         string
	DestinationCidrBlock string
}

func (c *call) deleteRoute(in deleteRouteInput) (*done, error) {
	t, err := c.routeTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}
	i := t.route(in.DestinationCidrBlock)
	if i < 0 {
		return nil, errorf("InvalidRoute.NotFound", "no route with destination-cidr-block %s in route table %s", in.DestinationCidrBlock, t.ID)
	}
	if t.Routes[i].Gateway == "local" {
		return nil, errorf("InvalidParameterValue", "cannot remove local route %s in route table %s", in.DestinationCidrBlock, t.ID)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	t.Routes = slices.Delete(t.Routes, i, i+1)
	return &done{true}, nil
}
