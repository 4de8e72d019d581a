package account

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// fixedResolver is the address of AWS' DNS resolver in every VPC.
const fixedResolver = "169.254.169.253"

// checkDNS compares the DNS servers of VMs with the VPC's resolver. Another server may forward to it.
func (a *Account) checkDNS(ctx context.Context) []preflight.Finding {
	tables, err := a.routeTables(ctx)
	if err != nil {
		return []preflight.Finding{a.unseenFinding("dns_servers in "+a.File, err)}
	}
	resolvers := []string{}
	if table := tables.Of(a.Subnet1); table != nil {
		for _, network := range table.Destinations(resource.Route.IsLocal) {
			resolvers = append(resolvers, network.Addr().Next().Next().String())
		}
	}
	resolvers = append(resolvers, fixedResolver)
	malformed := func(address string) bool { _, err := netip.ParseAddr(address); return err != nil }
	isResolver := func(address string) bool { return slices.Contains(resolvers, address) }
	valid := len(a.DNSServers) > 0 && !slices.ContainsFunc(a.DNSServers, malformed)
	if valid && slices.ContainsFunc(a.DNSServers, isResolver) {
		return nil
	}
	finding := a.wrongVariable(a.vpc, "dns_servers", "["+resolvers[0]+"]", strings.Join(a.DNSServers, ", "),
		"VMs resolve no names, neither of AWS nor of registries")
	if valid {
		finding.Advisory = true
		finding.Why += ", unless these servers do it"
	}
	return []preflight.Finding{finding}
}

// checkAddresses are mistakes in the gateway and the reserved addresses of a node subnet. AWS reserves the first four
// addresses; the Director leaves out the first one, the gateway and the last one itself.
func (a *Account) checkAddresses(n int, id string, network netip.Prefix) []preflight.Finding {
	var findings []preflight.Finding
	gateway := network.Masked().Addr().Next()
	if got := a.gateways()[n]; got != gateway.String() {
		findings = append(findings, a.wrongVariable(id, fmt.Sprintf("subnet%d_gateway", n+1), gateway.String(), got,
			"VMs have no way out of the subnet: its router has the first address"))
	}
	second := gateway.Next()
	third := second.Next()
	name, list := fmt.Sprintf("subnet%d_reserved", n+1), a.reserved()[n]
	var ranges []addressRange
	for _, text := range list {
		r, err := parseRange(text)
		if err != nil || !network.Contains(r.from) || !network.Contains(r.to) {
			findings = append(findings, a.wrongVariable(id, name, "addresses and ranges of "+network.String(), text,
				"the Director refuses the cloud config"))
		}
		ranges = append(ranges, r)
	}
	for _, address := range []netip.Addr{second, third} {
		if !slices.ContainsFunc(ranges, func(r addressRange) bool { return r.contains(address) }) {
			return append(findings, a.wrongVariable(id, name,
				fmt.Sprintf("[%s-%s, and what else is not the Director's]", second, third), strings.Join(list, ", "),
				"AWS has these addresses, and EC2 refuses a VM with one of them"))
		}
	}
	return findings
}

// addressRange is an entry of reserved: an address, two with a dash between them, or a network.
type addressRange struct{ from, to netip.Addr }

func (r addressRange) contains(address netip.Addr) bool {
	return r.from.IsValid() && r.from.Compare(address) <= 0 && address.Compare(r.to) <= 0
}

func parseRange(text string) (r addressRange, err error) {
	if network, err := netip.ParsePrefix(text); err == nil {
		r.from = network.Masked().Addr()
		last := r.from.AsSlice()
		for bit := network.Bits(); bit < 8*len(last); bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		r.to, _ = netip.AddrFromSlice(last)
		return r, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if r.from, err = netip.ParseAddr(strings.TrimSpace(from)); err != nil || !isRange {
		r.to = r.from
		return r, err
	}
	r.to, err = netip.ParseAddr(strings.TrimSpace(to))
	return r, err
}
