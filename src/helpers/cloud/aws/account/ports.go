package account

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// nodePorts are the ports at which nodes of a cluster reach each other (docs/architecture.md). Control VMs and workers
// have one security group.
func (a *Account) nodePorts() []ports {
	list := []ports{
		{"tcp", 6443, 6443, "nodes to the API"},
		{"tcp", 6444, 6444, "nodes join"},
		{"tcp", 10250, 10250, "API to kubelets: logs and exec"},
		{"tcp", 2379, 2379, "clients of etcd, between control VMs"},
		{"tcp", 2380, 2380, "etcd, between control VMs"},
		{"tcp", 8853, 8853, "bosh-dns asks for the health of VMs"},
	}
	if !a.Policy.CloudRoutes {
		list = append(list, ports{"udp", 8472, 8472, "VXLAN: packets between pods"})
	}
	return list
}

// closed are the ports that the rules of a security group, for one direction, do not open for its own members: by
// the group, or by the networks of all node subnets. What is in prefix lists is not read, so uncertain are the closed
// ports of which a rule has one.
func (a *Account) closed(
	permissions []types.IpPermission, networks map[string]netip.Prefix,
) (list []ports, uncertain []ports) {
	for _, p := range a.nodePorts() {
		opening := openingPorts(permissions, p)
		switch {
		case a.ownMembers(opening) || a.ownNetworks(opening, networks):
		case len(opening.PrefixListIds) > 0:
			uncertain = append(uncertain, p)
		default:
			list = append(list, p)
		}
	}
	return list, uncertain
}

// openingPorts are all rules that open ports together.
func openingPorts(permissions []types.IpPermission, p ports) types.IpPermission {
	var opening types.IpPermission
	for _, permission := range permissions {
		if opensPorts(permission, p) {
			opening.UserIdGroupPairs = append(opening.UserIdGroupPairs, permission.UserIdGroupPairs...)
			opening.IpRanges = append(opening.IpRanges, permission.IpRanges...)
			opening.PrefixListIds = append(opening.PrefixListIds, permission.PrefixListIds...)
		}
	}
	return opening
}

func opensPorts(permission types.IpPermission, p ports) bool {
	protocol := aws.ToString(permission.IpProtocol)
	return protocol == "-1" || protocol == p.protocol &&
		aws.ToInt32(permission.FromPort) <= p.from && p.to <= aws.ToInt32(permission.ToPort)
}

func (a *Account) ownMembers(permission types.IpPermission) bool {
	return slices.ContainsFunc(
		permission.UserIdGroupPairs, func(g types.UserIdGroupPair) bool { return aws.ToString(g.GroupId) == a.group },
	)
}

func (a *Account) ownNetworks(permission types.IpPermission, networks map[string]netip.Prefix) bool {
	admitted := rangesOf(permission)
	closed := func(id string) bool { return !resource.Cover(admitted, networks[id]) }
	return !slices.ContainsFunc(a.nodeSubnets(), closed)
}

// rangesOf are the IPv4 networks of rules.
func rangesOf(permission types.IpPermission) []netip.Prefix {
	var networks []netip.Prefix
	for _, r := range permission.IpRanges {
		if network, err := netip.ParsePrefix(aws.ToString(r.CidrIp)); err == nil {
			networks = append(networks, network)
		}
	}
	return networks
}

// checkPorts names the single ports that rules of the nodes' group leave closed between nodes, in both directions.
func (a *Account) checkPorts(ctx context.Context) (preflight.Outcome, error) {
	group, err := a.describe(ctx, a.group)
	if err != nil || group == nil {
		return preflight.Outcome{Skip: "the nodes' security group does not exist yet"}, err
	}
	networks, err := a.networks(ctx)
	if err != nil {
		return preflight.Outcome{}, err
	}
	outcome := preflight.Outcome{Note: a.group}
	for _, direction := range []struct {
		name, action string
		permissions  []types.IpPermission
	}{
		{"incoming", "authorize-security-group-ingress", group.IpPermissions},
		{"outgoing", "authorize-security-group-egress", group.IpPermissionsEgress},
	} {
		closed, uncertain := a.closed(direction.permissions, networks)
		for _, p := range slices.Concat(closed, uncertain) {
			finding := preflight.Finding{
				Resource: a.group, Wanted: "a rule for " + direction.name + " traffic between nodes at " + p.String(),
				Found: "none", Why: p.what, Fix: []preflight.Fix{{
					Text: "Allow it:", Commands: []string{
						a.awsEC2(direction.action) + " --group-id " + a.group + " --ip-permissions " +
							permissionWord(p, a.group),
					},
				}},
			}
			if slices.Contains(uncertain, p) {
				finding.Found, finding.Advisory = "a rule with a prefix list, which is not read", true
				finding.Fix[0].Text = "Allow it, unless the networks of all node subnets are in the prefix list:"
			}
			outcome.Findings = append(outcome.Findings, finding)
		}
	}
	return outcome, nil
}

// permissionWord is a rule in the shorthand of the AWS CLI.
func permissionWord(p ports, group string) string {
	return fmt.Sprintf(
		"'IpProtocol=%s,FromPort=%d,ToPort=%d,UserIdGroupPairs=[{GroupId=%s}]'", p.protocol, p.from, p.to, group,
	)
}

// ports is a range of ports of a protocol.
type ports struct {
	protocol string // tcp or udp
	from, to int32
	what     string
}

func (p ports) String() string {
	if p.from == p.to {
		return fmt.Sprintf("%s %d", p.protocol, p.from)
	}
	return fmt.Sprintf("%s %d-%d", p.protocol, p.from, p.to)
}

// networks are the CIDRs of the subnets.
func (a *Account) networks(ctx context.Context) (map[string]netip.Prefix, error) {
	out, err := a.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: a.subnets()})
	if err != nil {
		return nil, err
	}
	networks := map[string]netip.Prefix{}
	for _, s := range out.Subnets {
		if networks[aws.ToString(s.SubnetId)], err = netip.ParsePrefix(aws.ToString(s.CidrBlock)); err != nil {
			return nil, err
		}
	}
	return networks, nil
}
