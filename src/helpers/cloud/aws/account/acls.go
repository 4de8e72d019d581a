package account

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// Ports to which answers are sent. Nodes use more than those of Linux' net.ipv4.ip_local_port_range: flannel and
// kube-proxy masquerade with random-fully, for which the kernel chooses any from 1024 on (nf_nat_l4proto_unique_tuple
// in net/netfilter/nf_nat_core.c). The ports of Services are among them.
var (
	nodeAnswers     = ports{"tcp", 1024, 65535, "answers to nodes and pods"}
	natAnswers      = ports{"tcp", 1024, 65535, "answers to a NAT gateway"}
	balancerAnswers = ports{"tcp", 1024, 65535, "answers to load balancers and their clients"}
	https           = ports{"tcp", 443, 443, "AWS and registries"}
	natHTTPS        = ports{"tcp", 443, 443, "AWS and registries, by a NAT gateway"}
	servicePorts    = ports{"tcp", resource.FirstNodePort, resource.LastNodePort, "ports of Services"}
)

// fewPorts is how many ports a rule may deny to answers. Accounts deny single ports to the internet on purpose, such as
// 3389 (control EC2.21 of AWS Security Hub); 10 of 64,512 are the source port of one connection in 6,000.
const fewPorts = 10

// traffic is what a subnet's network ACL must let through, to (egress) or from a network.
type traffic struct {
	ports

	egress  bool
	network netip.Prefix
	// advisory: whether the subnet has this traffic is not known.
	advisory bool
}

func (t traffic) String() string {
	direction := "from"
	if t.egress {
		direction = "to"
	}
	return fmt.Sprintf("%s (%s) %s %s", t.ports, t.what, direction, t.network)
}

func (t traffic) direction() string {
	if t.egress {
		return "egress"
	}
	return "ingress"
}

// isAnswers reports whether its ports are chosen from many for each connection.
func (t traffic) isAnswers() bool {
	return slices.Contains([]ports{nodeAnswers, natAnswers, balancerAnswers}, t.ports)
}

func (t traffic) why() string {
	if t.advisory {
		return "nodes have no way to AWS and registries, if their NAT gateway is in this subnet"
	}
	return "nodes need it, or load balancers that forward to them"
}

// checkACLs looks for what the network ACLs of the subnets block. They are stateless, so answers need rules too. Rules
// for the Director's subnet, the DNS servers of others and ports of Services on load balancers are not known here.
func (a *Account) checkACLs(ctx context.Context) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	var acls []types.NetworkAcl
	pages := ec2.NewDescribeNetworkAclsPaginator(a.ec2, &ec2.DescribeNetworkAclsInput{Filters: inVPC(a.vpc)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return outcome, err
		}
		acls = append(acls, page.NetworkAcls...)
	}
	tables, err := a.routeTables(ctx)
	if err != nil {
		return outcome, err
	}
	for _, id := range a.subnets() {
		for i := range acls {
			associated := func(s types.NetworkAclAssociation) bool { return aws.ToString(s.SubnetId) == id }
			if slices.ContainsFunc(acls[i].Associations, associated) {
				outcome.Findings = append(outcome.Findings, a.blocked(&acls[i], id, tables)...)
			}
		}
	}
	outcome.Note = fmt.Sprintf("%d subnets", len(a.subnets()))
	return outcome, nil
}

// required is the traffic of a subnet. Packets within a subnet pass no network ACL.
func (a *Account) required(subnet string, tables resource.RouteTables) []traffic {
	isNode, isPublic := slices.Contains(a.nodeSubnets(), subnet), slices.Contains(a.PublicSubnets, subnet)
	var list []traffic
	add := func(p ports, egress bool, network netip.Prefix) {
		list = append(list, traffic{ports: p, egress: egress, network: network})
	}
	if isNode {
		for _, network := range reachable(tables.Of(subnet)) {
			add(https, true, network)
			add(nodeAnswers, false, network)
		}
	}
	if isPublic {
		add(balancerAnswers, true, resource.AnyAddress)
	}
	if isPublic && a.usesNAT(tables) { // whose subnet may be another one
		list = append(
			list, traffic{natHTTPS, true, resource.AnyAddress, true},
			traffic{natAnswers, false, resource.AnyAddress, true},
		)
	}
	for _, other := range a.subnets() {
		network := a.subnet(other).Network
		if other == subnet {
			continue
		}
		if isNode && slices.Contains(a.nodeSubnets(), other) {
			for _, p := range append(a.nodePorts(), nodeAnswers) {
				add(p, true, network)
				add(p, false, network)
			}
		}
		if isNode && slices.Contains(a.PublicSubnets, other) {
			add(servicePorts, false, network)
			add(balancerAnswers, true, network)
		}
		if isPublic && slices.Contains(a.nodeSubnets(), other) {
			add(servicePorts, true, network)
			add(balancerAnswers, false, network)
			if a.usesNAT(tables) {
				list = append(list, traffic{natHTTPS, false, network, true})
			}
		}
	}
	return list
}

// reachable are the networks that a subnet's nodes connect to at AWS' addresses: without routes to everywhere only
// those of the VPC, where its endpoints are.
func reachable(table *resource.RouteTable) []netip.Prefix {
	if table == nil {
		return []netip.Prefix{resource.AnyAddress}
	}
	everything := func(resource.Route) bool { return true }
	networks := table.Destinations(resource.Route.IsLocal)
	if len(networks) > 0 && !table.LeadsAnywhere(everything) {
		return networks
	}
	return []netip.Prefix{resource.AnyAddress}
}

// usesNAT reports whether packets of nodes take a NAT gateway.
func (a *Account) usesNAT(tables resource.RouteTables) bool {
	return slices.ContainsFunc(a.nodeSubnets(), func(id string) bool {
		table := tables.Of(id)
		return table != nil && slices.ContainsFunc(table.Routes, resource.Route.ToNAT)
	})
}

// blocked are the findings about one subnet: for each, a rule in front of the one that blocks.
func (a *Account) blocked(acl *types.NetworkAcl, subnet string, tables resource.RouteTables) []preflight.Finding {
	id := aws.ToString(acl.NetworkAclId)
	resource := subnet + ", network ACL " + id
	slices.SortFunc(acl.Entries, func(x, y types.NetworkAclEntry) int {
		return cmp.Compare(aws.ToInt32(x.RuleNumber), aws.ToInt32(y.RuleNumber))
	})
	var findings []preflight.Finding
	for _, t := range a.required(subnet, tables) {
		entries := acl.Entries
		if t.isAnswers() {
			entries = slices.DeleteFunc(slices.Clone(entries), deniesFew)
		}
		blocking := denies(entries, t)
		if blocking == 0 {
			few := denies(acl.Entries, t)
			finding := fewDenied(resource, few, t)
			same := func(f preflight.Finding) bool { return f.Found == finding.Found }
			if few != 0 && !slices.ContainsFunc(findings, same) { // once for all networks
				findings = append(findings, finding)
			}
			continue
		}
		found := fmt.Sprintf("rule %d denies it", blocking)
		if blocking == lastEntry {
			found = "no rule allows it"
		}
		number := freeNumber(acl.Entries, t.egress, blocking)
		fix := preflight.Fix{Text: fmt.Sprintf("Renumber the rules of %s, so that one fits before %d.", id, blocking)}
		if number > 0 {
			fix = preflight.Fix{Text: "Add a rule:", Commands: []string{a.allowEntry(id, number, t)}}
			acl.Entries = append(acl.Entries, entry(number, t)) // so that the next finding gets another number
			slices.SortFunc(acl.Entries, func(x, y types.NetworkAclEntry) int {
				return cmp.Compare(aws.ToInt32(x.RuleNumber), aws.ToInt32(y.RuleNumber))
			})
		}
		findings = append(findings, preflight.Finding{
			Resource: resource, Wanted: "it allows " + t.String(), Found: found,
			Why: t.why(), Advisory: t.advisory, Fix: []preflight.Fix{fix},
		})
	}
	return findings
}

// fewDenied is the finding about a rule that denies few of the ports of answers. No command adds a rule in front of it,
// which would undo a control of the account.
func fewDenied(resource string, number int32, t traffic) preflight.Finding {
	return preflight.Finding{
		Resource: resource, Wanted: "it allows " + t.String(),
		Found: fmt.Sprintf("%s rule %d denies a few of these ports", t.direction(), number),
		Why:   "the few connections that have such a source port time out", Advisory: true,
		Fix: []preflight.Fix{{Text: "Delete the rule, or keep it if it is a control of your account."}},
	}
}

// lastEntry is the number of the entry that denies what no rule allows.
const lastEntry = 32767

// protocols are the numbers by which network ACLs name protocols.
var protocols = map[string]string{"tcp": "6", "udp": "17"}

// denies returns the number of the first rule that denies a part of the traffic, 0 if none does. Rules that deny a part
// of the network only are left out: an ACL may block single addresses. Those that allow one count together.
func denies(entries []types.NetworkAclEntry, t traffic) int32 {
	starts := []int32{t.from} // of ranges of ports to which the same rules apply
	for _, e := range entries {
		from, to := portRange(e)
		for _, port := range []int32{from, to + 1} {
			if t.from < port && port <= t.to {
				starts = append(starts, port)
			}
		}
	}
	var blocking int32
	for _, port := range starts {
		if number := deniesPort(entries, t, port); number != 0 && (blocking == 0 || number < blocking) {
			blocking = number
		}
	}
	return blocking
}

// deniesPort is denies for one of the ports. Rules are in order.
func deniesPort(entries []types.NetworkAclEntry, t traffic, port int32) int32 {
	var allowed []netip.Prefix
	for _, e := range entries {
		network, err := netip.ParsePrefix(aws.ToString(e.CidrBlock))
		protocol := aws.ToString(e.Protocol)
		from, to := portRange(e)
		if err != nil || aws.ToBool(e.Egress) != t.egress || port < from || to < port ||
			protocol != "-1" && protocol != protocols[t.protocol] {
			continue
		}
		if e.RuleAction == types.RuleActionAllow {
			allowed = append(allowed, network)
			if resource.Cover(allowed, t.network) {
				return 0
			}
		} else if resource.Cover([]netip.Prefix{network}, t.network) {
			return aws.ToInt32(e.RuleNumber)
		}
	}
	return lastEntry
}

func deniesFew(e types.NetworkAclEntry) bool {
	from, to := portRange(e)
	return e.RuleAction == types.RuleActionDeny && to-from < fewPorts
}

// portRange are the ports of a rule.
func portRange(e types.NetworkAclEntry) (from, to int32) {
	if e.PortRange == nil || aws.ToString(e.Protocol) == "-1" {
		return 0, 65535
	}
	return aws.ToInt32(e.PortRange.From), aws.ToInt32(e.PortRange.To)
}

// freeNumber is the highest free number of a rule before another one, 0 if there is none.
func freeNumber(entries []types.NetworkAclEntry, egress bool, before int32) int32 {
	for number := before - 1; number > 0; number-- {
		taken := func(e types.NetworkAclEntry) bool {
			return aws.ToBool(e.Egress) == egress && aws.ToInt32(e.RuleNumber) == number
		}
		if !slices.ContainsFunc(entries, taken) {
			return number
		}
	}
	return 0
}

func entry(number int32, t traffic) types.NetworkAclEntry {
	return types.NetworkAclEntry{
		RuleNumber: &number, Egress: &t.egress, RuleAction: types.RuleActionAllow,
		Protocol: aws.String(protocols[t.protocol]), CidrBlock: aws.String(t.network.String()),
		PortRange: &types.PortRange{From: &t.from, To: &t.to},
	}
}

// allowEntry is the command that adds a rule. Repeated it is refused, as the number is taken.
func (a *Account) allowEntry(acl string, number int32, t traffic) string {
	return a.awsEC2("create-network-acl-entry") + " --network-acl-id " + acl + " --" + t.direction() +
		" --rule-number " + strconv.Itoa(int(number)) + " --rule-action allow --protocol " + t.protocol +
		" --port-range " + fmt.Sprintf("From=%d,To=%d", t.from, t.to) + " --cidr-block " + t.network.String()
}
