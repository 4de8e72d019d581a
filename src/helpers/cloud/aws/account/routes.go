package account

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

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
			if tables.Of(id) != &tables[i] {
				continue
			}
			if slices.Contains(a.nodeSubnets(), id) {
				nodes = append(nodes, id)
			}
			if slices.Contains(a.PublicSubnets, id) {
				public = append(public, id)
			}
		}
		found, err := a.checkNodeRoutes(ctx, &tables[i], nodes)
		if err != nil {
			return outcome, err
		}
		outcome.Findings = slices.Concat(outcome.Findings, found, a.checkPublicRoutes(&tables[i], public))
	}
	outcome.Note = fmt.Sprintf("%d subnets", len(a.subnets()))
	return outcome, nil
}

// checkPublicRoutes are the findings about subnets with this table that internet-facing load balancers are in.
func (a *Account) checkPublicRoutes(table *resource.RouteTable, subnets []string) []preflight.Finding {
	if len(subnets) == 0 || table.LeadsAnywhere(resource.Route.ToOpenInternet) {
		return nil
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
		return findings
	}
	return append(findings, preflight.Finding{
		Resource: resourceOf(subnets, table),
		Wanted:   "a default route to the VPC's internet gateway",
		Found:    cmp.Or(defaultTarget(table), "no default route"),
		Why:      "clients on the internet do not reach load balancers in these subnets",
		Fix:      fixes.ToInternet(a.facts(), subnets),
	})
}

// checkNodeRoutes are the findings about subnets with this table that nodes are in.
func (a *Account) checkNodeRoutes(
	ctx context.Context, table *resource.RouteTable, subnets []string,
) ([]preflight.Finding, error) {
	private := func(r resource.Route) bool { return r.LeadsOut() && !r.ToInternet() }
	if len(subnets) == 0 || table.LeadsAnywhere(private) {
		return nil, nil
	}
	finding := preflight.Finding{
		Resource: resourceOf(subnets, table), Found: defaultTarget(table),
		Wanted: "a default route to a NAT gateway or a transit gateway, or VPC endpoints of " +
			strings.Join(endpoints, ", "),
		Why: "nodes reach neither EC2 nor load balancing nor STS",
	}
	nat := fixes.ToNAT(a.facts(), subnets)
	switch {
	case table.LeadsAnywhere(resource.Route.LeadsOut):
		finding.Wanted = "public addresses of the VMs, or a default route to a NAT gateway"
		finding.Why = "VMs have a public address only by auto_assign_public_ip: the CPI creates their network " +
			"interface, for which the subnet's setting does not count"
		finding.Advisory = true
		finding.Fix = []preflight.Fix{{
			Text: "Set auto_assign_public_ip: true in the cloud_properties of all VM types, if they do not have it. " +
				"This is not visible here.",
		}}
		if !slices.ContainsFunc(subnets, func(id string) bool { return slices.Contains(a.PublicSubnets, id) }) {
			nat.Text = "or " + nat.Text
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
		finding.Fix = []preflight.Fix{fixes.ByCommand(
			"create the missing endpoints, with a security group that lets the nodes connect",
			fixes.EndpointsIn(a.facts(), a.nodeSubnets(), missing...)...,
		)}
	}
	// A participant of a shared VPC does not see its owner's endpoints.
	if slices.ContainsFunc(table.Routes, resource.Route.LeadsOut) || table.Owner != a.id {
		finding.Advisory = true
		finding.Why += ", unless by other routes of the table, or by endpoints of the VPC's owner"
	}
	return []preflight.Finding{finding}, nil
}

func resourceOf(subnets []string, table *resource.RouteTable) string {
	return strings.Join(subnets, ", ") + ", route table " + table.ID
}

// defaultTarget says where the default route leads, empty if there is none.
func defaultTarget(table *resource.RouteTable) string {
	route := table.Default()
	if route == nil {
		return ""
	}
	text := "a default route to " + cmp.Or(route.Target, "an unknown target")
	if route.Blackhole {
		text += " with the state blackhole: the target is gone or detached"
	}
	return text
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
