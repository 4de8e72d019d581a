package account

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

const anywhere = "0.0.0.0/0"

// endpoints are the services that nodes require. Without a default route, their VPC needs an endpoint for each.
var endpoints = []string{"ec2", "elasticloadbalancing", "sts"}

func inVPC(vpc string) []types.Filter {
	return []types.Filter{{Name: aws.String("vpc-id"), Values: []string{vpc}}}
}

// checkRoutes looks at the route that packets to the internet take: those of nodes should get there by a target that
// needs no public address, those of internet-facing load balancers by an internet gateway.
func (a *Account) checkRoutes(ctx context.Context) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	tables, err := a.routeTables(ctx)
	if err != nil {
		return outcome, err
	}
	for i := range tables {
		var nodes, public []string
		for _, id := range a.subnets() {
			if tableOf(tables, id) != &tables[i] {
				continue
			}
			if slices.Contains(a.nodeSubnets(), id) {
				nodes = append(nodes, id)
			}
			if slices.Contains(a.PublicSubnets, id) {
				public = append(public, id)
			}
		}
		found, err := a.checkNodeRoutes(ctx, tables, &tables[i], nodes)
		if err != nil {
			return outcome, err
		}
		outcome.Findings = append(outcome.Findings, found...)
		if found, err = a.checkPublicRoutes(ctx, tables, &tables[i], public); err != nil {
			return outcome, err
		}
		outcome.Findings = append(outcome.Findings, found...)
	}
	outcome.Note = fmt.Sprintf("%d subnets", len(a.subnets()))
	return outcome, nil
}

// routeTables are those of the VPC.
func (a *Account) routeTables(ctx context.Context) ([]types.RouteTable, error) {
	var tables []types.RouteTable
	pages := ec2.NewDescribeRouteTablesPaginator(a.ec2, &ec2.DescribeRouteTablesInput{Filters: inVPC(a.vpc)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		tables = append(tables, page.RouteTables...)
	}
	return tables, nil
}

// localRoute is the gateway of routes within the VPC.
const localRoute = "local"

// destinations are the IPv4 networks that selected routes of a table lead to.
func destinations(table *types.RouteTable, selected func(types.Route) bool) []netip.Prefix {
	var networks []netip.Prefix
	for _, r := range table.Routes {
		network, err := netip.ParsePrefix(aws.ToString(r.DestinationCidrBlock))
		if err == nil && selected(r) { // others are IPv6 networks and prefix lists
			networks = append(networks, network)
		}
	}
	return networks
}

// isAnywhere reports whether routes lead everywhere: a default route, or several that are one together.
func isAnywhere(table *types.RouteTable) bool {
	all := func(types.Route) bool { return true }
	return resource.Cover(destinations(table, all), resource.AnyAddress)
}

// tableOf is the route table of a subnet: the one that it is associated with, else the main one.
func tableOf(tables []types.RouteTable, subnet string) *types.RouteTable {
	var main *types.RouteTable
	for i := range tables {
		for _, association := range tables[i].Associations {
			if aws.ToString(association.SubnetId) == subnet {
				return &tables[i]
			}
			if aws.ToBool(association.Main) {
				main = &tables[i]
			}
		}
	}
	return main
}

func toInternetGateway(r types.Route) bool {
	return strings.HasPrefix(aws.ToString(r.GatewayId), "igw-")
}

func isBlackhole(r types.Route) bool { return r.State == types.RouteStateBlackhole }

// leadsOut reports whether a route leads out of the VPC. Those of gateway endpoints, for a prefix list, do not; a
// firewall's endpoint is the target of a network.
func leadsOut(r types.Route) bool {
	gateway := aws.ToString(r.GatewayId)
	ofEndpoint := r.DestinationPrefixListId != nil && strings.HasPrefix(gateway, "vpce-")
	return !isBlackhole(r) && gateway != localRoute && !ofEndpoint && r.DestinationIpv6CidrBlock == nil
}

// checkPublicRoutes are the findings about subnets with this table that internet-facing load balancers are in.
func (a *Account) checkPublicRoutes(
	ctx context.Context, tables []types.RouteTable, table *types.RouteTable, subnets []string,
) ([]preflight.Finding, error) {
	public := destinations(table, func(r types.Route) bool { return toInternetGateway(r) && !isBlackhole(r) })
	if len(subnets) == 0 || resource.Cover(public, resource.AnyAddress) {
		return nil, nil
	}
	var findings []preflight.Finding
	shared := func(id string) bool { return slices.Contains(a.nodeSubnets(), id) }
	for _, id := range subnets {
		if shared(id) {
			findings = append(findings, preflight.Finding{
				Resource: resourceOf([]string{id}, table),
				Wanted:   "nodes without load balancers in it, or a default route to the VPC's internet gateway",
				Found:    cmp.Or(defaultTarget(table), "no default route"),
				Why:      "clients on the internet do not reach load balancers in this subnet, which has nodes too",
				Fix: []preflight.Fix{{Text: fmt.Sprintf(
					"Take %s out of public_subnet_ids in %s, and put a subnet without nodes there: with a route to "+
						"the internet gateway, nodes without public addresses would have no way out.", id, a.File,
				)}},
			})
		}
	}
	if subnets = slices.DeleteFunc(slices.Clone(subnets), shared); len(subnets) == 0 {
		return findings, nil
	}
	lines, err := a.defaultRoute(ctx, tables, table, subnets, `--gateway-id "$gateway"`)
	find := []string{
		"gateway=$(" + a.awsEC2("describe-internet-gateways") + " --filters Name=attachment.vpc-id,Values=" + a.vpc +
			" --query 'InternetGateways[0].InternetGatewayId' --output text)",
		`test "$gateway" != None || { gateway=$(` + a.awsEC2("create-internet-gateway") +
			" --query InternetGateway.InternetGatewayId --output text) && " + a.awsEC2("attach-internet-gateway") +
			` --internet-gateway-id "$gateway" --vpc-id ` + a.vpc + "; }",
	}
	return append(findings, preflight.Finding{
		Resource: resourceOf(subnets, table),
		Wanted:   "a default route to the VPC's internet gateway",
		Found:    cmp.Or(defaultTarget(table), "no default route"),
		Why:      "clients on the internet do not reach load balancers in these subnets",
		Fix: []preflight.Fix{{
			Text:     "Route these subnets to the internet gateway; no other subnet gets a new route:",
			Commands: append(find, lines...),
		}},
	}), err
}

// checkNodeRoutes are the findings about subnets with this table that nodes are in.
func (a *Account) checkNodeRoutes(
	ctx context.Context, tables []types.RouteTable, table *types.RouteTable, subnets []string,
) ([]preflight.Finding, error) {
	private := func(r types.Route) bool { return leadsOut(r) && !toInternetGateway(r) }
	if len(subnets) == 0 || resource.Cover(destinations(table, private), resource.AnyAddress) {
		return nil, nil
	}
	finding := preflight.Finding{
		Resource: resourceOf(subnets, table), Found: defaultTarget(table),
		Wanted: "a default route to a NAT gateway or a transit gateway, or VPC endpoints of " +
			strings.Join(endpoints, ", "),
		Why: "nodes reach neither EC2 nor load balancing nor STS",
	}
	lines, err := a.defaultRoute(ctx, tables, table, subnets, `--nat-gateway-id "$nat"`)
	if err != nil {
		return nil, err
	}
	nat := preflight.Fix{
		Text:     "Route these subnets to a NAT gateway in a public subnet; no other subnet gets a new route:",
		Commands: append([]string{"nat=NAT_GATEWAY_ID"}, lines...),
	}
	switch {
	case resource.Cover(destinations(table, leadsOut), resource.AnyAddress):
		finding.Wanted = "public addresses of the VMs, or a default route to a NAT gateway"
		finding.Why = "VMs have a public address only by auto_assign_public_ip: the CPI creates their network " +
			"interface, for which the subnet's setting does not count"
		finding.Advisory = true
		finding.Fix = []preflight.Fix{{
			Text: "Set auto_assign_public_ip: true in the cloud_properties of all VM types, if they do not have it. " +
				"This is not visible here.",
		}}
		if !slices.ContainsFunc(subnets, func(id string) bool { return slices.Contains(a.PublicSubnets, id) }) {
			nat.Text = "Or route these subnets to a NAT gateway in a public subnet; no other subnet gets a new route:"
			finding.Fix = append(finding.Fix, nat)
		}
		return []preflight.Finding{finding}, nil
	case finding.Found != "":
		finding.Fix = []preflight.Fix{nat}
		return []preflight.Finding{finding}, nil
	}
	missing, err := a.missingEndpoints(ctx, func(types.VpcEndpoint) bool { return true })
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	finding.Found = "no default route, and no VPC endpoint of " + strings.Join(missing, ", ")
	finding.Fix = []preflight.Fix{nat, {Text: "Or create VPC endpoints (docs/aws.md, Private clusters)."}}
	if len(missing) < len(endpoints) {
		finding.Why = "nodes do not reach " + strings.Join(missing, ", ")
		finding.Fix = []preflight.Fix{a.createEndpoints(missing)}
	}
	// A participant of a shared VPC does not see its owner's endpoints.
	if owner := aws.ToString(table.OwnerId); slices.ContainsFunc(table.Routes, leadsOut) || owner != a.id {
		finding.Advisory = true
		finding.Why += ", unless by other routes of the table, or by endpoints of the VPC's owner"
	}
	return []preflight.Finding{finding}, nil
}

func resourceOf(subnets []string, table *types.RouteTable) string {
	return strings.Join(subnets, ", ") + ", route table " + aws.ToString(table.RouteTableId)
}

// defaultRouteOf is the route for all IPv4 addresses, nil if there is none.
func defaultRouteOf(table *types.RouteTable) *types.Route {
	for i, r := range table.Routes {
		if aws.ToString(r.DestinationCidrBlock) == anywhere {
			return &table.Routes[i]
		}
	}
	return nil
}

// defaultTarget says where the default route leads, empty if there is none.
func defaultTarget(table *types.RouteTable) string {
	route := defaultRouteOf(table)
	switch {
	case route == nil:
		return ""
	case isBlackhole(*route):
		return "a default route to " + target(*route) + " with the state blackhole: the target is gone or detached"
	}
	return "a default route to " + target(*route)
}

// defaultRoute are the commands that give exactly these subnets of a table a default route: in a table of their own, if
// other subnets use theirs, which may be cut off otherwise, or open to the internet.
func (a *Account) defaultRoute(
	ctx context.Context, tables []types.RouteTable, table *types.RouteTable, subnets []string, to string,
) ([]string, error) {
	out, err := a.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: inVPC(a.vpc)})
	if err != nil {
		return nil, err
	}
	change := func(operation, id string) string {
		return a.awsEC2(operation) + " --route-table-id " + id + " --destination-cidr-block " + anywhere + " " + to
	}
	other := func(s types.Subnet) bool {
		id := aws.ToString(s.SubnetId)
		return tableOf(tables, id) == table && !slices.Contains(subnets, id)
	}
	if !slices.ContainsFunc(out.Subnets, other) {
		operation := "create-route"
		if defaultRouteOf(table) != nil {
			operation = "replace-route"
		}
		return []string{change(operation, aws.ToString(table.RouteTableId))}, nil
	}
	lines := []string{
		"table=$(" + a.awsEC2("create-route-table") + " --vpc-id " + a.vpc +
			" --query RouteTable.RouteTableId --output text)",
		change("create-route", `"$table"`),
	}
	for _, id := range subnets {
		line := a.awsEC2("associate-route-table") + " --subnet-id " + id
		for _, association := range table.Associations {
			if aws.ToString(association.SubnetId) == id {
				line = a.awsEC2("replace-route-table-association") + " --association-id " +
					aws.ToString(association.RouteTableAssociationId)
			}
		}
		lines = append(lines, line+` --route-table-id "$table"`)
	}
	return lines, nil
}

// createEndpoints is the fix if single endpoints are missing. Their names do not begin alike in all partitions.
func (a *Account) createEndpoints(services []string) preflight.Fix {
	region := a.ec2.Options().Region
	group := cmp.Or(a.group, `"$group"`)
	lines := []string{
		"endpoints=$(" + a.awsEC2("create-security-group") + " --vpc-id " + a.vpc +
			" --group-name kubernetes-endpoints-" + a.Cluster +
			" --description 'VPC endpoints of AWS services' --query GroupId --output text)",
		a.awsEC2("authorize-security-group-ingress") + ` --group-id "$endpoints" --protocol tcp --port 443 ` +
			"--source-group " + group,
	}
	for _, service := range services {
		lines = append(
			lines,
			"service=$("+a.awsEC2("describe-vpc-endpoint-services")+
				fmt.Sprintf(` --query "ServiceNames[?ends_with(@, '.%s.%s')] | [0]" --output text)`, region, service),
			a.awsEC2("create-vpc-endpoint")+" --vpc-id "+a.vpc+
				` --vpc-endpoint-type Interface --service-name "$service" --subnet-ids `+
				strings.Join(a.nodeSubnets(), " ")+` --security-group-ids "$endpoints" --private-dns-enabled`,
		)
	}
	return preflight.Fix{
		Text: "Create the missing endpoints, with a security group that lets the nodes connect:", Commands: lines,
	}
}

// target is the ID that a route leads to.
func target(r types.Route) string {
	for _, id := range []*string{
		r.NatGatewayId, r.TransitGatewayId, r.GatewayId, r.VpcPeeringConnectionId, r.InstanceId, r.NetworkInterfaceId,
		r.LocalGatewayId, r.CarrierGatewayId, r.CoreNetworkArn,
	} {
		if id := aws.ToString(id); id != "" {
			return id
		}
	}
	return "an unknown target"
}

// missingEndpoints are the required services that have no selected endpoint in the VPC that is available.
func (a *Account) missingEndpoints(
	ctx context.Context, selected func(types.VpcEndpoint) bool,
) ([]string, error) {
	missing := slices.Clone(endpoints)
	pages := ec2.NewDescribeVpcEndpointsPaginator(a.ec2, &ec2.DescribeVpcEndpointsInput{Filters: inVPC(a.vpc)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.VpcEndpoints {
			available := strings.EqualFold(string(e.State), string(types.StateAvailable)) // EC2 writes it in lower case
			if !available || !selected(e) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(name string) bool {
				return strings.HasSuffix(aws.ToString(e.ServiceName), "."+name)
			})
		}
	}
	return missing, nil
}
