package lab

import (
	"os"
	"strings"
	"testing"
)

func TestOpenReusesTheNetworkNumber(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("choosing a network requires root")
	}
	dir := t.TempDir()
	if _, err := Open(dir, false); !IsNoLab(err) || !strings.Contains(err.Error(), "bin/lab up") {
		t.Errorf("got %v", err)
	}
	first, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if !first.Network.Exists() {
		t.Error("the network was not created, so another lab could choose the same one")
	}
	second, err := Open(dir, false)
	if err != nil || second.Network != first.Network {
		t.Errorf("got %v, %v; want %v", second, err, first.Network)
	}
	if err := first.Abandon(); err != nil || first.Network.Exists() {
		t.Errorf("the network still exists: %v", err)
	}
}

func TestLockNamesTheOtherCommand(t *testing.T) {
	l := &Lab{Root: t.TempDir()}
	release, err := l.Lock("up")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lock("down"); err == nil || !strings.Contains(err.Error(), "lab up, process") {
		t.Errorf("got %v", err)
	}
	release()
	release, err = l.Lock("down")
	if err != nil {
		t.Fatal(err)
	}
	release()
}
