package openstack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"

	"kubernetes-release/preflight"
)

func checkServer(f *facts) preflight.Outcome {
	if f.serverErr == nil {
		return passed("%s, %s", f.server.Name, f.server.Status)
	}
	if !gophercloud.ResponseCodeIs(f.serverErr, 404) {
		return unknown("the server", f.serverErr)
	}
	return found(preflight.Finding{
		Resource: f.metadata.UUID, Wanted: "a server in the project " + f.project,
		Found: fmt.Sprintf("Nova does not have it there; its metadata has the project %q", f.metadata.Project),
		Why:   "the cloud controller deletes Nodes whose server it does not find.",
		Fix: hand(
			"use an application credential for the project and the region in which the Director creates VMs",
			"openstack server show "+f.metadata.UUID,
		),
	})
}

func checkAddress(f *facts) preflight.Outcome {
	if f.portsErr != nil {
		return unknown("the ports of the server", f.portsErr)
	}
	var addresses []string
	for _, port := range f.ports {
		for _, ip := range port.FixedIPs {
			if ip.IPAddress == f.request.VM.Address && port.Status == "ACTIVE" {
				return passed("%s", ip.IPAddress)
			}
			addresses = append(addresses, ip.IPAddress+" ("+port.Status+")")
		}
	}
	return found(preflight.Finding{
		Resource: f.metadata.UUID, Wanted: "an ACTIVE port with the address " + f.request.VM.Address,
		Found: "ports with " + strings.Join(append(addresses, "nothing else"), ", "),
		Why: "kubelet registers with this address, and the cloud controller does not initialize a node whose server " +
			"lacks it.",
		Eventual: true,
		Fix:      hand("let the Director recreate the VM", "openstack port list --server "+f.metadata.UUID),
	})
}

// allows reports whether a rule of the server's groups allows TCP or UDP to all of the ports: from all addresses of the
// network, or, without one, from other nodes.
func (f *facts) allows(protocol string, from, to int, network netip.Prefix) bool {
	for _, group := range f.groups {
		for _, rule := range group.Rules {
			if rule.Direction == "ingress" && rule.EtherType == "IPv4" && matches(rule, protocol, from, to) &&
				f.admits(rule, network) {
				return true
			}
		}
	}
	return false
}

func matches(rule rules.SecGroupRule, protocol string, from, to int) bool {
	if rule.Protocol == "" || rule.Protocol == "any" {
		return true
	}
	number := map[string]string{"tcp": "6", "udp": "17"}[protocol]
	return (rule.Protocol == protocol || rule.Protocol == number) &&
		(rule.PortRangeMax == 0 || rule.PortRangeMin <= from && to <= rule.PortRangeMax)
}

// admits reports whether a rule is for all addresses of the network, or, without one, for other nodes.
func (f *facts) admits(rule rules.SecGroupRule, network netip.Prefix) bool {
	if rule.RemoteAddressGroupID != "" {
		return true // its addresses are not known here, and a deploy is not refused by what is not known
	}
	if rule.RemoteGroupID != "" {
		// Workers can be in a group of their own, and the only control VM reaches its own ports without a rule.
		return !network.IsValid()
	}
	if rule.RemoteIPPrefix == "" {
		return true
	}
	prefix, err := netip.ParsePrefix(rule.RemoteIPPrefix)
	if err != nil {
		return false
	}
	if network.IsValid() {
		return prefix.Bits() <= network.Bits() && prefix.Contains(network.Addr())
	}
	own, err := netip.ParseAddr(f.request.VM.Address)
	return err == nil && prefix.Contains(own) // the others are in the same subnet
}

// groupsMissing is the outcome of checks of security groups where there are none.
func (f *facts) groupsMissing() (preflight.Outcome, bool) {
	switch {
	case f.portsErr != nil:
		return skipped("the server's ports are not known"), true
	case f.groupsErr != nil:
		return unknown("the security groups", f.groupsErr), true
	case len(f.groups) == 0:
		return passed("the server's ports have none, and are not filtered"), true
	}
	return preflight.Outcome{}, false
}

func (f *facts) groupNames() string {
	var names []string
	for _, group := range f.groups {
		names = append(names, group.Name)
	}
	return strings.Join(names, ", ")
}

func checkGroupNodes(f *facts) preflight.Outcome {
	if outcome, missing := f.groupsMissing(); missing {
		return outcome
	}
	type port struct {
		protocol string
		port     int
		what     string
	}
	ports := []port{
		{"tcp", f.settings.APIPort, "API"}, {"tcp", f.settings.JoinPort, "nodes join"}, {"tcp", 10250, "kubelet"},
	}
	if f.settings.VXLAN {
		ports = append(ports, port{"udp", 8472, "pod network"})
	}
	var blocked []string
	for _, needed := range ports {
		if needed.port != 0 && !f.allows(needed.protocol, needed.port, needed.port, netip.Prefix{}) {
			blocked = append(
				blocked, fmt.Sprintf("%s %d (%s)", strings.ToUpper(needed.protocol), needed.port, needed.what),
			)
		}
	}
	if len(blocked) == 0 {
		return passed("%s", f.groupNames())
	}
	id := f.groups[0].ID
	return found(preflight.Finding{
		Resource: "security groups " + f.groupNames(), Wanted: "rules that let nodes reach each other",
		Found: "no rule allows " + strings.Join(blocked, ", ") + " from members of these groups or of another",
		Why:   "nodes cannot join, and pods of different nodes cannot reach each other.",
		Fix: hand(
			"allow all traffic from members of the group",
			fmt.Sprintf("openstack security group rule create --remote-group %s --protocol any %s", id, id),
		),
	})
}

func checkGroupPorts(f *facts) preflight.Outcome {
	switch {
	case !f.config.balancers():
		return skipped("load balancers are turned off")
	case f.config.get("LoadBalancer", "manage-security-groups") == "true":
		return passed("the cloud controller adds a security group for each Service")
	case f.subnet == nil:
		return skipped("the subnet of load balancers is not known")
	}
	if outcome, missing := f.groupsMissing(); missing {
		return outcome
	}
	network, err := netip.ParsePrefix(f.subnet.CIDR)
	if err != nil || !network.Addr().Is4() {
		return skipped("the subnet is %s", f.subnet.CIDR)
	}
	first, last, known := f.settings.NodePorts.Ports()
	if !known {
		return skipped("the ports of Services on nodes are not known")
	}
	if f.allows("tcp", first, last, network) {
		return passed("%s", f.groupNames())
	}
	return found(preflight.Finding{
		Resource: "security groups " + f.groupNames(),
		Wanted:   fmt.Sprintf("a rule for TCP %d-%d from %s", first, last, f.subnet.CIDR),
		Found:    "no rule allows all of them",
		Why: "load balancers have addresses of this subnet, are in no group of the nodes, and would not reach " +
			"them.",
		Fix: hand(
			"add the rule, or set LoadBalancer.manage-security-groups to true in config of job cloud-provider",
			fmt.Sprintf(
				"openstack security group rule create --remote-ip %s --protocol tcp --dst-port %d:%d %s",
				f.subnet.CIDR, first, last, f.groups[0].ID,
			),
		),
	})
}

func checkSubnet(f *facts) preflight.Outcome {
	id := f.config.get("LoadBalancer", "subnet-id")
	switch {
	case !f.config.balancers():
		return skipped("load balancers are turned off")
	case f.tokenErr != nil:
		return skipped("there is no token")
	case id == "":
		return skipped("subnet-id is not set: the cloud controller takes the subnet of a node")
	case f.subnetErr == nil:
		return passed("%s, %s", f.subnet.Name, f.subnet.CIDR)
	case !gophercloud.ResponseCodeIs(f.subnetErr, 404):
		return unknown("the subnet", f.subnetErr)
	}
	return found(preflight.Finding{
		Resource: "LoadBalancer.subnet-id " + id, Wanted: "a subnet that the project can use",
		Found: "Neutron does not have it", Why: "load balancers get their addresses from it.",
		Fix: hand("set openstack_subnet_id to the subnet of the VMs", "openstack subnet list"),
	})
}

func checkFloating(f *facts) preflight.Outcome {
	id := f.config.get("LoadBalancer", "floating-network-id")
	wanted := preflight.Finding{
		Resource: "LoadBalancer.floating-network-id " + id, Wanted: "an external network",
		Why: "load balancers of Services get floating IPs from it.",
		Fix: hand("set openstack_floating_network_id to an external network", "openstack network list --external"),
	}
	switch {
	case !f.config.balancers():
		return skipped("load balancers are turned off")
	case f.tokenErr != nil:
		return skipped("there is no token")
	case id == "":
		return skipped("floating-network-id is not set: the cloud controller takes any external network")
	case f.floatErr == nil && f.floating.External:
		return passed("%s", f.floating.Name)
	case f.floatErr == nil:
		wanted.Found = "the network " + f.floating.Name + " is not external"
	case gophercloud.ResponseCodeIs(f.floatErr, 404):
		wanted.Found = "Neutron does not have it"
	default:
		return unknown("the floating network", f.floatErr)
	}
	return found(wanted)
}

func checkRouter(f *facts) preflight.Outcome {
	if f.config.get("LoadBalancer", "internal-lb") == "true" {
		return skipped("load balancers get no floating IP (internal-lb)")
	}
	if f.subnet == nil || f.floating == nil || !f.floating.External {
		return skipped("the subnet or the floating network is not known")
	}
	if f.routerErr != nil {
		return unknown("the routers", f.routerErr)
	}
	var connected []string
	others := f.subnet.ProjectID != f.project // the subnet is shared with this project
	for _, port := range f.interfaces {
		for _, ip := range port.FixedIPs {
			if ip.SubnetID != f.subnet.ID {
				continue
			}
			is := func(r routers.Router) bool { return r.ID == port.DeviceID }
			if i := slices.IndexFunc(f.routers, is); i >= 0 {
				if f.routers[i].GatewayInfo.NetworkID == f.floating.ID {
					return passed("%s", f.routers[i].Name)
				}
				connected = append(connected, f.routers[i].Name)
			} else {
				others = true
			}
		}
	}
	if len(connected) == 0 && others {
		return skipped("the router of %s is of another project, and Neutron does not show it", f.subnet.Name)
	}
	text := "the subnet is connected with no router of the project"
	if len(connected) > 0 {
		text = "the subnet's routers have no gateway there: " + strings.Join(connected, ", ")
	}
	return found(preflight.Finding{
		Resource: "subnet " + f.subnet.Name, Wanted: "a router with a gateway in the network " + f.floating.Name,
		Found: text, Why: "Neutron refuses to connect a floating IP with a load balancer in this subnet.",
		Fix: hand(
			"connect them",
			"openstack router set --external-gateway "+f.floating.ID+" ROUTER",
			"openstack router add subnet ROUTER "+f.subnet.ID,
		),
	})
}

func checkOctavia(f *facts) preflight.Outcome {
	switch {
	case !f.config.balancers():
		return skipped("load balancers are turned off")
	case f.tokenErr != nil:
		return skipped("there is no token")
	case f.balancersErr == nil:
		return passed("%d load balancers", f.balancers.used)
	case !denied(f.balancersErr):
		return unknown("the list of load balancers", f.balancersErr)
	}
	return found(preflight.Finding{
		Resource: "Octavia", Wanted: "the list of the project's load balancers", Found: describe(f.balancersErr),
		Why: "the cloud controller cannot create load balancers.",
		Fix: hand("create the application credential with the role of Octavia, such as load-balancer_member"),
	})
}

func checkBalancerQuota(f *facts) preflight.Outcome {
	if f.quotaErr != nil {
		return unknown("the quota of load balancers", f.quotaErr)
	}
	return checkQuota("load balancers", f.balancers, noAddress)
}

func checkFloatingQuota(f *facts) preflight.Outcome {
	if f.floatingErr != nil {
		return unknown("the quota of floating IPs", f.floatingErr)
	}
	return checkQuota("floating IPs", f.floatingIPs, noAddress)
}

// noAddress is what follows from an exhausted quota of what load balancers require.
const noAddress = "the next Service of type LoadBalancer gets no address."

func checkQuota(what string, q quota, why string) preflight.Outcome {
	switch {
	case q.limit < 0:
		return passed("%d, without a limit", q.used)
	case !q.full():
		return passed("%d of %d", q.used, q.limit)
	}
	return found(preflight.Finding{
		Resource: "quota of " + what, Wanted: "room for one more",
		Found: fmt.Sprintf("%d are used, and %d are allowed", q.used, q.limit),
		Why:   why,
		Fix:   hand("delete what is not used, or ask for a higher quota", "openstack quota show"),
	})
}
