// Package ipset is the part of the command ipset(8) that kube-router's policy controller runs: stemcells have the
// kernel's sets of addresses, and iptables, which matches packets with them, but not this command.
//
// It has the controller's sets (hash:ip and hash:net of IPv4, with timeouts), and reads and writes ipset's own format,
// see pkg/utils/ipset.go in kube-router.
package ipset

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	netutils "k8s.io/utils/net"
)

const (
	addresses = "hash:ip"
	networks  = "hash:net"
)

// revisions are the first of each type of set that have what the controller uses: timeouts, and with networks also
// nomatch. Every kernel since Linux 3.10 has them (net/netfilter/ipset/ip_set_hash_ip.c and ip_set_hash_net.c).
var revisions = map[string]uint8{addresses: 1, networks: 2}

// Run runs a command: save, restore [-exist], or one of those that restore reads, such as destroy NAME.
func Run(arguments []string, in io.Reader, out io.Writer) error {
	if len(arguments) == 0 {
		return errors.New("no command: use save, restore, or one of create, destroy, flush, swap and add")
	}
	switch command, rest := arguments[0], arguments[1:]; command {
	case "save":
		return save(out)
	case "restore":
		return restore(in)
	default:
		return execute(command, rest)
	}
}

// restore runs the commands of the input, one a line. As with the option -exist, it is no error if a set or member
// exists.
func restore(in io.Reader) error {
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		if err := execute(words[0], words[1:]); err != nil {
			return fmt.Errorf("line %d: %s: %w", number, strings.Join(words, " "), err)
		}
	}
	return lines.Err()
}

func execute(command string, arguments []string) error {
	var names []string
	for _, argument := range arguments {
		if argument != "-exist" {
			names = append(names, argument)
		}
	}
	wanted := map[string]int{"create": 2, "destroy": 1, "flush": 1, "swap": 2, "add": 2}
	count, known := wanted[command]
	if !known {
		return fmt.Errorf("unknown command %q", command)
	}
	if len(names) < count {
		return fmt.Errorf("%s requires %d arguments, not %d", command, count, len(names))
	}
	options := names[count:]
	switch command {
	case "create":
		return create(names[0], names[1], options)
	case "add":
		return add(names[0], names[1], options)
	case "swap":
		return netlink.IpsetSwap(names[0], names[1])
	case "flush":
		return netlink.IpsetFlush(names[0])
	default:
		return netlink.IpsetDestroy(names[0])
	}
}

func create(name, kind string, options []string) error {
	revision, known := revisions[kind]
	if !known {
		return fmt.Errorf("sets of the type %s are not supported", kind)
	}
	settings := netlink.IpsetCreateOptions{Replace: true, Family: unix.AF_INET, Revision: revision}
	for len(options) > 0 {
		if len(options) < 2 {
			return fmt.Errorf("option %s has no value", options[0])
		}
		number, err := strconv.ParseUint(options[1], 10, 32)
		switch value := uint32(number); options[0] {
		case "family":
			if options[1] != "inet" {
				return fmt.Errorf("the family %s is not supported", options[1])
			}
			err = nil
		case "hashsize", "bucketsize", "initval":
			// The kernel chooses them.
			err = nil
		case "timeout":
			settings.Timeout = &value
		case "maxelem":
			settings.MaxElements = value
		default:
			return fmt.Errorf("unknown option %s", options[0])
		}
		if err != nil {
			return fmt.Errorf("option %s: %w", options[0], err)
		}
		options = options[2:]
	}
	return netlink.IpsetCreate(name, kind, settings)
}

// add adds an address or network to a set.
func add(name, member string, options []string) error {
	prefixes, err := parse(member)
	for _, prefix := range prefixes {
		err = errors.Join(err, addPrefix(name, prefix, options))
	}
	return err
}

// addPrefix adds a network to a set. The library cannot add the exceptions of a network.
func addPrefix(name string, prefix netip.Prefix, options []string) error {
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|int(nl.NLA_F_NESTED), nil)
	address := nl.NewRtAttr(nl.IPSET_ATTR_IPADDR_IPV4|int(nl.NLA_F_NET_BYTEORDER), prefix.Addr().AsSlice())
	data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_IP|int(nl.NLA_F_NESTED), address.Serialize()))
	data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_CIDR, nl.Uint8Attr(uint8(prefix.Bits())))) //nolint:gosec // at most 32
	for len(options) > 0 {
		switch {
		case options[0] == "nomatch":
			data.AddChild(
				&nl.Uint32Attribute{
					Type:  nl.IPSET_ATTR_CADT_FLAGS | nl.NLA_F_NET_BYTEORDER,
					Value: nl.IPSET_FLAG_NOMATCH,
				},
			)
			options = options[1:]
		case options[0] == "timeout" && len(options) > 1:
			seconds, err := strconv.ParseUint(options[1], 10, 32)
			if err != nil {
				return fmt.Errorf("option timeout: %w", err)
			}
			data.AddChild(
				&nl.Uint32Attribute{Type: nl.IPSET_ATTR_TIMEOUT | nl.NLA_F_NET_BYTEORDER, Value: uint32(seconds)},
			)
			options = options[2:]
		default:
			return fmt.Errorf("unknown option %s", options[0])
		}
	}
	_, err := request(nl.IPSET_CMD_ADD, nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)), data)
	return err
}

// request sends a command of the kernel's and returns its answers.
func request(command int, attributes ...nl.NetlinkRequestData) ([][]byte, error) {
	r := nl.NewNetlinkRequest(command|(unix.NFNL_SUBSYS_IPSET<<8), nl.GetIpsetFlags(command))
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	for _, attribute := range attributes {
		r.AddData(attribute)
	}
	answers, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	var number syscall.Errno
	if errors.As(err, &number) && number >= nl.IPSET_ERR_PRIVATE {
		err = nl.IPSetError(number)
	}
	return answers, err
}

// parse reads an IPv4 address or network as Kubernetes does, which accepts leading zeros and IPv4 addresses in the form
// of IPv6: an error here would keep the policies of all namespaces from being changed. Of all addresses it makes two
// networks, since sets have none without bits (hash_net4_uadt in net/netfilter/ipset/ip_set_hash_net.c): the controller
// does so only for what ends with "/0".
func parse(member string) ([]netip.Prefix, error) {
	if !strings.Contains(member, "/") {
		member += "/32"
	}
	ip, network, err := netutils.ParseCIDRSloppy(member)
	if err != nil {
		return nil, err
	}
	ones, size := network.Mask.Size()
	bits := ones - (size - 8*net.IPv4len)
	address, ok := netip.AddrFromSlice(ip.To4())
	if !ok || bits < 0 {
		return nil, fmt.Errorf("%s is no IPv4 address or network", member)
	}
	if bits == 0 {
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/1")}, nil
	}
	return []netip.Prefix{netip.PrefixFrom(address, bits)}, nil
}

// save writes all sets in the format that restore reads.
func save(out io.Writer) error {
	answers, err := request(nl.IPSET_CMD_LIST)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(out)
	last := ""
	for _, answer := range answers {
		// Attributes follow the header of netfilter; a large set comes in several answers.
		var set struct{ name, kind, options string }
		var members []string
		for attribute := range nl.ParseAttributes(answer[nl.SizeofNfgenmsg:]) {
			switch attribute.Type & nl.NLA_TYPE_MASK {
			case nl.IPSET_ATTR_SETNAME:
				set.name = nl.BytesToString(attribute.Value)
			case nl.IPSET_ATTR_TYPENAME:
				set.kind = nl.BytesToString(attribute.Value)
			case nl.IPSET_ATTR_DATA:
				_, set.options = describe(attribute.Value)
			case nl.IPSET_ATTR_ADT:
				for member := range nl.ParseAttributes(attribute.Value) {
					name, options := describe(member.Value)
					members = append(members, name+options)
				}
			}
		}
		if set.name != last {
			_, _ = fmt.Fprintf(buffered, "create %s %s%s\n", set.name, set.kind, set.options)
			last = set.name
		}
		for _, member := range members {
			_, _ = fmt.Fprintf(buffered, "add %s %s\n", set.name, member)
		}
	}
	return buffered.Flush()
}

// describe returns a member and its options; for a set, which has no address, only the options.
func describe(data []byte) (member, options string) {
	for attribute := range nl.ParseAttributes(data) {
		switch attribute.Type & nl.NLA_TYPE_MASK {
		case nl.IPSET_ATTR_IP:
			for address := range nl.ParseAttributes(attribute.Value) {
				member = net.IP(address.Value).String()
			}
		case nl.IPSET_ATTR_CIDR:
			member += "/" + strconv.Itoa(int(attribute.Value[0]))
		case nl.IPSET_ATTR_TIMEOUT:
			options += fmt.Sprintf(" timeout %d", binary.BigEndian.Uint32(attribute.Value))
		case nl.IPSET_ATTR_CADT_FLAGS:
			if binary.BigEndian.Uint32(attribute.Value)&nl.IPSET_FLAG_NOMATCH != 0 {
				options += " nomatch"
			}
		}
	}
	return member, options
}
