// Command conformance runs the conformance tests of Kubernetes against a cluster, and provides the images that they
// pull.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/conformance"
)

func main() {
	root := &cobra.Command{
		Use:   "conformance",
		Short: "Run the conformance tests of Kubernetes, and provide their images",
	}
	root.AddCommand(runCommand(), registryCommand())
	cli.Main(root)
}

func runCommand() *cobra.Command {
	var run conformance.Run
	var module, release string
	command := &cobra.Command{
		Use:   "run",
		Short: "Run conformance tests against a cluster",
		Long: `Run conformance tests against a cluster. The folder --output then contains e2e.log and junit_01.xml, and
submission.tar.gz if all tests that conformance requires have passed. The exit code is 1 if a test has
failed.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return run.Report(command.Context(), os.Stdout, module, release)
		},
	}
	flags := command.Flags()
	flags.StringVar(&run.Programs, "programs", "", "`folder` with ginkgo and e2e.test")
	flags.StringVar(&run.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of an administrator")
	flags.StringVar(&run.Kubectl, "kubectl", "kubectl", "`path` of kubectl")
	flags.StringVar(&run.Output, "output", "", "`folder` for the results")
	flags.StringVar(&module, "module", "", "`folder` of the module k8s.io/kubernetes")
	flags.StringVar(&release, "release", "", "`version` of the BOSH release, for a submission")
	flags.StringVar(
		&run.Labels,
		"labels",
		conformance.ConformanceLabel,
		"run only tests with these `labels`, an expression of ginkgo; an empty one selects all",
	)
	flags.StringVar(&run.Focus, "focus", "", "run only tests whose names match this `regexp`")
	flags.StringVar(&run.Skip, "skip", "", "do not run tests whose names match this `regexp`")
	flags.StringVar(&run.Driver, "driver", "", "`file` that describes a CSI driver, for the tests of external storage")
	flags.IntVar(&run.Processes, "processes", 4, "`number` of tests that run at the same time")
	return required(command, "programs", "kubeconfig", "output", "module", "release")
}

func registryCommand() *cobra.Command {
	var sources conformance.ImageSources
	var address, ready string
	command := &cobra.Command{
		Use: "registry", Short: "Serve the images of conformance tests until it is interrupted",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return sources.Serve(command.Context(), address, ready)
		},
	}
	flags := command.Flags()
	flags.StringVar(&sources.Programs, "programs", "", "`folder` with e2e.test and the programs of the images")
	flags.StringVar(&sources.Module, "module", "", "`folder` of the module k8s.io/kubernetes")
	flags.StringVar(&address, "address", "", "`HOST:PORT` to listen on")
	flags.StringVar(&ready, "ready", "", "`file` to write when it serves, with the references of the images")
	return required(command, "programs", "module", "address", "ready")
}

func required(command *cobra.Command, names ...string) *cobra.Command {
	for _, name := range names {
		_ = command.MarkFlagRequired(name) // fails for an unknown flag only
	}
	return command
}
