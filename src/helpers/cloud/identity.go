package cloud

import (
	"fmt"
	"net/netip"

	"kubernetes-release/node"
)

// CheckIdentity fails if an identity from instance metadata is none of a Node, or that of another VM than the one with
// the address that BOSH knows. The addresses are those that the metadata has.
func CheckIdentity(id node.Identity, addresses []string) error {
	if err := id.Validate(); err != nil {
		return fmt.Errorf("instance metadata does not say which Node this VM is: %w", err)
	}
	if HasAddress(addresses, netip.MustParseAddr(id.Address)) {
		return nil
	}
	return fmt.Errorf(
		"instance metadata describes VM %s with the addresses %v, and this VM has %s in BOSH: another VM has "+
			"answered, or the VM was given another address; recreate it (bosh recreate)",
		id.Name, addresses, id.Address,
	)
}

// HasAddress reports whether one of the wanted addresses is among those that are written in a text each.
func HasAddress(texts []string, wanted ...netip.Addr) bool {
	for _, text := range texts {
		for _, want := range wanted {
			if a, err := netip.ParseAddr(text); err == nil && a.Unmap() == want.Unmap() {
				return true
			}
		}
	}
	return false
}
