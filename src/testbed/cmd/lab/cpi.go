package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kubernetes-release/testbed/lab/external"
)

// cpi answers with JSON, also when it fails: a Director ignores the exit code and everything else.
func (p *program) cpi() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "cpi",
		Short: "Answer one call of a Director that somebody else runs, for which the lab is the cloud",
		Long: `Reads one call of the CPI's contract (https://bosh.io/docs/cpi-api-v2/) from standard input, and writes
the answer to standard output. lab empty-account creates a lab for it, and lab cpi-release a release with it.
VMs have the root file system of the stemcell, which must be one for warden.`,
		Example: `  echo '{"method": "info", "arguments": [], "context": {}}' | lab cpi`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return external.Serve(c.Context(), c.InOrStdin(), c.OutOrStdout(), func() (*external.CPI, error) {
				return external.Open(c.Context(), p.state, config)
			})
		},
	}
	c.Flags().StringVar(&config, "config", "", "JSON `file` with the options of agents: agent.mbus, ntp, blobstore")
	return c
}

func (p *program) cpiRelease() *cobra.Command {
	return &cobra.Command{
		Use:   "cpi-release FILE",
		Short: "Write a BOSH release with the CPI of this lab, for bosh create-env or a Director",
		Long: `Writes a BOSH release whose only job, lab_cpi, answers calls with this program on this machine. With a
cpi-config of type lab, or with bosh create-env, a Director uses the lab as its cloud.`,
		Example: "  lab cpi-release lab-cpi.tgz",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			executable, err := os.Executable()
			if err != nil {
				return err
			}
			state, err := filepath.Abs(p.state)
			if err != nil {
				return err
			}
			return external.WriteRelease(arguments[0], executable, state)
		},
	}
}
