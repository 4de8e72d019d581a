package awssim

import (
	"net/netip"
	"slices"
	"strings"
)

// Internet gateways, route tables and their associations, subnets and VPC endpoints.

type attachment struct {
	VPC   string `xml:"vpcId"`
	State string `xml:"state"`
}

type internetGatewayView struct {
	ID          string       `xml:"internetGatewayId"`
	Owner       string       `xml:"ownerId"`
	Attachments []attachment `xml:"attachmentSet>item"`
}

func (c *call) internetGatewayView(g *InternetGateway) internetGatewayView {
	v := internetGatewayView{ID: g.ID, Owner: c.Account}
	if g.VPC != "" {
		v.Attachments = []attachment{{g.VPC, "available"}}
	}
	return v
}

type describeInternetGatewaysInput struct {
	page
	InternetGatewayId []string
}

type describeInternetGatewaysOutput struct {
	Gateways []internetGatewayView `xml:"internetGatewaySet>item"`
}

func (c *call) describeInternetGateways(in describeInternetGatewaysInput) (*describeInternetGatewaysOutput, error) {
	list, err := withIDs(c.InternetGateways, in.InternetGatewayId, "InvalidInternetGatewayID", "internetGateway")
	if err != nil {
		return nil, err
	}
	selected, err := selectBy(list, in.Filter, func(g *InternetGateway) (attributes, Tags) {
		return attributes{"internet-gateway-id": one(g.ID), "attachment.vpc-id": one(g.VPC), "owner-id": one(c.Account)}, nil
	})
	out := &describeInternetGatewaysOutput{}
	for _, g := range selected {
		out.Gateways = append(out.Gateways, c.internetGatewayView(g))
	}
	return out, err
}

type createInternetGatewayOutput struct {
	Gateway internetGatewayView `xml:"internetGateway"`
}

func (c *call) createInternetGateway(struct{}) (*createInternetGatewayOutput, error) {
	if err := c.allow(target{arn: c.ec2ARN("internet-gateway", "*")}); err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	g := InternetGateway{ID: c.newID("igw")}
	c.InternetGateways = append(c.InternetGateways, g)
	return &createInternetGatewayOutput{c.internetGatewayView(&g)}, nil
}

type attachInternetGatewayInput struct{ InternetGatewayId, VpcId string }

func (c *call) attachInternetGateway(in attachInternetGatewayInput) (*done, error) {
	if err := c.allow(target{arn: c.ec2ARN("internet-gateway", in.InternetGatewayId)}, target{arn: c.ec2ARN("vpc", in.VpcId)}); err != nil {
		return nil, err
	}
	g := find(c.InternetGateways, in.InternetGatewayId)
	switch {
	case g == nil:
		return nil, notFound("InvalidInternetGatewayID", "internetGateway", in.InternetGatewayId)
	case find(c.VPCs, in.VpcId) == nil:
		return nil, notFound("InvalidVpcID", "vpc", in.VpcId)
	case g.VPC != "":
		return nil, errorf("Resource.AlreadyAssociated", "resource %s is already attached to network %s", g.ID, g.VPC)
	case slices.ContainsFunc(c.InternetGateways, func(other InternetGateway) bool { return other.VPC == in.VpcId }):
		return nil, errorf("InvalidParameterValue", "Network %s already has an internet gateway attached", in.VpcId)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	g.VPC = in.VpcId
	return &done{true}, nil
}

// checkGateway returns EC2's error if a route of a table cannot have an internet gateway as its target.
func (c *call) checkGateway(t *RouteTable, id string) error {
	if !strings.HasPrefix(id, "igw-") {
		return nil
	}
	g := find(c.InternetGateways, id)
	if g == nil {
		return notFound("InvalidInternetGatewayID", "internetGateway", id)
	}
	if g.VPC != t.VPC {
		return errorf("InvalidParameterValue", "route table %s and network gateway %s belong to different networks", t.ID, id)
	}
	return nil
}

// tableOf returns the route table of a subnet: the one it is associated with, or the main one of the VPC. nil if there is none.
func (w *World) tableOf(s *Subnet) *RouteTable {
	i := slices.IndexFunc(w.RouteTables, func(t RouteTable) bool { return slices.Contains(t.Subnets, s.ID) })
	if i < 0 {
		i = slices.IndexFunc(w.RouteTables, func(t RouteTable) bool { return t.Main && t.VPC == s.VPC })
	}
	if i < 0 {
		return nil
	}
	return &w.RouteTables[i]
}

// instanceRoutes returns the networks that route tables of instances' subnets deliver to instances, with the instances' addresses.
// EC2 drops packets to other addresses than the instance's own unless its source/destination check is off, and packets from
// such addresses unless a rule of its security groups admits their network: they are not members of a group.
func (w *World) instanceRoutes() map[netip.Prefix]netip.Addr {
	routes := map[netip.Prefix]netip.Addr{}
	for _, sender := range w.Instances {
		subnet := find(w.Subnets, sender.Subnet)
		if sender.State != Running || subnet == nil {
			continue
		}
		table := w.tableOf(subnet)
		if table == nil {
			continue
		}
		for _, route := range table.Routes {
			network, err := netip.ParsePrefix(route.Destination)
			target := find(w.Instances, route.Instance)
			if err == nil && target != nil && target.State == Running && !*target.SourceDestCheck && w.admitsAll(target, network) {
				routes[network] = target.Address
			}
		}
	}
	return routes
}

// admitsAll reports whether a security group of the instance admits all traffic from the network.
func (w *World) admitsAll(i *Instance, network netip.Prefix) bool {
	for _, id := range i.SecurityGroups {
		group := find(w.SecurityGroups, id)
		if group == nil {
			continue
		}
		for _, rule := range group.Ingress {
			from, err := netip.ParsePrefix(rule.CIDR)
			if err == nil && rule.Protocol == "-1" && from.Bits() <= network.Bits() && from.Contains(network.Addr()) {
				return true
			}
		}
	}
	return false
}

type createRouteTableInput struct {
	VpcId            string
	ClientToken      string
	TagSpecification []tagSpecification
}

type createRouteTableOutput struct {
	Table routeTableView `xml:"routeTable"`
}

func (c *call) createRouteTable(in createRouteTableInput) (*createRouteTableOutput, error) {
	tags, err := tagsFor(in.TagSpecification, "route-table")
	if err != nil {
		return nil, err
	}
	if err := c.allow(target{arn: c.ec2ARN("route-table", "*"), requestTags: tags}, target{arn: c.ec2ARN("vpc", in.VpcId)}); err != nil {
		return nil, err
	}
	vpc := find(c.VPCs, in.VpcId)
	if vpc == nil {
		return nil, notFound("InvalidVpcID", "vpc", in.VpcId)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	t := RouteTable{ID: c.newID("rtb"), VPC: vpc.ID, Routes: []Route{{Destination: vpc.CIDR.String(), Gateway: "local"}}, Tags: tags}
	c.RouteTables = append(c.RouteTables, t)
	return &createRouteTableOutput{c.routeTableView(&t)}, nil
}

// associationOf is the id of the association of a subnet with its route table.
func associationOf(subnet string) string { return "rtbassoc-" + strings.TrimPrefix(subnet, "subnet-") }

type associateRouteTableInput struct{ RouteTableId, SubnetId string }

type associationOutput struct {
	ID string `xml:"associationId"`
}

func (c *call) associateRouteTable(in associateRouteTableInput) (*associationOutput, error) {
	t, err := c.routeTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}
	subnet := find(c.Subnets, in.SubnetId)
	if subnet == nil {
		return nil, notFound("InvalidSubnetID", "subnet", in.SubnetId)
	}
	if subnet.VPC != t.VPC {
		return nil, errorf("InvalidParameterValue", "Route table %s and subnet %s belong to different networks", t.ID, subnet.ID)
	}
	for _, other := range c.RouteTables {
		if slices.Contains(other.Subnets, subnet.ID) {
			return nil, errorf("Resource.AlreadyAssociated", "the specified association for route table %s conflicts with an existing association", t.ID)
		}
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	t.Subnets = append(t.Subnets, subnet.ID)
	return &associationOutput{associationOf(subnet.ID)}, nil
}

type replaceRouteTableAssociationInput struct{ AssociationId, RouteTableId string }

type newAssociationOutput struct {
	ID string `xml:"newAssociationId"`
}

// replaceRouteTableAssociation changes the table of a subnet. Other than EC2, it does not support making another table the main one.
func (c *call) replaceRouteTableAssociation(in replaceRouteTableAssociationInput) (*newAssociationOutput, error) {
	t, err := c.routeTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}
	for i := range c.RouteTables {
		old := &c.RouteTables[i]
		at := slices.IndexFunc(old.Subnets, func(s string) bool { return associationOf(s) == in.AssociationId })
		if at < 0 || old.VPC != t.VPC {
			continue
		}
		if err := c.begin(); err != nil {
			return nil, err
		}
		subnet := old.Subnets[at]
		old.Subnets = slices.Delete(old.Subnets, at, at+1)
		t.Subnets = append(t.Subnets, subnet)
		return &newAssociationOutput{associationOf(subnet)}, nil
	}
	return nil, errorf("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", in.AssociationId)
}

func (c *call) replaceRoute(in routeInput) (*done, error) {
	t, err := c.routeTable(in.RouteTableId)
	if err != nil {
		return nil, err
	}
	i := t.route(in.DestinationCidrBlock)
	if i < 0 {
		return nil, errorf("InvalidParameterValue", "There is no route defined for '%s' in the route table. Use CreateRoute instead.", in.DestinationCidrBlock)
	}
	r, err := c.beginRoute(t, in)
	if err != nil {
		return nil, err
	}
	t.Routes[i] = r
	return &done{true}, nil
}

type createSubnetInput struct {
	VpcId, CidrBlock, AvailabilityZone string
	TagSpecification                   []tagSpecification
}

type createSubnetOutput struct {
	Subnet subnetView `xml:"subnet"`
}

func (c *call) createSubnet(in createSubnetInput) (*createSubnetOutput, error) {
	tags, err := tagsFor(in.TagSpecification, "subnet")
	if err != nil {
		return nil, err
	}
	if err := c.allow(target{arn: c.ec2ARN("subnet", "*"), requestTags: tags}, target{arn: c.ec2ARN("vpc", in.VpcId)}); err != nil {
		return nil, err
	}
	vpc := find(c.VPCs, in.VpcId)
	if vpc == nil {
		return nil, notFound("InvalidVpcID", "vpc", in.VpcId)
	}
	network, err := netip.ParsePrefix(in.CidrBlock)
	switch {
	case err != nil || network != network.Masked():
		return nil, errorf("InvalidParameterValue", "Value (%s) for parameter cidrBlock is invalid. This is not a valid CIDR block.", in.CidrBlock)
	case network.Bits() < 16 || network.Bits() > 28 || network.Bits() < vpc.CIDR.Bits() || !vpc.CIDR.Contains(network.Addr()):
		return nil, errorf("InvalidSubnet.Range", "The CIDR '%s' is invalid.", in.CidrBlock)
	case slices.ContainsFunc(c.Subnets, func(s Subnet) bool { return s.VPC == vpc.ID && s.CIDR.Overlaps(network) }):
		return nil, errorf("InvalidSubnet.Conflict", "The CIDR '%s' conflicts with another subnet", in.CidrBlock)
	case !strings.HasPrefix(in.AvailabilityZone, c.Region):
		return nil, errorf("InvalidParameterValue", "Value (%s) for parameter availabilityZone is invalid.", in.AvailabilityZone)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	s := Subnet{ID: c.newID("subnet"), VPC: vpc.ID, AvailabilityZone: in.AvailabilityZone, CIDR: network, Tags: tags}
	c.Subnets = append(c.Subnets, s)
	return &createSubnetOutput{c.subnetView(&s)}, nil
}

type modifyVPCAttributeInput struct {
	VpcId              string
	EnableDnsHostnames struct{ Value *bool }
	EnableDnsSupport   struct{ Value *bool }
}

func (c *call) modifyVPCAttribute(in modifyVPCAttributeInput) (*done, error) {
	if err := c.allow(target{arn: c.ec2ARN("vpc", in.VpcId)}); err != nil {
		return nil, err
	}
	vpc := find(c.VPCs, in.VpcId)
	names, support := in.EnableDnsHostnames.Value, in.EnableDnsSupport.Value
	switch {
	case vpc == nil:
		return nil, notFound("InvalidVpcID", "vpc", in.VpcId)
	case names == nil && support == nil:
		return nil, errorf("MissingParameter", "The request must contain the parameter EnableDnsSupport or EnableDnsHostnames")
	case names != nil && support != nil:
		return nil, errorf("InvalidParameterCombination", "Fields for multiple attribute types specified: enableDnsHostnames, enableDnsSupport")
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	if names != nil {
		vpc.NoDNSHostnames = !*names
	}
	return &done{true}, nil
}

type dhcpConfiguration struct {
	Key    string `xml:"key"`
	Values []struct {
		Value string `xml:"value"`
	} `xml:"valueSet>item"`
}

type dhcpOptionsView struct {
	ID             string              `xml:"dhcpOptionsId"`
	Configurations []dhcpConfiguration `xml:"dhcpConfigurationSet>item"`
}

type describeDHCPOptionsInput struct {
	page
	DhcpOptionsId []string
}

type describeDHCPOptionsOutput struct {
	Options []dhcpOptionsView `xml:"dhcpOptionsSet>item"`
}

func (c *call) describeDHCPOptions(in describeDHCPOptionsInput) (*describeDHCPOptionsOutput, error) {
	for _, id := range in.DhcpOptionsId {
		if id != dhcpOptions {
			return nil, notFound("InvalidDhcpOptionID", "dhcpOption", id)
		}
	}
	return &describeDHCPOptionsOutput{[]dhcpOptionsView{{ID: dhcpOptions}}}, nil
}

type modifyNetworkInterfaceAttributeInput struct {
	NetworkInterfaceId string
	SourceDestCheck    struct{ Value *bool }
}

func (c *call) modifyNetworkInterfaceAttribute(in modifyNetworkInterfaceAttributeInput) (*done, error) {
	if err := c.allow(target{arn: c.ec2ARN("network-interface", in.NetworkInterfaceId)}); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(c.Instances, func(i Instance) bool { return interfaceID(i.ID) == in.NetworkInterfaceId && i.State != Terminated })
	switch {
	case at < 0:
		return nil, errorf("InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", in.NetworkInterfaceId)
	case in.SourceDestCheck.Value == nil:
		return nil, errorf("InvalidParameterCombination", "No attributes specified.")
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	c.Instances[at].SourceDestCheck = in.SourceDestCheck.Value
	return &done{true}, nil
}

type createVPCEndpointInput struct {
	VpcId, VpcEndpointType, ServiceName     string
	SubnetId, SecurityGroupId, RouteTableId []string
	PrivateDnsEnabled                       *bool
	ClientToken                             string
}

type vpcEndpointView struct {
	ID      string `xml:"vpcEndpointId"`
	Type    string `xml:"vpcEndpointType"`
	VPC     string `xml:"vpcId"`
	Service string `xml:"serviceName"`
	State   string `xml:"state"`
}

type createVPCEndpointOutput struct {
	Endpoint vpcEndpointView `xml:"vpcEndpoint"`
}

// endpointServices are those that the release's documentation names.
var endpointServices = []string{"ec2", "elasticloadbalancing", "ecr.api", "ecr.dkr", "s3"}

// endpointService is the full name of a service. In China most of them start with cn.com.
func (w *World) endpointService(name string) string {
	full := "com.amazonaws." + w.Region + "." + name
	if w.Partition == "aws-cn" && name != "s3" {
		full = "cn." + full
	}
	return full
}

func (c *call) createVPCEndpoint(in createVPCEndpointInput) (*createVPCEndpointOutput, error) {
	if err := c.allow(target{arn: c.ec2ARN("vpc-endpoint", "*")}, target{arn: c.ec2ARN("vpc", in.VpcId)}); err != nil {
		return nil, err
	}
	e := VPCEndpoint{VPC: in.VpcId, Type: in.VpcEndpointType, Service: in.ServiceName, Subnets: in.SubnetId, SecurityGroups: in.SecurityGroupId, RouteTables: in.RouteTableId,
		PrivateDNS: in.PrivateDnsEnabled != nil && *in.PrivateDnsEnabled}
	if err := c.checkEndpoint(e); err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	e.ID = c.newID("vpce")
	c.VPCEndpoints = append(c.VPCEndpoints, e)
	return &createVPCEndpointOutput{vpcEndpointView{e.ID, e.Type, e.VPC, e.Service, "pending"}}, nil
}

func (c *call) checkEndpoint(e VPCEndpoint) error {
	if find(c.VPCs, e.VPC) == nil {
		return notFound("InvalidVpcId", "Vpc", e.VPC)
	}
	if !slices.ContainsFunc(endpointServices, func(name string) bool { return c.endpointService(name) == e.Service }) {
		return errorf("InvalidServiceName", "The Vpc Endpoint Service '%s' does not exist", e.Service)
	}
	for _, id := range e.Subnets {
		if find(c.Subnets, id) == nil {
			return notFound("InvalidSubnetId", "subnet", id)
		}
	}
	for _, id := range e.SecurityGroups {
		if g := find(c.SecurityGroups, id); g == nil || g.VPC != e.VPC {
			return errorf("InvalidSecurityGroupId.NotFound", "The security group '%s' does not exist", id)
		}
	}
	for _, id := range e.RouteTables {
		if find(c.RouteTables, id) == nil {
			return errorf("InvalidRouteTableId.NotFound", "The routeTable ID '%s' does not exist", id)
		}
	}
	for _, other := range c.VPCEndpoints {
		if other.VPC == e.VPC && other.Service == e.Service && other.PrivateDNS && e.PrivateDNS {
			return errorf("InvalidParameter", "private-dns-enabled cannot be set because there is already a conflicting DNS domain for %s in the VPC %s", e.Service, e.VPC)
		}
	}
	return nil
}

type describeVPCEndpointServicesInput struct {
	page
	ServiceName []string
}

type describeVPCEndpointServicesOutput struct {
	Names []string `xml:"serviceNameSet>item"`
}

func (c *call) describeVPCEndpointServices(describeVPCEndpointServicesInput) (*describeVPCEndpointServicesOutput, error) {
	out := &describeVPCEndpointServicesOutput{}
	for _, name := range endpointServices {
		out.Names = append(out.Names, c.endpointService(name))
	}
	return out, nil
}
