package ec2

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
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
	Filter               []ec2api.Filter
	ZoneName             []string
	ZoneId               []string
}

type describeAvailabilityZonesOutput struct {
	Zones []availabilityZone `xml:"availabilityZoneInfo>item"`
}

func describeAvailabilityZones(
	c *api.Call, in describeAvailabilityZonesInput,
) (*describeAvailabilityZonesOutput, error) {
	var all []availabilityZone
	for _, name := range c.Zones() {
		all = append(
			all,
			availabilityZone{
				name,
				c.ZoneID(name),
				"available",
				c.Region,
				"availability-zone",
				c.Region + "-zg-1",
				c.Region,
				"opt-in-not-required",
			},
		)
	}
	for _, name := range in.ZoneName {
		if !slices.ContainsFunc(all, func(z availabilityZone) bool { return z.Name == name }) {
			return nil, api.Errorf("InvalidParameterValue", "Invalid availability zone: [%s]", name)
		}
	}
	selected, err := ec2api.SelectBy(all, in.Filter, func(z *availabilityZone) (ec2api.Attributes, store.Tags) {
		return ec2api.Attributes{
			"zone-name":     ec2api.One(z.Name),
			"zone-id":       ec2api.One(z.ID),
			"state":         ec2api.One(z.State),
			"region-name":   ec2api.One(z.Region),
			"zone-type":     ec2api.One(z.Type),
			"group-name":    ec2api.One(z.Group),
			"opt-in-status": ec2api.One(z.OptInStatus),
		}, nil
	})
	out := &describeAvailabilityZonesOutput{}
	for _, z := range selected {
		if (len(in.ZoneName) == 0 || slices.Contains(in.ZoneName, z.Name)) &&
			(len(in.ZoneId) == 0 || slices.Contains(in.ZoneId, z.ID)) {
			out.Zones = append(out.Zones, *z)
		}
	}
	return out, err
}

// dhcpOptions is the id of every VPC's DHCP options.
const dhcpOptions = "dopt-0a0b0c0d0e0f00001"

type vpcView struct {
	ID              string      `xml:"vpcId"`
	Owner           string      `xml:"ownerId"`
	State           string      `xml:"state"`
	CIDR            string      `xml:"cidrBlock"`
	DHCPOptions     string      `xml:"dhcpOptionsId"`
	InstanceTenancy string      `xml:"instanceTenancy"`
	IsDefault       bool        `xml:"isDefault"`
	Tags            []store.Tag `xml:"tagSet>item"`
}

type describeVpcsInput struct {
	ec2api.Page
	VpcId []string
}

type describeVpcsOutput struct {
	VPCs      []vpcView `xml:"vpcSet>item"`
	NextToken string    `xml:"nextToken,omitempty"`
}

func describeVpcs(c *api.Call, in describeVpcsInput) (*describeVpcsOutput, error) {
	list, err := ec2api.WithIDs(c.VPCs, in.VpcId, "InvalidVpcID", "vpc")
	if err != nil {
		return nil, err
	}
	views, next, err := ec2api.Described(c, list, in.Page, 1000, vpcAttributes, viewVpc)
	return &describeVpcsOutput{views, next}, err
}

func vpcAttributes(c *api.Call, v *store.VPC) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"vpc-id":     ec2api.One(v.ID),
		"cidr":       ec2api.One(v.CIDR.String()),
		"state":      ec2api.One("available"),
		"owner-id":   ec2api.One(c.Account),
		"is-default": ec2api.One("false"),
	}, v.Tags
}

func viewVpc(c *api.Call, v *store.VPC) vpcView {
	return vpcView{v.ID, c.Account, "available", v.CIDR.String(), dhcpOptions, "default", false, v.Tags.List()}
}

type subnetView struct {
	ID                  string      `xml:"subnetId"`
	ARN                 string      `xml:"subnetArn"`
	State               string      `xml:"state"`
	Owner               string      `xml:"ownerId"`
	VPC                 string      `xml:"vpcId"`
	CIDR                string      `xml:"cidrBlock"`
	FreeAddresses       int         `xml:"availableIpAddressCount"`
	AvailabilityZone    string      `xml:"availabilityZone"`
	AvailabilityZoneID  string      `xml:"availabilityZoneId"`
	DefaultForAZ        bool        `xml:"defaultForAz"`
	MapPublicIPOnLaunch bool        `xml:"mapPublicIpOnLaunch"`
	Tags                []store.Tag `xml:"tagSet>item"`
}

type describeSubnetsInput struct {
	ec2api.Page
	SubnetId []string
}

type describeSubnetsOutput struct {
	Subnets   []subnetView `xml:"subnetSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

func describeSubnets(c *api.Call, in describeSubnetsInput) (*describeSubnetsOutput, error) {
	list, err := ec2api.WithIDs(c.Subnets, in.SubnetId, "InvalidSubnetID", "subnet")
	if err != nil {
		return nil, err
	}
	views, next, err := ec2api.Described(c, list, in.Page, 1000, subnetAttributes, viewSubnet)
	return &describeSubnetsOutput{views, next}, err
}

func subnetAttributes(c *api.Call, s *store.Subnet) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"subnet-id":         ec2api.One(s.ID),
		"vpc-id":            ec2api.One(s.VPC),
		"availability-zone": ec2api.One(s.AvailabilityZone),
		"availabilityZone":  ec2api.One(s.AvailabilityZone),
		"cidr-block":        ec2api.One(s.CIDR.String()),
		"cidr":              ec2api.One(s.CIDR.String()),
		"state":             ec2api.One("available"),
		"owner-id":          ec2api.One(c.Account),
		"default-for-az":    ec2api.One("false"),
	}, s.Tags
}

func viewSubnet(c *api.Call, s *store.Subnet) subnetView {
	return subnetView{
		ID:                 s.ID,
		ARN:                ec2api.ARN(c, "subnet", s.ID),
		State:              "available",
		Owner:              c.Account,
		VPC:                s.VPC,
		CIDR:               s.CIDR.String(),
		FreeAddresses:      freeAddresses(c.World, s),
		AvailabilityZone:   s.AvailabilityZone,
		AvailabilityZoneID: c.ZoneID(s.AvailabilityZone),
		Tags:               s.Tags.List(),
	}
}

func freeAddresses(w *store.World, s *store.Subnet) int {
	free := 1<<(32-s.CIDR.Bits()) - ec2api.ReservedAddresses - 1
	for _, i := range w.Instances {
		if i.Subnet == s.ID && i.State != store.Terminated {
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
	Tags         []store.Tag       `xml:"tagSet>item"`
}

type describeRouteTablesInput struct {
	ec2api.Page
	RouteTableId []string
}

type describeRouteTablesOutput struct {
	Tables    []routeTableView `xml:"routeTableSet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func describeRouteTables(c *api.Call, in describeRouteTablesInput) (*describeRouteTablesOutput, error) {
	list, err := ec2api.WithIDs(c.RouteTables, in.RouteTableId, "InvalidRouteTableID", "routeTable")
	if err != nil {
		return nil, err
	}
	views, next, err := ec2api.Described(c, list, in.Page, 100, routeTableAttributes, viewRouteTable)
	return &describeRouteTablesOutput{views, next}, err
}

func routeTableAttributes(c *api.Call, t *store.RouteTable) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"route-table-id":                    ec2api.One(t.ID),
		"vpc-id":                            ec2api.One(t.VPC),
		"owner-id":                          ec2api.One(c.Account),
		"association.main":                  ec2api.One(strconv.FormatBool(t.Main)),
		"association.subnet-id":             func() []string { return t.Subnets },
		"association.route-table-id":        ec2api.One(t.ID),
		"route.gateway-id":                  ec2api.Each(t.Routes, func(r store.Route) string { return r.Gateway }),
		"route.nat-gateway-id":              ec2api.Each(t.Routes, func(r store.Route) string { return r.NAT }),
		"route.instance-id":                 ec2api.Each(t.Routes, func(r store.Route) string { return r.Instance }),
		"route.destination-cidr-block":      ec2api.Each(t.Routes, func(r store.Route) string { return r.Destination }),
		"association.gateway-id":            func() []string { return nil },
		"route.destination-ipv6-cidr-block": func() []string { return nil },
	}, t.Tags
}

func attached(c *api.Call, gateway, vpc string) bool {
	g := store.Find(c.InternetGateways, gateway)
	return g != nil && g.VPC == vpc
}

func viewRouteTable(c *api.Call, t *store.RouteTable) routeTableView {
	v := routeTableView{ID: t.ID, VPC: t.VPC, Owner: c.Account, Tags: t.Tags.List()}
	suffix := t.ID[len("rtb-"):]
	if t.Main {
		v.Associations = append(
			v.Associations, associationView{ID: "rtbassoc-" + suffix, Table: t.ID, Main: true, State: "associated"},
		)
	}
	for _, s := range t.Subnets {
		v.Associations = append(
			v.Associations, associationView{ID: associationOf(s), Table: t.ID, Subnet: s, State: "associated"},
		)
	}
	for _, r := range t.Routes {
		view := routeView{
			Destination: r.Destination,
			Gateway:     r.Gateway,
			NAT:         r.NAT,
			Instance:    r.Instance,
			State:       "active",
			Origin:      "CreateRoute",
		}
		if r.Blackhole || strings.HasPrefix(r.Gateway, "igw-") && !attached(c, r.Gateway, t.VPC) {
			view.State = "blackhole"
		}
		if r.Gateway == "local" {
			view.Origin = "CreateRouteTable"
		}
		if r.Instance != "" {
			view.Owner, view.Interface, view.State = c.Account, InterfaceID(r.Instance), "blackhole"
			if i := store.Find(c.Instances, r.Instance); i != nil && i.State == store.Running {
				view.State = "active"
			}
		}
		v.Routes = append(v.Routes, view)
	}
	return v
}

// associationOf is the id of the association of a subnet with its route table.
func associationOf(subnet string) string { return "rtbassoc-" + strings.TrimPrefix(subnet, "subnet-") }

type routeInput struct {
	RouteTableId         string
	DestinationCidrBlock string
	GatewayId            string
	NatGatewayId         string
	InstanceId           string
}

// routeTable finds a route table for a changing action and checks the permission.
func routeTable(c *api.Call, id string) (*store.RouteTable, error) {
	t := store.Find(c.RouteTables, id)
	subject := api.Target{ARN: ec2api.ARN(c, "route-table", id)}
	if t != nil {
		subject.Tags = t.Tags
	}
	if err := c.Allow(subject); err != nil {
		return nil, err
	}
	if t == nil {
		return nil, ec2api.NotFound("InvalidRouteTableID", "routeTable", id)
	}
	return t, nil
}

func route(t *store.RouteTable, destination string) int {
	return slices.IndexFunc(t.Routes, func(r store.Route) bool { return r.Destination == destination })
}

func createRoute(c *api.Call, in routeInput) (*ec2api.Done, error) {
	t, err := routeTable(c, in.RouteTableId)
	if err != nil {
		return nil, err
	}
	destination, err := netip.ParsePrefix(in.DestinationCidrBlock)
	if err != nil {
		return nil, api.Errorf(
			"InvalidParameterValue",
			"Value (%s) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block.",
			in.DestinationCidrBlock,
		)
	}
	if route(t, destination.String()) >= 0 {
		return nil, api.Errorf("RouteAlreadyExists", "The route identified by %s already exists.", destination)
	}
	in.DestinationCidrBlock = destination.String()
	r, err := beginRoute(c, t, in)
	if err != nil {
		return nil, err
	}
	t.Routes = append(t.Routes, r)
	return &ec2api.Done{Return: true}, nil
}

// beginRoute validates the target of a new route of the table, and begins the change.
func beginRoute(c *api.Call, t *store.RouteTable, in routeInput) (store.Route, error) {
	r := store.Route{
		Destination: in.DestinationCidrBlock,
		Gateway:     in.GatewayId,
		NAT:         in.NatGatewayId,
		Instance:    in.InstanceId,
	}
	if in.InstanceId != "" && store.Find(c.Instances, in.InstanceId) == nil {
		return r, ec2api.NotFound("InvalidInstanceID", "instance", in.InstanceId)
	}
	if in.GatewayId == "" && in.NatGatewayId == "" && in.InstanceId == "" {
		return r, api.Errorf("InvalidParameterCombination", "A route needs exactly one target")
	}
	if err := checkGateway(c, t, in.GatewayId); err != nil {
		return r, err
	}
	return r, c.Begin()
}

// checkGateway returns EC2's error if a route of a table cannot have an internet gateway as its target.
func checkGateway(c *api.Call, t *store.RouteTable, id string) error {
	if !strings.HasPrefix(id, "igw-") {
		return nil
	}
	g := store.Find(c.InternetGateways, id)
	if g == nil {
		return ec2api.NotFound("InvalidInternetGatewayID", "internetGateway", id)
	}
	if g.VPC != t.VPC {
		return api.Errorf(
			"InvalidParameterValue", "route table %s and network gateway %s belong to different networks", t.ID, id,
		)
	}
	return nil
}

type deleteRouteInput struct {
	RouteTableId         string
	DestinationCidrBlock string
}

func deleteRoute(c *api.Call, in deleteRouteInput) (*ec2api.Done, error) {
	t, err := routeTable(c, in.RouteTableId)
	if err != nil {
		return nil, err
	}
	i := route(t, in.DestinationCidrBlock)
	if i < 0 {
		return nil, api.Errorf(
			"InvalidRoute.NotFound", "no route with destination-cidr-block %s in route table %s",
			in.DestinationCidrBlock, t.ID,
		)
	}
	if t.Routes[i].Gateway == "local" {
		return nil, api.Errorf(
			"InvalidParameterValue", "cannot remove local route %s in route table %s", in.DestinationCidrBlock, t.ID,
		)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	t.Routes = slices.Delete(t.Routes, i, i+1)
	return &ec2api.Done{Return: true}, nil
}

type describeIPAMPoolsInput struct {
	ec2api.Page
	IpamPoolId []string
}

// describeIPAMPools finds none: nothing creates them.
func describeIPAMPools(_ *api.Call, in describeIPAMPoolsInput) (*api.Nothing, error) {
	if len(in.IpamPoolId) > 0 {
		return nil, ec2api.NotFound("InvalidIpamPoolId", "ipam-pool", in.IpamPoolId[0])
	}
	return nil, nil
}
