package aws

import (
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// Fixes that make subnets public. None of them changes a route table that other subnets use, in particular not a VPC's
// main one: those subnets would be open to the internet too.

// hasNodes reports whether a subnet is meant to be private: it is this instance's own or reserved for internal load
// balancers.
func (f *facts) hasNodes(id string) bool {
	s := f.subnet(id)
	return id == f.subnetID() || s != nil && s.Tags.Has(clustertags.InternalRole)
}

func (f *facts) isOwnSubnet(id string) bool {
	s := f.subnet(id)
	return s != nil && s.Tags.BelongTo(f.cluster())
}

// fixPublicRoute is the fix if subnets with the tag for public load balancers have no public route, or if there is no
// public subnet.
func (f *facts) fixPublicRoute(intended []string, otherwise bool) []preflight.Fix {
	var private, public []string
	for _, id := range intended {
		if f.hasNodes(id) {
			private = append(private, id)
		} else {
			public = append(public, id)
		}
	}
	var fixes []preflight.Fix
	if len(public) > 0 {
		lines := f.routeToInternet(public)
		if untagged := slices.DeleteFunc(slices.Clone(public), f.isOwnSubnet); len(untagged) > 0 {
			lines = append(lines, f.tagCommand(untagged...)) // else the next report would ask for it
		}
		fixes = append(
			fixes, byCommand("route these subnets to the internet gateway; no other subnet gets a new route", lines...),
		)
	}
	if len(public) == 0 && !otherwise {
		fixes = append(fixes, f.newPublicSubnets(f.metadata.Zone))
	}
	if len(private) > 0 {
		text := "remove the tag for public load balancers from subnets with nodes, which should stay private"
		if len(fixes) > 0 {
			text = "also " + text
		}
		fixes = append(fixes, byCommand(text, f.untagCommand(private, clustertags.PublicRole)))
	}
	return append(fixes, checkOff("for a cluster with internal load balancers only", "public-subnet-route"))
}

// gateway is the id of the VPC's internet gateway, and the lines that determine it if no route leads to one yet.
func (f *facts) gateway() (id string, lines []string) {
	for _, t := range f.tables {
		if id := t.internetGateway(); id != "" {
			return id, nil
		}
	}
	find := f.query(
		"InternetGateways[0].InternetGatewayId", "ec2", "describe-internet-gateways", "--filters",
		"Name=attachment.vpc-id,Values="+word(f.vpcID(), "vpc"),
	)
	create := f.query("InternetGateway.InternetGatewayId", "ec2", "create-internet-gateway")
	attach := f.aws(
		"ec2", "attach-internet-gateway", "--internet-gateway-id", expand("gateway"), "--vpc-id",
		word(f.vpcID(), "vpc"),
	)
	return expand(
			"gateway",
		), []string{
			assign("gateway", find),
			`test "$gateway" != None || { ` + assign("gateway", create) + " && " + attach + "; }",
		}
}

// routeToInternet are the commands that give exactly these subnets a default route to the internet gateway: in their
// own route table if no other subnet uses it, or else in another public table or a new one.
func (f *facts) routeToInternet(subnets []string) []string {
	gateway, lines := f.gateway()
	var changed, moved []string
	for _, id := range subnets {
		table := f.vpc().tableOf(id)
		switch {
		case table == nil || !table.only(subnets):
			moved = append(moved, id)
		case !slices.Contains(changed, table.ID):
			changed = append(changed, table.ID)
			operation := "create-route"
			if table.HasDefault { // such as one to a NAT gateway
				operation = "replace-route"
			}
			lines = append(
				lines,
				f.aws(
					"ec2", operation, "--route-table-id", table.ID, "--destination-cidr-block", anyAddress,
					"--gateway-id", gateway,
				),
			)
		}
	}
	if len(moved) == 0 {
		return lines
	}
	table, more := f.publicTable(gateway)
	lines = append(lines, more...)
	for _, id := range moved {
		lines = append(lines, f.associate(id, table))
	}
	return lines
}

// only reports whether no subnets but the given ones use the table.
func (t routeTable) only(subnets []string) bool {
	return !t.Main && !slices.ContainsFunc(t.Subnets, func(id string) bool { return !slices.Contains(subnets, id) })
}

// publicTable is a route table with a route to the internet gateway, and the lines that create one if there is none but
// the main one.
func (f *facts) publicTable(gateway string) (id string, lines []string) {
	for _, t := range f.tables {
		if t.isPublic() && t.HasDefault && !t.Main {
			return t.ID, nil
		}
	}
	table := expand("table")
	return table, []string{
		f.newTable(),
		f.aws(
			"ec2", "create-route", "--route-table-id", table, "--destination-cidr-block", anyAddress, "--gateway-id",
			gateway,
		),
	}
}

// newTable creates a route table, which routes only within the VPC.
func (f *facts) newTable() string {
	return assign(
		"table", f.query("RouteTable.RouteTableId", "ec2", "create-route-table", "--vpc-id", word(f.vpcID(), "vpc")),
	)
}

// associate gives a subnet another route table.
func (f *facts) associate(subnet, table string) string {
	for _, t := range f.tables {
		if id := t.Associations[subnet]; id != "" {
			return f.aws("ec2", "replace-route-table-association", "--association-id", id, "--route-table-id", table)
		}
	}
	return f.aws("ec2", "associate-route-table", "--subnet-id", subnet, "--route-table-id", table)
}

// newPublicSubnets creates a public subnet for load balancers in each zone.
func (f *facts) newPublicSubnets(zones ...string) preflight.Fix {
	gateway, lines := f.gateway()
	table, more := f.publicTable(gateway)
	lines = append(lines, more...)
	tags := tagArguments(
		[]map[string]string{{"Key": f.tagKey(), "Value": "shared"}, {"Key": clustertags.PublicRole, "Value": "1"}},
	)
	specification := "ResourceType=subnet,Tags=[{" + strings.Join(tags, "},{") + "}]"
	if strings.HasPrefix(tags[0], "[") {
		specification = `[{"ResourceType":"subnet","Tags":` + tags[0] + "}]"
	}
	for _, zone := range zones {
		suffix := ""
		if len(zones) > 1 {
			suffix = "_" + strings.ReplaceAll(zone, "-", "_")
		}
		lines = append(
			lines,
			assign(
				"subnet"+suffix,
				f.query(
					"Subnet.SubnetId", "ec2", "create-subnet", "--vpc-id", word(f.vpcID(), "vpc"),
					"--availability-zone", zone, "--cidr-block", expand("cidr"+suffix), "--tag-specifications",
					specification,
				),
			),
			f.associate(expand("subnet"+suffix), table),
		)
	}
	return byCommand(
		"create a subnet for load balancers whose route table leads to the internet gateway, which changes no "+
			"existing subnet",
		lines...)
}
