package manifest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"
)

// CloudConfig is a cloud config after interpolation.
type CloudConfig struct {
	AZs          []AZ        `yaml:"azs"`
	VMTypes      []CloudType `yaml:"vm_types"`
	VMExtensions []CloudType `yaml:"vm_extensions"`
	DiskTypes    []DiskType  `yaml:"disk_types"`
	Networks     []Network   `yaml:"networks"`
	Compilation  Compilation `yaml:"compilation"`
}

// AZ is an availability zone.
type AZ struct {
	Name            string         `yaml:"name"`
	CPI             string         `yaml:"cpi"`
	CloudProperties map[string]any `yaml:"cloud_properties"`
}

// CloudType is a named set of cloud properties: a vm_type or a vm_extension.
type CloudType struct {
	Name            string         `yaml:"name"`
	CloudProperties map[string]any `yaml:"cloud_properties"`
}

// DiskType is a named persistent disk size, in MiB.
type DiskType struct {
	Name            string         `yaml:"name"`
	DiskSize        int            `yaml:"disk_size"`
	CloudProperties map[string]any `yaml:"cloud_properties"`
}

// Network is a network. Instance groups in the lab can use manual ones only.
type Network struct {
	Name    string   `yaml:"name"`
	Type    string   `yaml:"type"`
	Subnets []Subnet `yaml:"subnets"`
}

// Subnet is one range of a network, in one or more AZs.
type Subnet struct {
	Range           string         `yaml:"range"`
	Gateway         string         `yaml:"gateway"`
	DNS             []string       `yaml:"dns"`
	AZ              string         `yaml:"az"`
	AZs             []string       `yaml:"azs"`
	Static          Ranges         `yaml:"static"`
	Reserved        Ranges         `yaml:"reserved"`
	CloudProperties map[string]any `yaml:"cloud_properties"`

	prefix   netip.Prefix
	gateway  netip.Addr
	static   []addressRange
	reserved []addressRange
}

// Ranges is a list of addresses and ranges; a single string is allowed too.
type Ranges []string

// UnmarshalYAML reads a string or a list of strings.
func (r *Ranges) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*r = Ranges{node.Value}
		return nil
	}
	return node.Decode((*[]string)(r))
}

// Compilation is where packages are compiled; the lab uses only the number of workers.
type Compilation struct {
	Workers             int            `yaml:"workers"`
	ReuseCompilationVMs bool           `yaml:"reuse_compilation_vms"`
	AZ                  string         `yaml:"az"`
	VMType              string         `yaml:"vm_type"`
	VMExtensions        []string       `yaml:"vm_extensions"`
	Network             string         `yaml:"network"`
	Env                 map[string]any `yaml:"env"`
	CloudProperties     map[string]any `yaml:"cloud_properties"`
}

type addressRange struct{ first, last netip.Addr }

func (r addressRange) contains(a netip.Addr) bool { return !a.Less(r.first) && !r.last.Less(a) }

// ParseCloudConfig decodes an interpolated cloud config and checks it. The error lists all problems.
func ParseCloudConfig(file string, text []byte) (*CloudConfig, error) {
	var c CloudConfig
	if err := decode(file, text, &c); err != nil {
		return nil, err
	}
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	unique("availability zone", c.AZs, func(a AZ) string { return a.Name }, add)
	unique("vm_type", c.VMTypes, func(t CloudType) string { return t.Name }, add)
	unique("vm_extension", c.VMExtensions, func(t CloudType) string { return t.Name }, add)
	unique("disk_type", c.DiskTypes, func(t DiskType) string { return t.Name }, add)
	unique("network", c.Networks, func(n Network) string { return n.Name }, add)
	for _, d := range c.DiskTypes {
		if d.DiskSize <= 0 {
			add("disk_type '%s': disk_size is %d; it must be the size in MiB, above 0", d.Name, d.DiskSize)
		}
	}
	for i := range c.Networks {
		c.checkNetwork(&c.Networks[i], add)
	}
	c.checkCompilation(add)
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s:\n  - %s", file, strings.Join(problems, "\n  - "))
	}
	return &c, nil
}

func unique[T any](kind string, list []T, name func(T) string, add func(string, ...any)) {
	seen := map[string]bool{}
	for i, entry := range list {
		n := name(entry)
		switch {
		case n == "":
			add("%s number %d has no name", kind, i+1)
		case seen[n]:
			add("Duplicate %s name '%s'", kind, n)
		}
		seen[n] = true
	}
}

func (c *CloudConfig) checkNetwork(n *Network, add func(string, ...any)) {
	if !n.isManual() { // such as bosh-deployment's vip, which no instance group must use
		return
	}
	for i := range n.Subnets {
		s := &n.Subnets[i]
		if err := s.parse(); err != nil {
			add("Network '%s' subnet '%s': %s", n.Name, s.Range, err)
			continue
		}
		for _, other := range n.Subnets[:i] {
			if other.prefix.IsValid() && other.prefix.Overlaps(s.prefix) {
				add("Network '%s': subnet '%s' overlaps with '%s'", n.Name, s.Range, other.Range)
			}
		}
		for _, az := range s.zones() {
			if !c.hasAZ(az) {
				add("Network '%s' refers to an unknown availability zone '%s'", n.Name, az)
			}
		}
	}
}

func (n *Network) isManual() bool { return n.Type == "" || n.Type == "manual" }

func (c *CloudConfig) checkCompilation(add func(string, ...any)) {
	k := c.Compilation
	if k.VMType != "" && c.VMType(k.VMType) == nil {
		add(
			"Compilation config references unknown vm type '%s'. Known vm types are: %s", k.VMType,
			known(c.VMTypes, typeName),
		)
	}
	if k.AZ != "" && !c.hasAZ(k.AZ) {
		add("Compilation config references unknown az '%s'", k.AZ)
	}
	if k.Network != "" && c.Network(k.Network) == nil {
		add("Compilation config references an unknown network: '%s'", k.Network)
	}
}

func (s *Subnet) zones() []string {
	if s.AZ != "" {
		return append([]string{s.AZ}, s.AZs...)
	}
	return s.AZs
}

func (s *Subnet) parse() error {
	prefix, err := netip.ParsePrefix(s.Range)
	if err != nil {
		return fmt.Errorf("range '%s' is not a CIDR: %w", s.Range, err)
	}
	if prefix != prefix.Masked() {
		return fmt.Errorf("range '%s' has host bits set; did you mean '%s'?", s.Range, prefix.Masked())
	}
	s.prefix = prefix
	if s.gateway, err = netip.ParseAddr(s.Gateway); err != nil {
		return fmt.Errorf("gateway '%s' is not an address: %w", s.Gateway, err)
	}
	if !prefix.Contains(s.gateway) {
		return fmt.Errorf("Gateway IP '%s' must be inside the range '%s'", s.gateway, prefix)
	}
	for _, d := range s.DNS {
		if _, err := netip.ParseAddr(d); err != nil {
			return fmt.Errorf("dns '%s' is not an address: %w", d, err)
		}
	}
	if s.reserved, err = s.ranges("Reserved", s.Reserved); err != nil {
		return err
	}
	if s.static, err = s.ranges("Static", s.Static); err != nil {
		return err
	}
	for _, r := range s.static {
		if slices.ContainsFunc(
			s.reserved, func(other addressRange) bool { return other.contains(r.first) || r.contains(other.first) },
		) {
			return fmt.Errorf("Static IP '%s' is in network's reserved range", r.first)
		}
	}
	return nil
}

func (s *Subnet) ranges(kind string, texts []string) ([]addressRange, error) {
	var parsed []addressRange
	for _, text := range texts {
		r, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		if !s.prefix.Contains(r.first) || !s.prefix.Contains(r.last) {
			return nil, fmt.Errorf("%s IP '%s' is out of subnet range '%s'", kind, text, s.prefix)
		}
		parsed = append(parsed, r)
	}
	return parsed, nil
}

// parseRange reads an address, first-last with or without blanks, or a CIDR.
func parseRange(text string) (addressRange, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		prefix = prefix.Masked()
		return addressRange{prefix.Addr(), lastOf(prefix)}, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	first, err := netip.ParseAddr(strings.TrimSpace(low))
	if err != nil {
		return addressRange{}, fmt.Errorf(
			"'%s' is neither an address nor a range like 10.0.0.2-10.0.0.9: %w", text, err,
		)
	}
	last := first
	if isRange {
		if last, err = netip.ParseAddr(strings.TrimSpace(high)); err != nil {
			return addressRange{}, fmt.Errorf("'%s' is not a range like 10.0.0.2-10.0.0.9: %w", text, err)
		}
	}
	if last.Less(first) {
		return addressRange{}, fmt.Errorf("range '%s' ends before it begins", text)
	}
	return addressRange{first, last}, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

func (c *CloudConfig) hasAZ(name string) bool {
	return slices.ContainsFunc(c.AZs, func(a AZ) bool { return a.Name == name })
}

// AZ returns the AZ with a name, nil if there is none.
func (c *CloudConfig) AZ(name string) *AZ {
	return byName(c.AZs, func(a AZ) bool { return a.Name == name })
}

// VMType returns the vm_type with a name, nil if there is none.
func (c *CloudConfig) VMType(name string) *CloudType {
	return byName(c.VMTypes, func(t CloudType) bool { return t.Name == name })
}

// VMExtension returns the vm_extension with a name, nil if there is none.
func (c *CloudConfig) VMExtension(name string) *CloudType {
	return byName(c.VMExtensions, func(t CloudType) bool { return t.Name == name })
}

// DiskType returns the disk_type with a name, nil if there is none.
func (c *CloudConfig) DiskType(name string) *DiskType {
	return byName(c.DiskTypes, func(t DiskType) bool { return t.Name == name })
}

// Network returns the network with a name, nil if there is none.
func (c *CloudConfig) Network(name string) *Network {
	return byName(c.Networks, func(n Network) bool { return n.Name == name })
}

func byName[T any](list []T, is func(T) bool) *T {
	for i := range list {
		if is(list[i]) {
			return &list[i]
		}
	}
	return nil
}

// known lists names for an error message.
func known[T any](list []T, name func(T) string) string {
	names := make([]string, 0, len(list))
	for _, entry := range list {
		names = append(names, name(entry))
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

func typeName(t CloudType) string { return t.Name }

// Check checks a manifest's references to the cloud config. The error lists all problems.
func (c *CloudConfig) Check(m *Manifest) error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for i := range m.InstanceGroups {
		c.checkGroup(&m.InstanceGroups[i], add)
	}
	if len(problems) > 0 {
		return fmt.Errorf("the manifest does not fit the cloud config:\n  - %s", strings.Join(problems, "\n  - "))
	}
	return nil
}

func (c *CloudConfig) checkGroup(g *InstanceGroup, add func(string, ...any)) {
	if g.VMType != "" && c.VMType(g.VMType) == nil {
		add(
			"Instance group '%s' references an unknown vm type '%s'. Known vm types are: %s", g.Name, g.VMType,
			known(c.VMTypes, typeName),
		)
	}
	for _, name := range g.VMExtensions {
		if c.VMExtension(name) == nil {
			add(
				"Instance group '%s' references an unknown vm extension '%s'. Known vm extensions are: %s", g.Name,
				name, known(c.VMExtensions, typeName),
			)
		}
	}
	if g.PersistentDiskType != "" && c.DiskType(g.PersistentDiskType) == nil {
		add(
			"Instance group '%s' references unknown disk type '%s'. Known disk types are: %s", g.Name,
			g.PersistentDiskType, known(c.DiskTypes, func(d DiskType) string { return d.Name }),
		)
	}
	if len(c.AZs) > 0 && len(g.AZs) == 0 {
		add(
			"Instance group '%s' must specify availability zone that matches availability zones of network '%s'",
			g.Name, networkName(g),
		)
	}
	for _, az := range g.AZs {
		if !c.hasAZ(az) {
			add(
				"Instance group '%s' references unknown AZ '%s'. Known AZs are: %s", g.Name, az,
				known(c.AZs, func(a AZ) string { return a.Name }),
			)
		}
	}
	for i := range g.Networks {
		c.checkGroupNetwork(g, &g.Networks[i], add)
	}
	if len(g.Networks) > 1 {
		add("Instance group '%s' has %d networks; the lab supports one", g.Name, len(g.Networks))
	}
}

func networkName(g *InstanceGroup) string {
	if len(g.Networks) == 0 {
		return ""
	}
	return g.Networks[0].Name
}

func (c *CloudConfig) checkGroupNetwork(g *InstanceGroup, ref *NetworkRef, add func(string, ...any)) {
	n := c.Network(ref.Name)
	if n == nil {
		add("Instance group '%s' references an unknown network '%s'. Known networks are: %s", g.Name, ref.Name,
			known(c.Networks, func(n Network) string { return n.Name }))
		return
	}
	if !n.isManual() {
		add(
			"Instance group '%s' uses the network '%s' of type '%s'; the lab supports manual networks only", g.Name,
			n.Name, n.Type,
		)
		return
	}
	for _, az := range g.AZs {
		if c.hasAZ(az) && !slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.in(az) }) {
			add(
				"Instance group '%s' must specify availability zone that matches availability zones of network '%s': "+
					"no subnet is in '%s'",
				g.Name, n.Name, az,
			)
		}
	}
	addresses, err := ref.Addresses()
	if err != nil {
		add("Instance group '%s' network '%s': %s", g.Name, ref.Name, err)
		return
	}
	if len(ref.StaticIPs) > 0 && len(addresses) < g.Instances {
		add(
			"Instance group '%s' with network '%s' requires %d static IPs, has %d", g.Name, ref.Name, g.Instances,
			len(addresses),
		)
	}
	for _, a := range addresses {
		s := n.SubnetOf(a)
		if s == nil || !s.IsStatic(a) {
			add(
				"Instance group '%s' with network '%s' declares static ip '%s', which belongs to no subnet's static "+
					"range",
				g.Name, ref.Name, a,
			)
		}
	}
}

// in reports whether the subnet is in an AZ ("" for a deployment without AZs).
func (s *Subnet) in(az string) bool {
	zones := s.zones()
	return len(zones) == 0 || slices.Contains(zones, az)
}

// IsStatic reports whether an address is in the range for static_ips.
func (s *Subnet) IsStatic(a netip.Addr) bool {
	return slices.ContainsFunc(s.static, func(r addressRange) bool { return r.contains(a) })
}

// Prefix returns the subnet's range.
func (s *Subnet) Prefix() netip.Prefix { return s.prefix }

// AZNames returns the AZs that the subnet is in.
func (s *Subnet) AZNames() []string { return s.zones() }

// SubnetOf returns the subnet that an address is in, nil if none.
func (n *Network) SubnetOf(a netip.Addr) *Subnet {
	return byName(n.Subnets, func(s Subnet) bool { return s.prefix.Contains(a) })
}

// Free returns the first address of the network in the AZ that is neither static, reserved nor taken.
func (n *Network) Free(az string, taken func(netip.Addr) bool) (netip.Addr, *Subnet, error) {
	for i := range n.Subnets {
		s := &n.Subnets[i]
		if !s.in(az) {
			continue
		}
		last := lastOf(s.prefix)
		for a := s.prefix.Addr().Next(); a.Less(last); a = a.Next() {
			if a != s.gateway && !s.IsStatic(a) && !taken(a) &&
				!slices.ContainsFunc(s.reserved, func(r addressRange) bool { return r.contains(a) }) {
				return a, s, nil
			}
		}
	}
	return netip.Addr{}, nil, fmt.Errorf(
		"Failed to reserve IP for network '%s' in AZ '%s': no more available", n.Name, az,
	)
}

// Addresses returns the static addresses in order.
func (r *NetworkRef) Addresses() ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, text := range r.StaticIPs {
		parsed, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		for a := parsed.first; !parsed.last.Less(a); a = a.Next() {
			addresses = append(addresses, a)
		}
	}
	return addresses, nil
}

// CloudProperties merges the cloud properties of the AZ, the vm_type and each vm_extension of an instance. As in a
// Director, a key of a later one replaces the whole value of an earlier one, also if that is a map.
func (c *CloudConfig) CloudProperties(g *InstanceGroup, az string) map[string]any {
	merged := map[string]any{}
	if zone := c.AZ(az); zone != nil {
		maps.Copy(merged, zone.CloudProperties)
	}
	if t := c.VMType(g.VMType); t != nil {
		maps.Copy(merged, t.CloudProperties)
	}
	for _, name := range g.VMExtensions {
		if e := c.VMExtension(name); e != nil {
			maps.Copy(merged, e.CloudProperties)
		}
	}
	return merged
}
