package store

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// tableOf returns the route table of a subnet: the one it is associated with, or the main one of the VPC. nil if there
// is none.
func (w *World) tableOf(s *Subnet) *RouteTable {
	i := slices.IndexFunc(w.RouteTables, func(t RouteTable) bool { return slices.Contains(t.Subnets, s.ID) })
	if i < 0 {
		i = slices.IndexFunc(w.RouteTables, func(t RouteTable) bool { return t.Main && t.VPC == s.VPC })
	}
	if i < 0 {
		return nil
	}
	return &w.RouteTables[i]
}

// InstanceRoutes returns the networks that route tables of instances' subnets deliver to instances, with the instances'
// addresses. EC2 drops packets to other addresses than the instance's own unless its source/destination check is off,
// and packets from such addresses unless a rule of its security groups admits their network: they are not members of a
// group.
func (w *World) InstanceRoutes() map[netip.Prefix]netip.Addr {
	routes := map[netip.Prefix]netip.Addr{}
	for _, sender := range w.Instances {
		subnet := Find(w.Subnets, sender.Subnet)
		if sender.State != Running || subnet == nil {
			continue
		}
		table := w.tableOf(subnet)
		if table == nil {
			continue
		}
		for _, route := range table.Routes {
			network, err := netip.ParsePrefix(route.Destination)
			target := Find(w.Instances, route.Instance)
			if err == nil && target != nil && target.State == Running && !*target.SourceDestCheck &&
				w.admitsAll(target, network) {
				routes[network] = target.Address
			}
		}
	}
	return routes
}

// admitsAll reports whether a security group of the instance admits all traffic from the network.
func (w *World) admitsAll(i *Instance, network netip.Prefix) bool {
	for _, id := range i.SecurityGroups {
		group := Find(w.SecurityGroups, id)
		if group == nil {
			continue
		}
		for _, rule := range group.Ingress {
			from, err := netip.ParsePrefix(rule.CIDR)
			if err == nil && rule.Protocol == "-1" && from.Bits() <= network.Bits() && from.Contains(network.Addr()) {
				return true
			}
		}
	}
	return false
}

// Code that both load balancing APIs share.

// HasInternetGateway reads the subnet's own route table, or else the main one of its VPC.
func (w *World) HasInternetGateway(s *Subnet) bool {
	t := w.tableOf(s)
	return t != nil && slices.ContainsFunc(t.Routes, func(r Route) bool { return strings.HasPrefix(r.Gateway, "igw-") })
}

// InstanceAddress is the address of an instance for the data path; false if it is not running.
func (w *World) InstanceAddress(id string) (netip.Addr, bool) {
	if i := Find(w.Instances, id); i != nil && i.State == Running {
		return i.Address, true
	}
	return netip.Addr{}, false
}

// SortedKeys returns a map's keys in order.
func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Zones are the availability zones of the subnets.
func (w *World) Zones() []string {
	var zones []string
	for _, s := range w.Subnets {
		zones = append(zones, s.AvailabilityZone)
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}
