package account

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/preflight"
)

// nodePorts are the ports at which nodes of a cluster reach each other (docs/architecture.md). Control VMs and workers
// have one security group.
func (a *Account) nodePorts() []ports {
	list := []ports{
		{"tcp", 6443, 6443, "nodes to the API"},
		{"tcp", 6444, 6444, "nodes join"},
		{"tcp", 10250, 10250, "API to kubelets: logs and exec"},
		{"tcp", 2379, 2380, "etcd, between control VMs"},
		{"tcp", 8853, 8853, "bosh-dns asks for the health of VMs"},
	}
	if !a.Policy.CloudRoutes {
		list = append(list, ports{"udp", 8472, 8472, "VXLAN: packets between pods"})
	}
	return list
}

// closed are the ports that the rules of a security group, for one direction, do not open for its own members: by
// the group, or by the networks of all node subnets.
func (a *Account) closed(permissions []types.IpPermission, networks map[string]netip.Prefix) []ports {
	var list []ports
	for _, p := range a.nodePorts() {
		opens := func(permission types.IpPermission) bool {
			return opensPorts(permission, p) && (a.ownMembers(permission) || a.ownNetworks(permission, networks))
		}
		if !slices.ContainsFunc(permissions, opens) {
			list = append(list, p)
		}
	}
	return list
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
	for _, id := range a.nodeSubnets() {
		covers := func(r types.IpRange) bool {
			network, err := netip.ParsePrefix(aws.ToString(r.CidrIp))
			return err == nil && network.Bits() <= networks[id].Bits() && network.Contains(networks[id].Addr())
		}
		if !slices.ContainsFunc(permission.IpRanges, covers) {
			return false
		}
	}
	return true
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
		for _, p := range a.closed(direction.permissions, networks) {
			outcome.Findings = append(outcome.Findings, preflight.Finding{
				Resource: a.group, Wanted: "a rule for " + direction.name + " traffic between nodes at " + p.String(),
				Found: "none", Why: p.what, Fix: []preflight.Fix{{
					Text: "Allow it:", Commands: []string{
						a.awsEC2(direction.action) + " --group-id " + a.group + " --ip-permissions " +
							permissionWord(p, a.group),
					},
				}},
			})
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
