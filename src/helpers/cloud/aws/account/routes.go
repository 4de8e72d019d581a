package account

import (
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

// checkRoutes looks at the route that packets to the internet take: those of nodes must get there by a target that
// needs no public address, those of internet-facing load balancers by an internet gateway.
func (a *Account) checkRoutes(ctx context.Context) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	tables, err := a.routeTables(ctx)
	if err != nil {
		return outcome, err
	}
	for _, id := range a.subnets() {
		table := tableOf(tables, id)
		if table == nil {
			continue // no VPC is without a main route table
		}
		found, err := a.checkRoute(ctx, id, table)
		if err != nil {
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

func (a *Account) checkRoute(ctx context.Context, subnet string, table *types.RouteTable) ([]preflight.Finding, error) {
	id := aws.ToString(table.RouteTableId)
	finding := preflight.Finding{Resource: subnet + ", route table " + id}
	at := slices.IndexFunc(
		table.Routes, func(r types.Route) bool { return aws.ToString(r.DestinationCidrBlock) == anywhere },
	)
	operation := "create-route"
	toInternet := false
	if at >= 0 {
		route := table.Routes[at]
		operation = "replace-route"
		toInternet = strings.HasPrefix(aws.ToString(route.GatewayId), "igw-")
		finding.Found = "a default route to " + target(route)
		if route.State == types.RouteStateBlackhole {
			finding.Found += " with the state blackhole: the target is gone or detached"
			toInternet = false
		} else if public := slices.Contains(a.PublicSubnets, subnet); public == toInternet {
			return nil, nil
		}
	}
	change := fmt.Sprintf(
		"%s --route-table-id %s --destination-cidr-block %s", a.awsEC2(operation), id, anywhere,
	)
	if slices.Contains(a.PublicSubnets, subnet) {
		finding.Wanted = "a default route to the VPC's internet gateway"
		finding.Why = "clients on the internet do not reach load balancers in this subnet"
		finding.Fix = []preflight.Fix{{
			Text: "Route the subnets of this table to the internet gateway. A private subnet that uses the table too " +
				"needs another one first:",
			Commands: []string{
				"gateway=$(" + a.awsEC2("describe-internet-gateways") +
					" --filters Name=attachment.vpc-id,Values=" + a.vpc +
					" --query 'InternetGateways[0].InternetGatewayId' --output text)",
				change + ` --gateway-id "$gateway"`,
			},
		}}
		if finding.Found == "" {
			finding.Found = "no default route"
		}
		return []preflight.Finding{finding}, nil
	}
	if toInternet {
		public, err := a.publicAddresses(ctx, subnet)
		if err != nil || public {
			return nil, err
		}
		finding.Found += ", and VMs get no public address"
	}
	if at < 0 {
		missing, err := a.missingEndpoints(ctx)
		if err != nil || len(missing) == 0 {
			return nil, err
		}
		finding.Found = "no default route, and no VPC endpoint of " + strings.Join(missing, ", ")
	}
	finding.Wanted = "a default route to a NAT gateway or a transit gateway, or VPC endpoints of " +
		strings.Join(endpoints, ", ")
	finding.Why = "nodes reach neither EC2 nor load balancing nor STS"
	finding.Fix = []preflight.Fix{{
		Text:     "Route the subnets of this table to a NAT gateway in a public subnet:",
		Commands: []string{"nat=NAT_GATEWAY_ID", change + ` --nat-gateway-id "$nat"`},
	}}
	return []preflight.Finding{finding}, nil
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

// publicAddresses reports whether VMs get a public address in a subnet.
func (a *Account) publicAddresses(ctx context.Context, subnet string) (bool, error) {
	out, err := a.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}})
	if err != nil {
		return false, err
	}
	return aws.ToBool(out.Subnets[0].MapPublicIpOnLaunch), nil
}

// missingEndpoints are the required services that have no endpoint in the VPC.
func (a *Account) missingEndpoints(ctx context.Context) ([]string, error) {
	missing := slices.Clone(endpoints)
	pages := ec2.NewDescribeVpcEndpointsPaginator(a.ec2, &ec2.DescribeVpcEndpointsInput{Filters: inVPC(a.vpc)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.VpcEndpoints {
			missing = slices.DeleteFunc(missing, func(name string) bool {
				return strings.HasSuffix(aws.ToString(e.ServiceName), "."+name)
			})
		}
	}
	return missing, nil
}
