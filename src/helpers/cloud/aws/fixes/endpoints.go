package fixes

import (
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/preflight"
)

// endpointService names an AWS service in create-vpc-endpoint, and is a line that determines it where the name's form
// is not fixed: in China some names start with cn.com.amazonaws, in the European Sovereign Cloud with eu.amazonaws, and
// others do not.
func endpointService(f *facts.Facts, service string) (name string, lines []string) {
	if partition := arn.PartitionOf(f.Region()).Name; partition != "aws-cn" && partition != "aws-eusc" {
		return fmt.Sprintf("com.amazonaws.%s.%s", f.Region(), service), nil
	}
	find := Query(f,
		fmt.Sprintf("ServiceNames[?ends_with(@, '.%s.%s')] | [0]", f.Region(), service), "ec2",
		"describe-vpc-endpoint-services",
	)
	return Expand("service"), []string{Assign("service", find)}
}

// EndpointCommands are the commands that create interface endpoints for AWS services in the instance's subnet.
func EndpointCommands(f *facts.Facts, services ...string) []string {
	return EndpointsIn(f, []string{Word(f.SubnetID(), "subnet")}, services...)
}

// EndpointsIn creates them in subnets. Without a security group of their own they would have the VPC's default one,
// which does not let the nodes connect.
func EndpointsIn(f *facts.Facts, subnets []string, services ...string) []string {
	vpc := Word(f.VPCID(), "vpc")
	lines := []string{Assign("endpoints", Query(f,
		"GroupId", "ec2", "create-security-group", "--vpc-id", vpc, "--group-name",
		"vpc-endpoint-"+strings.ReplaceAll(services[0], ".", "-"), "--description",
		"VPC endpoints of AWS services, for Kubernetes nodes",
	))}
	groups := f.GroupIDs()
	if len(groups) == 0 {
		groups = []string{Expand("group")}
	}
	for _, group := range groups {
		lines = append(
			lines,
			AWS(f,
				"ec2", "authorize-security-group-ingress", "--group-id", Expand("endpoints"), "--protocol", "tcp",
				"--port", "443", "--source-group", group,
			),
		)
	}
	for _, service := range services {
		name, find := endpointService(f, service)
		lines = append(
			append(lines, find...),
			AWS(f, "ec2", "create-vpc-endpoint", slices.Concat(
				[]string{
					"--vpc-id", vpc, "--vpc-endpoint-type", "Interface", "--service-name", name, "--subnet-ids",
				}, subnets, []string{"--security-group-ids", Expand("endpoints"), "--private-dns-enabled"},
			)...),
		)
	}
	return lines
}

// EndpointText explains EndpointCommands.
const EndpointText = "create a VPC endpoint with a security group that lets this instance's groups connect, if the " +
	"VPC has no route to the internet and no such endpoint yet"

// Endpoint is the fix if an AWS service does not answer.
func Endpoint(f *facts.Facts, service string) []preflight.Fix {
	return []preflight.Fix{
		ByCommand(EndpointText, EndpointCommands(f, service)...),
		ByHand(
			"or, for errors of the service or throttling, see the AWS Health Dashboard, then deploy again, with a " +
				"longer preflight.retry_window if calls were throttled",
		),
	}
}

// StorageEndpointCommands are the commands that create the gateway endpoint for S3, where ECR keeps image layers.
func StorageEndpointCommands(f *facts.Facts) []string {
	table := ""
	if t := f.Tables.Of(f.SubnetID()); t != nil && f.TablesErr == nil {
		table = t.ID
	}
	var lines []string
	if table == "" {
		find := func(filters ...string) string {
			return Assign(
				"table",
				Query(f,
					"RouteTables[0].RouteTableId",
					"ec2",
					"describe-route-tables",
					append([]string{"--filters"}, filters...)...),
			)
		}
		lines = []string{
			find("Name=association.subnet-id,Values=" + Word(f.SubnetID(), "subnet")),
			`test "$table" != None || ` + find(
				"Name=vpc-id,Values="+Word(f.VPCID(), "vpc"), "Name=association.main,Values=true",
			),
		}
	}
	name, find := endpointService(f, "s3")
	return append(
		append(lines, find...),
		AWS(f, "ec2", "create-vpc-endpoint", "--vpc-id", Word(f.VPCID(), "vpc"), "--vpc-endpoint-type", "Gateway",
			"--service-name", name, "--route-table-ids", Word(table, "table")),
	)
}
