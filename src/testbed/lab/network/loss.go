package network

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
)

// Loss is the share of a VM's packets that the network loses, in percent, by direction. The VM does not notice: its
// interface stays up.
type Loss struct{ From, To int }

// Everything loses every packet from a VM and to it.
var Everything = Loss{From: 100, To: 100}

// Lose makes the network lose packets of the VM with that address, whatever their protocol, in place of an earlier
// loss; Loss{} ends it. It also ends with the VM.
func (n Network) Lose(address netip.Addr, loss Loss) error {
	return n.Do(func() error {
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(loss.rules(PortName(address)))
		var output bytes.Buffer
		nft.Stdout, nft.Stderr = &output, &output
		if err := nft.Run(); err != nil {
			return fmt.Errorf("packet filter of the bridge's port %s: %w: %s", PortName(address), err, output.String())
		}
		return nil
	})
}

// rules are for nft. What comes in at a port of the bridge is from the VM.
func (l Loss) rules(port string) string {
	table := "netdev loss-" + port
	rules := fmt.Sprintf("add table %[1]s\ndelete table %[1]s\n", table)
	if l == (Loss{}) {
		return rules
	}
	return rules + fmt.Sprintf(`table %s {
  chain from { type filter hook ingress device "%[2]s" priority 0; %[3]s }
  chain to { type filter hook egress device "%[2]s" priority 0; %[4]s }
}
`, table, port, drop(l.From), drop(l.To))
}

func drop(percent int) string {
	switch {
	case percent <= 0:
		return ""
	case percent >= 100:
		return "drop;"
	}
	return fmt.Sprintf("numgen random mod 100 < %d drop;", percent)
}
