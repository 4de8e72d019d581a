// Package networktest makes networks of the lab for tests that boot VMs.
package networktest

import (
	"os"
	"testing"

	"kubernetes-release/lab/network"
)

// New makes a network in which VMs can boot, and removes it at the test's end. The test is skipped where only quick tests are wanted, and
// where the machine lacks what VMs need.
func New(t *testing.T) network.Network {
	t.Helper()
	if testing.Short() {
		t.Skip("makes VMs; make test-lab runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make VMs")
	}
	if _, err := os.Stat("/usr/bin/monit"); err != nil {
		t.Skip("needs Debian's monit")
	}
	n, err := network.Choose()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Destroy(); err != nil {
			t.Error(err)
		}
	})
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	return n
}
