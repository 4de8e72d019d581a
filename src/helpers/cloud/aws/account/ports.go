package account

import (
	"context"
	"fmt"
	"slices"

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
func (a *Account) closed(rules resource.Rules) (list []ports, uncertain []ports) {
	for _, p := range a.nodePorts() {
		opening := p.opening(rules)
		switch {
		case opening.Admit(a.group) || a.admitNodes(opening):
		case len(opening.Lists()) > 0:
			uncertain = append(uncertain, p)
		default:
			list = append(list, p)
		}
	}
	return list, uncertain
}

// admitNodes reports whether rules admit the networks of all node subnets.
func (a *Account) admitNodes(rules resource.Rules) bool {
	closed := func(id string) bool { return !resource.Cover(rules.Networks(), a.subnet(id).Network) }
	return !slices.ContainsFunc(a.nodeSubnets(), closed)
}

// checkPorts names the single ports that rules of the nodes' group leave closed between nodes, in both directions.
func (a *Account) checkPorts(ctx context.Context) (preflight.Outcome, error) {
	group, err := a.describe(ctx, a.group)
	if err != nil {
		return preflight.Outcome{}, err
	}
	if group == nil {
		return preflight.Outcome{Skip: "the nodes' security group does not exist yet"}, nil
	}
	outcome := preflight.Outcome{Note: a.group}
	for _, direction := range []struct {
		name, action string
		rules        resource.Rules
	}{
		{"incoming", "authorize-security-group-ingress", group.Ingress},
		{"outgoing", "authorize-security-group-egress", group.Egress},
	} {
		closed, uncertain := a.closed(direction.rules)
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

// opening are the rules that open a single port.
func (p ports) opening(rules resource.Rules) resource.Rules { return rules.At(p.protocol, int(p.from)) }

func (p ports) String() string {
	if p.from == p.to {
		return fmt.Sprintf("%s %d", p.protocol, p.from)
	}
	return fmt.Sprintf("%s %d-%d", p.protocol, p.from, p.to)
}
