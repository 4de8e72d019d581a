package ec2

import (
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
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

func viewInternetGateway(c *api.Call, g *store.InternetGateway) internetGatewayView {
	v := internetGatewayView{ID: g.ID, Owner: c.Account}
	if g.VPC != "" {
		v.Attachments = []attachment{{g.VPC, "available"}}
	}
	return v
}

type describeInternetGatewaysInput struct {
	ec2api.Page
	InternetGatewayId []string
}

type describeInternetGatewaysOutput struct {
	Gateways []internetGatewayView `xml:"internetGatewaySet>item"`
}

func describeInternetGateways(c *api.Call, in describeInternetGatewaysInput) (*describeInternetGatewaysOutput, error) {
	list, err := ec2api.WithIDs(c.InternetGateways, in.InternetGatewayId, "InvalidInternetGatewayID", "internetGateway")
	if err != nil {
		return nil, err
	}
	selected, err := ec2api.SelectBy(list, in.Filter, func(g *store.InternetGateway) (ec2api.Attributes, store.Tags) {
		return ec2api.Attributes{
			"internet-gateway-id": ec2api.One(g.ID),
			"attachment.vpc-id":   ec2api.One(g.VPC),
			"owner-id":            ec2api.One(c.Account),
		}, nil
	})
	out := &describeInternetGatewaysOutput{}
	for _, g := range selected {
		out.Gateways = append(out.Gateways, viewInternetGateway(c, g))
	}
	return out, err
}

type createInternetGatewayOutput struct {
	Gateway internetGatewayView `xml:"internetGateway"`
}

func createInternetGateway(c *api.Call, _ struct{}) (*createInternetGatewayOutput, error) {
	if err := c.Allow(api.Target{ARN: ec2api.ARN(c, "internet-gateway", "*")}); err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	g := store.InternetGateway{ID: c.NewID("igw")}
	c.InternetGateways = append(c.InternetGateways, g)
	return &createInternetGatewayOutput{viewInternetGateway(c, &g)}, nil
}

type attachInternetGatewayInput struct{ InternetGatewayId, VpcId string }

func attachInternetGateway(c *api.Call, in attachInternetGatewayInput) (*ec2api.Done, error) {
	if err := c.Allow(
		api.Target{ARN: ec2api.ARN(c, "internet-gateway", in.InternetGatewayId)},
		api.Target{ARN: ec2api.ARN(c, "vpc", in.VpcId)},
	); err != nil {
		return nil, err
	}
	g := store.Find(c.InternetGateways, in.InternetGatewayId)
	switch {
	case g == nil:
		return nil, ec2api.NotFound("InvalidInternetGatewayID", "internetGateway", in.InternetGatewayId)
	case store.Find(c.VPCs, in.VpcId) == nil:
		return nil, ec2api.NotFound("InvalidVpcID", "vpc", in.VpcId)
	case g.VPC != "":
		return nil, api.Errorf(
			"Resource.AlreadyAssociated", "resource %s is already attached to network %s", g.ID, g.VPC,
		)
	case slices.ContainsFunc(
		c.InternetGateways, func(other store.InternetGateway) bool { return other.VPC == in.VpcId },
	):
		return nil, api.Errorf("InvalidParameterValue", "Network %s already has an internet gateway attached", in.VpcId)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	g.VPC = in.VpcId
	return &ec2api.Done{Return: true}, nil
}

// mayCreate checks that something with tags may be created in a VPC, and returns both.
func mayCreate(
	c *api.Call, kind string, specifications []ec2api.TagSpecification, id string,
) (store.Tags, *store.VPC, error) {
	tags, err := ec2api.TagsFor(specifications, kind)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Allow(
		api.Target{ARN: ec2api.ARN(c, kind, "*"), RequestTags: tags},
		api.Target{ARN: ec2api.ARN(c, "vpc", id)},
	); err != nil {
		return nil, nil, err
	}
	vpc := store.Find(c.VPCs, id)
	if vpc == nil {
		return nil, nil, ec2api.NotFound("InvalidVpcID", "vpc", id)
	}
	return tags, vpc, nil
}

type createRouteTableInput struct {
	VpcId            string
	ClientToken      string
	TagSpecification []ec2api.TagSpecification
}

type createRouteTableOutput struct {
	Table routeTableView `xml:"routeTable"`
}

func createRouteTable(c *api.Call, in createRouteTableInput) (*createRouteTableOutput, error) {
	tags, vpc, err := mayCreate(c, "route-table", in.TagSpecification, in.VpcId)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	t := store.RouteTable{
		ID:     c.NewID("rtb"),
		VPC:    vpc.ID,
		Routes: []store.Route{{Destination: vpc.CIDR.String(), Gateway: "local"}},
		Tags:   tags,
	}
	c.RouteTables = append(c.RouteTables, t)
	return &createRouteTableOutput{viewRouteTable(c, &t)}, nil
}

type associateRouteTableInput struct{ RouteTableId, SubnetId string }

type associationOutput struct {
	ID string `xml:"associationId"`
}

func associateRouteTable(c *api.Call, in associateRouteTableInput) (*associationOutput, error) {
	t, err := routeTable(c, in.RouteTableId)
	if err != nil {
		return nil, err
	}
	subnet := store.Find(c.Subnets, in.SubnetId)
	if subnet == nil {
		return nil, ec2api.NotFound("InvalidSubnetID", "subnet", in.SubnetId)
	}
	if subnet.VPC != t.VPC {
		return nil, api.Errorf(
			"InvalidParameterValue", "Route table %s and subnet %s belong to different networks", t.ID, subnet.ID,
		)
	}
	for _, other := range c.RouteTables {
		if slices.Contains(other.Subnets, subnet.ID) {
			return nil, api.Errorf(
				"Resource.AlreadyAssociated",
				"the specified association for route table %s conflicts with an existing association", t.ID,
			)
		}
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	t.Subnets = append(t.Subnets, subnet.ID)
	return &associationOutput{associationOf(subnet.ID)}, nil
}

type replaceRouteTableAssociationInput struct{ AssociationId, RouteTableId string }

type newAssociationOutput struct {
	ID string `xml:"newAssociationId"`
}

// replaceRouteTableAssociation changes the table of a subnet. Other than EC2, it does not support making another table
// the main one.
func replaceRouteTableAssociation(c *api.Call, in replaceRouteTableAssociationInput) (*newAssociationOutput, error) {
	t, err := routeTable(c, in.RouteTableId)
	if err != nil {
		return nil, err
	}
	for i := range c.RouteTables {
		old := &c.RouteTables[i]
		at := slices.IndexFunc(old.Subnets, func(s string) bool { return associationOf(s) == in.AssociationId })
		if at < 0 || old.VPC != t.VPC {
			continue
		}
		if err := c.Begin(); err != nil {
			return nil, err
		}
		subnet := old.Subnets[at]
		old.Subnets = slices.Delete(old.Subnets, at, at+1)
		t.Subnets = append(t.Subnets, subnet)
		return &newAssociationOutput{associationOf(subnet)}, nil
	}
	return nil, api.Errorf("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", in.AssociationId)
}

func replaceRoute(c *api.Call, in routeInput) (*ec2api.Done, error) {
	t, err := routeTable(c, in.RouteTableId)
	if err != nil {
		return nil, err
	}
	i := route(t, in.DestinationCidrBlock)
	if i < 0 {
		return nil, api.Errorf(
			"InvalidParameterValue", "There is no route defined for '%s' in the route table. Use CreateRoute instead.",
			in.DestinationCidrBlock,
		)
	}
	r, err := beginRoute(c, t, in)
	if err != nil {
		return nil, err
	}
	t.Routes[i] = r
	return &ec2api.Done{Return: true}, nil
}

type createSubnetInput struct {
	VpcId, CidrBlock, AvailabilityZone string
	TagSpecification                   []ec2api.TagSpecification
}

type createSubnetOutput struct {
	Subnet subnetView `xml:"subnet"`
}

func createSubnet(c *api.Call, in createSubnetInput) (*createSubnetOutput, error) {
	tags, vpc, err := mayCreate(c, "subnet", in.TagSpecification, in.VpcId)
	if err != nil {
		return nil, err
	}
	network, err := netip.ParsePrefix(in.CidrBlock)
	switch {
	case err != nil || network != network.Masked():
		return nil, api.Errorf(
			"InvalidParameterValue", "Value (%s) for parameter cidrBlock is invalid. This is not a valid CIDR block.",
			in.CidrBlock,
		)
	case network.Bits() < 16 || network.Bits() > 28 || network.Bits() < vpc.CIDR.Bits() ||
		!vpc.CIDR.Contains(network.Addr()):
		return nil, api.Errorf("InvalidSubnet.Range", "The CIDR '%s' is invalid.", in.CidrBlock)
	case slices.ContainsFunc(
		c.Subnets, func(s store.Subnet) bool { return s.VPC == vpc.ID && s.CIDR.Overlaps(network) },
	):
		return nil, api.Errorf("InvalidSubnet.Conflict", "The CIDR '%s' conflicts with another subnet", in.CidrBlock)
	case !strings.HasPrefix(in.AvailabilityZone, c.Region):
		return nil, api.Errorf(
			"InvalidParameterValue", "Value (%s) for parameter availabilityZone is invalid.", in.AvailabilityZone,
		)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	s := store.Subnet{
		ID:               c.NewID("subnet"),
		VPC:              vpc.ID,
		AvailabilityZone: in.AvailabilityZone,
		CIDR:             network,
		Tags:             tags,
	}
	c.Subnets = append(c.Subnets, s)
	return &createSubnetOutput{viewSubnet(c, &s)}, nil
}

type modifyVPCAttributeInput struct {
	VpcId              string
	EnableDnsHostnames struct{ Value *bool }
	EnableDnsSupport   struct{ Value *bool }
}

func modifyVPCAttribute(c *api.Call, in modifyVPCAttributeInput) (*ec2api.Done, error) {
	if err := c.Allow(api.Target{ARN: ec2api.ARN(c, "vpc", in.VpcId)}); err != nil {
		return nil, err
	}
	vpc := store.Find(c.VPCs, in.VpcId)
	names, support := in.EnableDnsHostnames.Value, in.EnableDnsSupport.Value
	switch {
	case vpc == nil:
		return nil, ec2api.NotFound("InvalidVpcID", "vpc", in.VpcId)
	case names == nil && support == nil:
		return nil, api.Errorf(
			"MissingParameter", "The request must contain the parameter EnableDnsSupport or EnableDnsHostnames",
		)
	case names != nil && support != nil:
		return nil, api.Errorf(
			"InvalidParameterCombination",
			"Fields for multiple attribute types specified: enableDnsHostnames, enableDnsSupport",
		)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	if names != nil {
		vpc.NoDNSHostnames = !*names
	}
	return &ec2api.Done{Return: true}, nil
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
	ec2api.Page
	DhcpOptionsId []string
}

type describeDHCPOptionsOutput struct {
	Options []dhcpOptionsView `xml:"dhcpOptionsSet>item"`
}

func describeDHCPOptions(_ *api.Call, in describeDHCPOptionsInput) (*describeDHCPOptionsOutput, error) {
	for _, id := range in.DhcpOptionsId {
		if id != dhcpOptions {
			return nil, ec2api.NotFound("InvalidDhcpOptionID", "dhcpOption", id)
		}
	}
	return &describeDHCPOptionsOutput{[]dhcpOptionsView{{ID: dhcpOptions}}}, nil
}

type modifyNetworkInterfaceAttributeInput struct {
	NetworkInterfaceId string
	SourceDestCheck    struct{ Value *bool }
}

func modifyNetworkInterfaceAttribute(c *api.Call, in modifyNetworkInterfaceAttributeInput) (*ec2api.Done, error) {
	if err := c.Allow(api.Target{ARN: ec2api.ARN(c, "network-interface", in.NetworkInterfaceId)}); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(c.Instances, func(i store.Instance) bool {
		return InterfaceID(i.ID) == in.NetworkInterfaceId && i.State != store.Terminated
	})
	switch {
	case at < 0:
		return nil, api.Errorf(
			"InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", in.NetworkInterfaceId,
		)
	case in.SourceDestCheck.Value == nil:
		return nil, api.Errorf("InvalidParameterCombination", "No attributes specified.")
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	c.Instances[at].SourceDestCheck = in.SourceDestCheck.Value
	return &ec2api.Done{Return: true}, nil
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
	// Those of an interface endpoint.
	Subnets []string        `xml:"subnetIdSet>item"`
	Groups  []endpointGroup `xml:"groupSet>item"`
}

type endpointGroup struct {
	ID string `xml:"groupId"`
}

func viewVPCEndpoint(e store.VPCEndpoint, state string) vpcEndpointView {
	view := vpcEndpointView{ID: e.ID, Type: e.Type, VPC: e.VPC, Service: e.Service, State: state, Subnets: e.Subnets}
	for _, id := range e.SecurityGroups {
		view.Groups = append(view.Groups, endpointGroup{id})
	}
	return view
}

type createVPCEndpointOutput struct {
	Endpoint vpcEndpointView `xml:"vpcEndpoint"`
}

// endpointServices are those that the release's documentation names.
var endpointServices = []string{"ec2", "elasticloadbalancing", "sts", "ecr.api", "ecr.dkr", "s3"}

// endpointService is the full name of a service. In China most of them start with cn.com, in the European Sovereign
// Cloud with eu.
func endpointService(w *store.World, name string) string {
	full := "amazonaws." + w.Region + "." + name
	switch {
	case w.Partition == "aws-cn" && name != "s3":
		return "cn.com." + full
	case w.Partition == "aws-eusc":
		return "eu." + full
	}
	return "com." + full
}

func createVPCEndpoint(c *api.Call, in createVPCEndpointInput) (*createVPCEndpointOutput, error) {
	if err := c.Allow(
		api.Target{ARN: ec2api.ARN(c, "vpc-endpoint", "*")}, api.Target{ARN: ec2api.ARN(c, "vpc", in.VpcId)},
	); err != nil {
		return nil, err
	}
	e := store.VPCEndpoint{
		VPC:            in.VpcId,
		Type:           in.VpcEndpointType,
		Service:        in.ServiceName,
		Subnets:        in.SubnetId,
		SecurityGroups: in.SecurityGroupId,
		RouteTables:    in.RouteTableId,
		PrivateDNS:     in.PrivateDnsEnabled != nil && *in.PrivateDnsEnabled,
	}
	if err := checkEndpoint(c, e); err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	e.ID = c.NewID("vpce")
	c.VPCEndpoints = append(c.VPCEndpoints, e)
	return &createVPCEndpointOutput{viewVPCEndpoint(e, "pending")}, nil
}

type describeVPCEndpointsInput struct {
	ec2api.Page
	VpcEndpointId []string
}

type describeVPCEndpointsOutput struct {
	Endpoints []vpcEndpointView `xml:"vpcEndpointSet>item"`
}

func describeVPCEndpoints(c *api.Call, in describeVPCEndpointsInput) (*describeVPCEndpointsOutput, error) {
	list, err := ec2api.WithIDs(c.VPCEndpoints, in.VpcEndpointId, "InvalidVpcEndpointId", "VpcEndpoint")
	if err != nil {
		return nil, err
	}
	selected, err := ec2api.SelectBy(list, in.Filter, func(e *store.VPCEndpoint) (ec2api.Attributes, store.Tags) {
		return ec2api.Attributes{
			"vpc-id": ec2api.One(e.VPC), "service-name": ec2api.One(e.Service), "vpc-endpoint-id": ec2api.One(e.ID),
		}, nil
	})
	out := &describeVPCEndpointsOutput{}
	for _, e := range selected {
		out.Endpoints = append(out.Endpoints, viewVPCEndpoint(*e, "available"))
	}
	return out, err
}

func checkEndpoint(c *api.Call, e store.VPCEndpoint) error {
	if store.Find(c.VPCs, e.VPC) == nil {
		return ec2api.NotFound("InvalidVpcId", "Vpc", e.VPC)
	}
	if !slices.ContainsFunc(
		endpointServices, func(name string) bool { return endpointService(c.World, name) == e.Service },
	) {
		return api.Errorf("InvalidServiceName", "The Vpc Endpoint Service '%s' does not exist", e.Service)
	}
	for _, id := range e.Subnets {
		if store.Find(c.Subnets, id) == nil {
			return ec2api.NotFound("InvalidSubnetId", "subnet", id)
		}
	}
	for _, id := range e.SecurityGroups {
		if g := store.Find(c.SecurityGroups, id); g == nil || g.VPC != e.VPC {
			return api.Errorf("InvalidSecurityGroupId.NotFound", "The security group '%s' does not exist", id)
		}
	}
	for _, id := range e.RouteTables {
		if store.Find(c.RouteTables, id) == nil {
			return api.Errorf("InvalidRouteTableId.NotFound", "The routeTable ID '%s' does not exist", id)
		}
	}
	for _, other := range c.VPCEndpoints {
		if other.VPC == e.VPC && other.Service == e.Service && other.PrivateDNS && e.PrivateDNS {
			return api.Errorf(
				"InvalidParameter",
				"private-dns-enabled cannot be set because there is already a conflicting DNS domain for %s in the "+
					"VPC %s",
				e.Service, e.VPC,
			)
		}
	}
	return nil
}

type describeVPCEndpointServicesInput struct {
	ec2api.Page
	ServiceName []string
}

type describeVPCEndpointServicesOutput struct {
	Names []string `xml:"serviceNameSet>item"`
}

func describeVPCEndpointServices(
	c *api.Call, _ describeVPCEndpointServicesInput,
) (*describeVPCEndpointServicesOutput, error) {
	out := &describeVPCEndpointServicesOutput{}
	for _, name := range endpointServices {
		out.Names = append(out.Names, endpointService(c.World, name))
	}
	return out, nil
}
