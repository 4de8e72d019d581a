// Package vmtest boots VMs of the lab for tests of what runs in them.
package vmtest

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"kubernetes-release/testbed/lab/network/networktest"
	"kubernetes-release/testbed/lab/vm"
)

// Main is the TestMain of tests that boot VMs: a VM's init is the test binary itself.
func Main(m *testing.M) {
	vm.MaybeRunInit()
	os.Exit(m.Run())
}

// New boots a VM with a persistent disk in a network of its own, and removes both when the test ends. It skips the test
// when networktest.New does.
func New(t *testing.T) *vm.VM {
	t.Helper()
	n := networktest.New(t)
	state := t.TempDir()
	return boot(t, vm.Spec{
		Name: "one", StateDir: state, Network: n, Address: netip.AddrFrom4([4]byte{10, byte(n.Number), 16, 4}),
		PersistentDisk: filepath.Join(state, "disk"),
	})
}

// Another boots another VM in the network of the first one, with the address that follows its address.
func Another(t *testing.T, first *vm.VM, name string) *vm.VM {
	t.Helper()
	return boot(
		t,
		vm.Spec{
			Name:     name,
			StateDir: first.Spec.StateDir,
			Network:  first.Spec.Network,
			Address:  first.Spec.Address.Next(),
		},
	)
}

func boot(t *testing.T, spec vm.Spec) *vm.VM {
	t.Helper()
	v, err := vm.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return v
}

// Files creates a temporary directory with the given files, all executable, for jobs and packages of a VM.
func Files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
