package store

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// Tag is a tag in requests and responses.
type Tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

// List returns the tags in the order of their keys.
func (t Tags) List() []Tag {
	list := make([]Tag, 0, len(t))
	for key, value := range t {
		list = append(list, Tag{key, value})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Key < list[j].Key })
	return list
}

// AddressInUse returns the owner of a private address, "" if it is free.
func (w *World) AddressInUse(a netip.Addr) string {
	for _, i := range w.Instances {
		if i.Address == a && i.State != Terminated {
			return i.ID
		}
	}
	for _, l := range w.ClassicLoadBalancers {
		if slices.Contains(SortedAddresses(l.Addresses), a) {
			return "load balancer " + l.Name
		}
	}
	for _, l := range w.LoadBalancers {
		if slices.Contains(SortedAddresses(l.Addresses), a) {
			return "load balancer " + l.Name
		}
	}
	return ""
}

// Offset is the position of an IPv4 address in a prefix.
func Offset(p netip.Prefix, a netip.Addr) int {
	base, x := p.Masked().Addr().As4(), a.As4()
	n := 0
	for i := range 4 {
		n = n<<8 + int(x[i]) - int(base[i])
	}
	return n
}

// ZoneID is the id of an availability zone, such as use1-az1.
func (w *World) ZoneID(zone string) string {
	// use1-az1 for us-east-1a: the compressed region and the letter's number.
	parts := strings.Split(w.Region, "-")
	short := parts[0]
	for _, p := range parts[1 : len(parts)-1] {
		short += p[:1]
	}
	return fmt.Sprintf("%s%s-az%d", short, parts[len(parts)-1], zone[len(zone)-1]-'a'+1)
}
