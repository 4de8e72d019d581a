package fixes

import (
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// Fixes that make subnets public. None of them changes a route table that other subnets use, in particular not a VPC's
// main one: those subnets would be open to the internet too.

// hasNodes reports whether a subnet is meant to be private: it is this instance's own or reserved for internal load
// balancers.
func hasNodes(f *facts.Facts, id string) bool {
	s := f.Subnet(id)
	return id == f.SubnetID() || s != nil && s.Tags.Has(clustertags.InternalRole)
}

func isOwnSubnet(f *facts.Facts, id string) bool {
	s := f.Subnet(id)
	return s != nil && s.Tags.BelongTo(f.Cluster())
}

// PublicRoute is the fix if subnets with the tag for public load balancers have no public route, or if there is no
// public subnet.
func PublicRoute(f *facts.Facts, intended []string, otherwise bool) []preflight.Fix {
	var private, public []string
	intended, fixes := splitFirewalled(f, intended)
	otherwise = otherwise || len(fixes) > 0
	for _, id := range intended {
		if hasNodes(f, id) {
			private = append(private, id)
		} else {
			public = append(public, id)
		}
	}
	if len(public) > 0 {
		lines := routeToInternet(f, public)
		owned := func(id string) bool { return isOwnSubnet(f, id) }
		if untagged := slices.DeleteFunc(slices.Clone(public), owned); len(untagged) > 0 {
			lines = append(lines, TagCommand(f, untagged...)) // else the next report would ask for it
		}
		fixes = append(
			fixes, ByCommand("route these subnets to the internet gateway; no other subnet gets a new route", lines...),
		)
	}
	if len(public) == 0 && !otherwise {
		fixes = append(fixes, NewPublicSubnets(f, f.Metadata.Zone))
	}
	if len(private) > 0 {
		text := "remove the tag for public load balancers from subnets with nodes, which should stay private"
		if len(fixes) > 0 {
			text = "also " + text
		}
		fixes = append(fixes, ByCommand(text, UntagCommand(f, private, clustertags.PublicRole)))
	}
	return append(fixes, CheckOff("for a cluster with internal load balancers only", "public-subnet-route"))
}

// RouteTable is the fix if no route table applies to subnets: those with the tag for public load balancers are routed
// to the internet gateway at once, or else the next report would ask for it.
func RouteTable(f *facts.Facts, subnets []string) (fixes []preflight.Fix) {
	var private, public []string
	for _, id := range subnets {
		if s := f.Subnet(id); s != nil && s.Tags.Has(clustertags.PublicRole) && !hasNodes(f, id) {
			public = append(public, id)
		} else {
			private = append(private, id)
		}
	}
	if len(public) > 0 {
		fixes = append(fixes, ByCommand("route these subnets to the internet gateway", routeToInternet(f, public)...))
	}
	if len(private) > 0 {
		lines := []string{NewTable(f)}
		for _, id := range private {
			lines = append(lines, Associate(f, id, Expand("table")))
		}
		text := "create a route table for these subnets, which only has routes within the VPC"
		if len(public) > 0 {
			text = "also " + text
		}
		fixes = append(fixes, ByCommand(text, lines...))
	}
	return fixes
}

// DefaultRoute is the fix if subnets lead to an internet gateway that is gone, or with a part of their packets only.
func DefaultRoute(f *facts.Facts, subnets []string) []preflight.Fix {
	return append(
		ToInternet(f, subnets), CheckOff("for a cluster with internal load balancers only", "public-subnet-route"),
	)
}

// ToInternet is the fix if subnets do not lead to the internet gateway.
func ToInternet(f *facts.Facts, subnets []string) []preflight.Fix {
	subnets, fixes := splitFirewalled(f, subnets)
	if len(subnets) > 0 {
		fixes = append(fixes, ByCommand(
			"route these subnets to the internet gateway; no other subnet gets a new route",
			routeToInternet(f, subnets)...,
		))
	}
	return fixes
}

// ToNAT is the fix if subnets with nodes do not lead out.
func ToNAT(f *facts.Facts, subnets []string) preflight.Fix {
	target := []string{"--nat-gateway-id", Expand("nat")}
	return ByCommand(
		"route these subnets to a NAT gateway in a public subnet; no other subnet gets a new route",
		routeTo(f, subnets, target, func() (string, []string) { return tableTo(f, target) })...,
	)
}

// splitFirewalled returns the subnets whose default route does not lead to the endpoint of a firewall, which a new
// route would go around, and a fix by hand for the others.
func splitFirewalled(f *facts.Facts, subnets []string) (rest []string, fixes []preflight.Fix) {
	for _, id := range subnets {
		table := f.Tables.Of(id)
		if table == nil || table.Default() == nil || !strings.HasPrefix(table.Default().Target, "vpce-") {
			rest = append(rest, id)
			continue
		}
		fixes = append(fixes, ByHand(
			"the default route of %s, in %s, leads to %s, the endpoint of a firewall. Leave it, if it is meant to, "+
				"and use another subnet for load balancers: a route to the internet gateway would go around the "+
				"firewall",
			id, table.ID, table.Default().Target,
		))
	}
	return rest, fixes
}

// gateway is the id of the VPC's internet gateway, and the lines that determine it if no route leads to one yet.
func gateway(f *facts.Facts) (id string, lines []string) {
	for _, t := range f.Tables {
		if id := t.InternetGateway(); id != "" {
			return id, nil
		}
	}
	find := Query(f,
		"InternetGateways[0].InternetGatewayId", "ec2", "describe-internet-gateways", "--filters",
		"Name=attachment.vpc-id,Values="+Word(f.VPCID(), "vpc"),
	)
	create := Query(f, "InternetGateway.InternetGatewayId", "ec2", "create-internet-gateway")
	attach := AWS(f,
		"ec2", "attach-internet-gateway", "--internet-gateway-id", Expand("gateway"), "--vpc-id",
		Word(f.VPCID(), "vpc"),
	)
	return Expand(
			"gateway",
		), []string{
			Assign("gateway", find),
			`test "$gateway" != None || { ` + Assign("gateway", create) + " && " + attach + "; }",
		}
}

// routeToInternet are the commands that give exactly these subnets a default route to the internet gateway: in their
// own route table if no other subnet uses it, or else in another public table or a new one.
func routeToInternet(f *facts.Facts, subnets []string) []string {
	gateway, lines := gateway(f)
	other := func() (id string, lines []string) { return publicTable(f, gateway) }
	return append(lines, routeTo(f, subnets, []string{"--gateway-id", gateway}, other)...)
}

// routeTo gives exactly these subnets a default route to a target, in their own route table if no other subnet uses it,
// or else in another one.
func routeTo(
	f *facts.Facts, subnets, target []string, other func() (table string, lines []string),
) (lines []string) {
	var changed, moved []string
	for _, id := range subnets {
		table := f.Tables.Of(id)
		switch {
		case table == nil || !table.Only(subnets):
			moved = append(moved, id)
		case !slices.Contains(changed, table.ID):
			changed = append(changed, table.ID)
			operation := "create-route"
			if table.Default() != nil { // such as one to a NAT gateway
				operation = "replace-route"
			}
			lines = append(lines, setDefault(f, operation, table.ID, target))
		}
	}
	if len(moved) == 0 {
		return lines
	}
	table, more := other()
	lines = append(lines, more...)
	for _, id := range moved {
		lines = append(lines, Associate(f, id, table))
	}
	return lines
}

// setDefault creates or replaces the default route of a table.
func setDefault(f *facts.Facts, operation, table string, target []string) string {
	return AWS(f, "ec2", operation, append(
		[]string{"--route-table-id", table, "--destination-cidr-block", resource.AnyAddress.String()}, target...,
	)...)
}

// publicTable is a route table with a route to the internet gateway, and the lines that create one if there is none but
// the main one.
func publicTable(f *facts.Facts, gateway string) (id string, lines []string) {
	for _, t := range f.Tables {
		if r := t.Default(); r != nil && r.ToOpenInternet() && !t.Main {
			return t.ID, nil
		}
	}
	return tableTo(f, []string{"--gateway-id", gateway})
}

// tableTo creates a route table with a default route to a target.
func tableTo(f *facts.Facts, target []string) (id string, lines []string) {
	table := Expand("table")
	return table, []string{NewTable(f), setDefault(f, "create-route", table, target)}
}

// NewTable creates a route table, which routes only within the VPC.
func NewTable(f *facts.Facts) string {
	return Assign(
		"table", Query(f, "RouteTable.RouteTableId", "ec2", "create-route-table", "--vpc-id", Word(f.VPCID(), "vpc")),
	)
}

// Associate gives a subnet another route table.
func Associate(f *facts.Facts, subnet, table string) string {
	for _, t := range f.Tables {
		if id := t.Associations[subnet]; id != "" {
			return AWS(f, "ec2", "replace-route-table-association", "--association-id", id, "--route-table-id", table)
		}
	}
	return AWS(f, "ec2", "associate-route-table", "--subnet-id", subnet, "--route-table-id", table)
}

// NewPublicSubnets creates a public subnet for load balancers in each zone.
func NewPublicSubnets(f *facts.Facts, zones ...string) preflight.Fix {
	gateway, lines := gateway(f)
	table, more := publicTable(f, gateway)
	lines = append(lines, more...)
	tags := tagArguments([]map[string]string{
		{"Key": f.TagKey(), "Value": clustertags.Shared}, {"Key": clustertags.PublicRole, "Value": "1"},
	})
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
			Assign(
				"subnet"+suffix,
				Query(f,
					"Subnet.SubnetId", "ec2", "create-subnet", "--vpc-id", Word(f.VPCID(), "vpc"),
					"--availability-zone", zone, "--cidr-block", Expand("cidr"+suffix), "--tag-specifications",
					specification,
				),
			),
			Associate(f, Expand("subnet"+suffix), table),
		)
	}
	return ByCommand(
		"create a subnet for load balancers whose route table leads to the internet gateway, which changes no "+
			"existing subnet",
		lines...)
}
