package flannel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/internal/nodestatus"
)

// HostGW is the backend with which each node is the router to its pods. Only a router in the same subnet can be used.
const HostGW = "host-gw"

// CheckNeighbors returns an error if one of the Nodes is not in the subnet of this VM, which has the Node own: flannel
// would log that the kernel refuses the route to its pods, and go on without it (routeAdd in its
// pkg/backend/route_network.go). Their addresses are those that BOSH knows, which no node can change.
//
// What is in the pod network already starts whatever others are like: a VM in the wrong place stops no other one.
func CheckNeighbors(nodes []corev1.Node, own string, address netip.Addr) error {
	device, err := interfaceOf(address)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		// Where flannel announces its backend (newAnnotations in pkg/subnet/kube/annotations.go).
		if node.Name == own && node.Annotations["flannel.alpha.coreos.com/backend-type"] == HostGW {
			return nil
		}
	}
	for _, node := range nodes {
		label := node.Labels[nodestatus.AddressesLabel]
		near := func(text string) bool { return isNear(text, address, device) }
		if addresses := strings.Split(label, "_"); node.Name != own && label != "" &&
			!slices.ContainsFunc(addresses, near) {
			return fmt.Errorf(
				"Node %s (%s) is not in the subnet of this VM (%s): with backend host-gw of job flannel all nodes "+
					"must be in one, because each is the router to its pods; give all instance groups with nodes "+
					"the same subnet, or set backend to vxlan and recreate all VMs",
				node.Name, strings.Join(addresses, ", "), address,
			)
		}
	}
	return nil
}

// isNear reports whether the VM reaches an address by the device, without a router. The Node of a previous VM can have
// the VM's own.
func isNear(text string, own netip.Addr, device netlink.Link) bool {
	address, err := netip.ParseAddr(text)
	if err != nil || address == own {
		return err == nil
	}
	routes, err := netlink.RouteGet(address.AsSlice())
	return err == nil && len(routes) == 1 && routes[0].Gw == nil && routes[0].LinkIndex == device.Attrs().Index
}
