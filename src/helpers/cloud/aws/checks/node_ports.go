package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "node-ports",
	rank:     240,
	title:    "load balancers can connect to the node",
	severity: preflight.Warn,
	Roles:    both,
	section:  sectionConfig,
	Needs:    facts.FromGroups | fromVPC,
	run:      checkNodePorts,
	fix: "With `DisableSecurityGroupIngress` in the property `config`: open the nodes' security group to " +
		"load balancers.",
})

// nodePorts are the ports of Services on nodes, to which load balancers send, and the rules that open them.
type nodePorts struct {
	first, last int
	rules       resource.Rules
}

// nodePortsOf returns Kubernetes' default range if the cluster's is not known.
func nodePortsOf(f *facts.Facts) nodePorts {
	first, last, known := f.Settings.NodePorts.Ports()
	if !known {
		first, last = resource.FirstNodePort, resource.LastNodePort
	}
	return nodePorts{first, last, ingressOf(f.Groups)}
}

// ingressOf are the rules of all groups for incoming traffic.
func ingressOf(groups []resource.SecurityGroup) resource.Rules {
	var rules resource.Rules
	for _, g := range groups {
		rules = append(rules, g.Ingress...)
	}
	return rules
}

// checkNodePorts: with DisableSecurityGroupIngress the operator opens the nodes to load balancers: to their security
// group, or to the networks of the subnets that the cloud controller attaches them to.
func checkNodePorts(f *facts.Facts) preflight.Outcome {
	ports := nodePortsOf(f)
	switch {
	case !f.Conf.NoIngressManagement:
		return passed("the cloud controller opens them")
	case f.MetadataErr != nil:
		return skipped(facts.NoMetadata)
	case f.GroupsErr != nil:
		return skipped("%s", facts.WhyMissing("security groups", f.GroupsErr))
	case len(f.Groups) == 0:
		return instanceMissing(f)
	case ports.admitBalancers(f.Conf.ElbSecurityGroup):
		return passed("%s", f.Conf.ElbSecurityGroup)
	case ports.admit(resource.AnyAddress):
		return passed("%s", resource.AnyAddress)
	}
	lists, seen := ports.sources()
	networks, why := balancerNetworks(f)
	closed := slices.DeleteFunc(slices.Clone(networks), ports.admit)
	switch {
	case len(networks) > 0 && len(closed) == 0:
		return passed("%s", joinNetworks(networks))
	case len(lists) > 0:
		return skipped("what is in %s is not read; load balancers must be in it", strings.Join(lists, ", "))
	case why != "" && len(seen) > 0:
		return skipped("%s; the rules for NodePorts admit %s", why, joinNetworks(seen))
	}
	return found(ports.closed(f, closed))
}

// closed is the finding if load balancers cannot connect. The networks are those that no rule admits, if they are
// known.
func (n nodePorts) closed(f *facts.Facts, networks []netip.Prefix) preflight.Finding {
	var ids []string
	for _, g := range f.Groups {
		ids = append(ids, g.ID)
	}
	allow := func(source ...string) string {
		return fixes.AWS(f, "ec2", "authorize-security-group-ingress", append([]string{
			"--group-id", fixes.Word(f.ManagedGroup(ids), "group"), "--protocol", "tcp", "--port",
			fmt.Sprintf("%d-%d", n.first, n.last),
		}, source...)...)
	}
	seen, text, lines := "none", "allow the networks of the load balancers' subnets to connect to them", []string{}
	for _, network := range networks {
		lines = append(lines, allow("--cidr", network.String()))
	}
	if len(networks) > 0 {
		seen = "none for " + joinNetworks(networks)
	} else {
		lines = append(lines, allow("--cidr", fixes.Expand("cidr")))
	}
	if id := f.Conf.ElbSecurityGroup; id != "" {
		text = "allow the load balancers' security group to connect to them"
		lines = []string{allow("--source-group", id)}
	}
	fix := fixes.ByCommand(text, lines...)
	if f.GroupsErr == nil && f.ManagedGroup(ids) == "" {
		fix = fixes.OwnGroupFirst(f)
	}
	return preflight.Finding{
		Resource: strings.Join(ids, ", "),
		Wanted: fmt.Sprintf(
			"a rule that allows load balancers to connect to ports %d to %d", n.first, n.last,
		),
		Found: seen,
		Why: "DisableSecurityGroupIngress is set, so the cloud controller does not open the nodes, and load " +
			"balancers would reach none.",
		Eventual: true,
		Fix: []preflight.Fix{
			fix,
			fixes.ByHand("or remove DisableSecurityGroupIngress from the property config of the job cloud-provider"),
		},
	}
}

// balancerNetworks are those of the subnets that load balancers would be attached to; why is the reason if they are
// unknown. Without public-subnet-route there are no internet-facing ones.
func balancerNetworks(f *facts.Facts) (networks []netip.Prefix, why string) {
	if !f.IsControl() {
		return nil, "a worker does not know the subnets of load balancers"
	}
	if why := f.WhyNoChoice(); why != "" {
		return nil, why
	}
	for _, internal := range []bool{false, true} {
		if !internal && f.Request.Checks["public-subnet-route"] == preflight.Off {
			continue
		}
		for _, id := range f.Choices().Choose(internal).IDs() {
			if s := f.Subnet(id); s != nil && s.Network.IsValid() {
				networks = append(networks, s.Network)
			}
		}
	}
	if len(networks) == 0 {
		return nil, "there is no subnet for load balancers"
	}
	slices.SortFunc(networks, netip.Prefix.Compare)
	return slices.Compact(networks), ""
}

// admitBalancers reports whether rules admit a security group to all NodePorts.
func (n nodePorts) admitBalancers(id string) bool {
	return id != "" && n.each(func(rules resource.Rules) bool { return rules.Admit(id) })
}

// admit reports whether rules admit a network to all NodePorts.
func (n nodePorts) admit(network netip.Prefix) bool {
	return n.each(func(rules resource.Rules) bool { return resource.Cover(rules.Networks(), network) })
}

// sources are the prefix lists with which rules admit addresses to all NodePorts, and the networks if they do so
// without lists.
func (n nodePorts) sources() (lists []string, networks []netip.Prefix) {
	all := n.each(func(rules resource.Rules) bool {
		networks, lists = append(networks, rules.Networks()...), append(lists, rules.Lists()...)
		return len(rules.Networks())+len(rules.Lists()) > 0
	})
	if !all {
		return nil, nil
	}
	slices.SortFunc(networks, netip.Prefix.Compare)
	slices.Sort(lists)
	return slices.Compact(lists), slices.Compact(networks)
}

// each reports whether something is true of the rules for each NodePort.
func (n nodePorts) each(admits func(resource.Rules) bool) bool {
	return n.rules.Each("tcp", n.first, n.last, admits)
}

func joinNetworks(networks []netip.Prefix) string {
	list := make([]string, 0, len(networks))
	for _, n := range networks {
		list = append(list, n.String())
	}
	return strings.Join(list, ", ")
}
