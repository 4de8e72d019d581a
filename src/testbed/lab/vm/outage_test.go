package vm

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/lab/network"
)

// silence is how long nothing must arrive to show that it is lost: what arrives takes less than a millisecond.
const silence = 300 * time.Millisecond

// TestPowerLossIsSilent connects a VM to the host and kills it: as with a machine without power, the connection is not
// closed.
func TestPowerLossIsSilent(t *testing.T) {
	n, state := lab(t)
	v := create(t, Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)})
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(n.HostAddress(), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	sh(
		t, v,
		"setsid bash -c 'exec 3<>/dev/tcp/"+n.HostAddress().
			String()+
			"/"+port+"; echo hello >&3; sleep 1000' > /dev/null 2>&1 &",
	)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.ReadFull(conn, make([]byte, len("hello\n"))); err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(silence))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of a VM without power: got %v, want silence", err)
	}
}

// TestPacketsAreLostByDirection sends a packet each way, with each loss.
func TestPacketsAreLostByDirection(t *testing.T) {
	n, state := lab(t)
	v := create(t, Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)})
	listener, err := net.ListenPacket("udp4", netip.AddrPortFrom(n.HostAddress(), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.LocalAddr().String())
	arrivesFrom := func() bool {
		t.Helper()
		sh(t, v, "bash -c 'echo hello > /dev/udp/"+n.HostAddress().String()+"/"+port+"'")
		_ = listener.SetReadDeadline(time.Now().Add(silence))
		_, _, err := listener.ReadFrom(make([]byte, 16))
		return err == nil
	}
	arrivesTo := func() bool {
		t.Helper()
		conn, err := net.Dial("udp4", netip.AddrPortFrom(v.Spec.Address, 9).String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		const received = "awk '$1 == \"eth0:\" {print $3}' /proc/net/dev"
		before := sh(t, v, received)
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(silence)
		return sh(t, v, received) != before
	}
	arrivesFrom() // so that both know each other's hardware address
	arrivesTo()
	for _, c := range []struct {
		loss     network.Loss
		from, to bool
	}{
		{network.Loss{}, true, true},
		{network.Loss{From: 100}, false, true},
		{network.Loss{To: 100}, true, false}, {network.Everything, false, false},
		{network.Loss{}, true, true},
	} {
		if err := n.Lose(v.Spec.Address, c.loss); err != nil {
			t.Fatal(err)
		}
		if from, to := arrivesFrom(), arrivesTo(); from != c.from || to != c.to {
			t.Errorf("%+v: arrives from the VM: %t, to the VM: %t; want %t and %t", c.loss, from, to, c.from, c.to)
		}
	}
	if err := n.Lose(v.Spec.Address, network.Loss{From: 50}); err != nil {
		t.Fatal(err)
	}
	for _, arrives := range []bool{true, false} {
		eventually.Succeeds(t, time.Minute, "a share of the packets", func() error {
			if arrivesFrom() != arrives {
				return errors.New("all or none so far")
			}
			return nil
		})
	}
}
