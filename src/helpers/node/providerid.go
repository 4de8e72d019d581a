package node

import "strings"

// SameVM reports whether two provider IDs name the same VM. Where the VM is may be missing in one of them: the cloud
// controller of OpenStack writes the region only with OS_CCM_REGIONAL, and accepts IDs without it
// (instanceIDFromProviderID in pkg/openstack/instances.go of cloud-provider-openstack), also after the variable has
// changed, since the provider ID of a Node cannot.
func SameVM(a, b string) bool {
	schemeA, placeA, vmA := splitProviderID(a)
	schemeB, placeB, vmB := splitProviderID(b)
	return schemeA == schemeB && vmA == vmB && (placeA == placeB || placeA == "" || placeB == "")
}

// splitProviderID splits openstack://RegionOne/ID, where the place may be empty.
func splitProviderID(id string) (scheme, place, vm string) {
	scheme, rest, _ := strings.Cut(id, "://")
	last := strings.LastIndex(rest, "/")
	return scheme, rest[:max(last, 0)], rest[last+1:]
}
