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

	"kubernetes-release/preflight"
)

// Ports to which answers are sent. Nodes use more than those of Linux' net.ipv4.ip_local_port_range: flannel and
// kube-proxy masquerade with random-fully, for which the kernel chooses any from 1024 on (nf_nat_l4proto_unique_tuple
// in net/netfilter/nf_nat_core.c). The ports of Services are among them.
var (
	nodeAnswers     = ports{"tcp", 1024, 65535, "answers to nodes and pods"}
	balancerAnswers = ports{"tcp", 1024, 65535, "answers to load balancers and their clients"}
	https           = ports{"tcp", 443, 443, "AWS and registries"}
	servicePorts    = ports{"tcp", 30000, 32767, "ports of Services"}
)

// traffic is what a subnet's network ACL must let through, to (egress) or from a network.
type traffic struct {
	ports

	egress  bool
	network netip.Prefix
}

func (t traffic) String() string {
	direction := "from"
	if t.egress {
		direction = "to"
	}
	return fmt.Sprintf("%s (%s) %s %s", t.ports, t.what, direction, t.network)
}

// checkACLs looks for what the network ACLs of the subnets block. They are stateless, so answers need rules too. Rules
// for the Director's subnet, the DNS servers of others and ports of Services on load balancers are not known here.
func (a *Account) checkACLs(ctx context.Context) (preflight.Outcome, error) {
	var outcome preflight.Outcome
	networks, err := a.networks(ctx)
	if err != nil {
		return outcome, err
	}
	var acls []types.NetworkAcl
	pages := ec2.NewDescribeNetworkAclsPaginator(a.ec2, &ec2.DescribeNetworkAclsInput{Filters: inVPC(a.vpc)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return outcome, err
		}
		acls = append(acls, page.NetworkAcls...)
	}
	for _, id := range a.subnets() {
		for i := range acls {
			associated := func(s types.NetworkAclAssociation) bool { return aws.ToString(s.SubnetId) == id }
			if slices.ContainsFunc(acls[i].Associations, associated) {
				outcome.Findings = append(outcome.Findings, a.blocked(&acls[i], id, networks)...)
			}
		}
	}
	outcome.Note = fmt.Sprintf("%d subnets", len(networks))
	return outcome, nil
}

// required is the traffic of a subnet. Packets within a subnet pass no network ACL.
func (a *Account) required(subnet string, networks map[string]netip.Prefix) []traffic {
	all := netip.MustParsePrefix(anywhere)
	isNode := slices.Contains(a.nodeSubnets(), subnet)
	var list []traffic
	if isNode {
		list = append(list, traffic{https, true, all}, traffic{nodeAnswers, false, all})
	}
	if slices.Contains(a.PublicSubnets, subnet) {
		list = append(list, traffic{balancerAnswers, true, all})
	}
	for _, other := range a.subnets() {
		network := networks[other]
		if other == subnet {
			continue
		}
		if isNode && slices.Contains(a.nodeSubnets(), other) {
			for _, p := range append(a.nodePorts(), nodeAnswers) {
				list = append(list, traffic{p, true, network}, traffic{p, false, network})
			}
		}
		if isNode && slices.Contains(a.PublicSubnets, other) {
			list = append(list, traffic{servicePorts, false, network}, traffic{balancerAnswers, true, network})
		}
		if slices.Contains(a.PublicSubnets, subnet) && slices.Contains(a.nodeSubnets(), other) {
			list = append(list, traffic{servicePorts, true, network}, traffic{balancerAnswers, false, network})
		}
	}
	return list
}

// blocked are the findings about one subnet: for each, a rule in front of the one that blocks.
func (a *Account) blocked(acl *types.NetworkAcl, subnet string, networks map[string]netip.Prefix) []preflight.Finding {
	id := aws.ToString(acl.NetworkAclId)
	slices.SortFunc(acl.Entries, func(x, y types.NetworkAclEntry) int {
		return cmp.Compare(aws.ToInt32(x.RuleNumber), aws.ToInt32(y.RuleNumber))
	})
	var findings []preflight.Finding
	for _, t := range a.required(subnet, networks) {
		blocking := denies(acl.Entries, t)
		if blocking == 0 {
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
			Resource: subnet + ", network ACL " + id, Wanted: "it allows " + t.String(), Found: found,
			Why: "nodes need it, or load balancers that forward to them", Fix: []preflight.Fix{fix},
		})
	}
	return findings
}

// lastEntry is the number of the entry that denies what no rule allows.
const lastEntry = 32767

// protocols are the numbers by which network ACLs name protocols.
var protocols = map[string]string{"tcp": "6", "udp": "17"}

// denies returns the number of the rule that denies a part of the traffic, 0 if none does. Rules are in order. Those
// that match a part of the network only are left out: an ACL may block single addresses.
func denies(entries []types.NetworkAclEntry, t traffic) int32 {
	left := []ports{t.ports}
	for _, e := range entries {
		network, err := netip.ParsePrefix(aws.ToString(e.CidrBlock))
		protocol := aws.ToString(e.Protocol)
		if err != nil || aws.ToBool(e.Egress) != t.egress || network.Bits() > t.network.Bits() ||
			!network.Contains(t.network.Addr()) || protocol != "-1" && protocol != protocols[t.protocol] {
			continue
		}
		from, to := int32(0), int32(65535)
		if e.PortRange != nil && protocol != "-1" {
			from, to = aws.ToInt32(e.PortRange.From), aws.ToInt32(e.PortRange.To)
		}
		var rest []ports
		for _, p := range left {
			if p.to < from || to < p.from {
				rest = append(rest, p)
				continue
			}
			if e.RuleAction == types.RuleActionDeny {
				return aws.ToInt32(e.RuleNumber)
			}
			if p.from < from {
				rest = append(rest, ports{p.protocol, p.from, from - 1, p.what})
			}
			if to < p.to {
				rest = append(rest, ports{p.protocol, to + 1, p.to, p.what})
			}
		}
		if left = rest; len(left) == 0 {
			return 0
		}
	}
	return lastEntry
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
	direction := "--ingress"
	if t.egress {
		direction = "--egress"
	}
	return a.awsEC2("create-network-acl-entry") + " --network-acl-id " + acl + " " + direction + " --rule-number " +
		strconv.Itoa(int(number)) + " --rule-action allow --protocol " + t.protocol + " --port-range " +
		fmt.Sprintf("From=%d,To=%d", t.from, t.to) + " --cidr-block " + t.network.String()
}
