// Command lab runs the release's test bed on one Linux machine: a Director's order of events on VMs made of namespaces,
// and a simulated AWS. `lab --help` lists its commands.
package main

import (
	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/lab/vm"
)

func main() {
	vm.MaybeRunInit()
	cli.MainUninterrupted(newCommand())
}
