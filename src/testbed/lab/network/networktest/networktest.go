// Package networktest creates networks of the lab for tests that boot VMs.
package networktest

import (
	"os"
	"testing"

	"kubernetes-release/testbed/lab/network"
)

// New creates a network in which VMs can boot, and removes it when the test ends. The test is skipped with -short, and
// if the machine lacks what VMs need.
func New(t *testing.T) network.Network {
	t.Helper()
	if testing.Short() {
		t.Skip("creates VMs; make test-lab runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("creating VMs requires root")
	}
	if _, err := os.Stat("/usr/bin/monit"); err != nil {
		t.Skip("requires Debian's package monit")
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
