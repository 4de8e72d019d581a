// Command bench measures the release and prints ratios.
package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/release/workspace"
	"kubernetes-release/testbed/bench"
	"kubernetes-release/testbed/lab/vm"
)

const long = `Measure the release and print ratios, which are also kept in .build/bench.json:

  size       the tarball against the bare upstream programs
  deploy     a deploy in the lab against the same programs started by hand, and the memory of what was deployed
  updates    requests that fail, and the longest gap, while three control VMs are updated and recreated in the lab
  sizes      deploys of one, three and five VMs in the lab
  restore    the restore of a snapshot of etcd of 100 MB in the lab
  faults     the time to recover from faults, of three control VMs and a worker in the lab (20 minutes)
  storage    a claim against the cloud's delays, calls of EC2 for 50 claims at once, and the memory and size of storage
  providers  what the programs of OpenStack and vSphere add to the tarball, and the time to build those of each cloud
  clone      make up in a fresh clone against go build of the components (an hour)
  preflight  the preflights of 1,000 workers against EC2's token bucket, and its results in random accounts, simulated
             (15 minutes)
  rotation   lines that logrotate loses of a log to which 10,000 a second are written (2 minutes)

All but preflight and rotation require the release and the lab (make release lab). A missed aim is not an error.`

func main() {
	vm.MaybeRunInit()
	var root workspace.Root
	var session bench.Session
	command := &cobra.Command{
		Use:       "bench FIGURE...",
		Short:     "Measure the release and print ratios",
		Long:      long,
		Args:      cobra.MatchAll(cobra.MinimumNArgs(1), cli.KnownArgs),
		ValidArgs: bench.Names,
		RunE: func(command *cobra.Command, names []string) (err error) {
			if session.Runs < 1 {
				return cli.Usagef("--runs is %d; it must be at least 1", session.Runs)
			}
			if session.Accounts < 1 {
				return cli.Usagef("--accounts is %d; it must be at least 1", session.Accounts)
			}
			if session.Root, err = root.Path(); err != nil {
				return err
			}
			session.Out = command.OutOrStdout()
			return session.Measure(command.Context(), names)
		},
	}
	root.AddFlag(command)
	command.Flags().IntVar(&session.Runs, "runs", 3, "`number` of measurements of deploys and preflights")
	command.Flags().IntVar(
		&session.Accounts, "accounts", 10_000, "`number` of random accounts in which the preflight runs",
	)
	cli.MainUninterrupted(command) // a measurement removes what it created
}
