// Command conformance runs the conformance tests of Kubernetes against a cluster, and provides the images that they
// pull.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/cli"
	"kubernetes-release/release/progress"
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
			return runTests(command.Context(), run, module, release)
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
			return serveImages(command.Context(), sources, address, ready)
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

func runTests(ctx context.Context, run conformance.Run, module, release string) error {
	list, err := os.ReadFile(filepath.Join(module, "test/conformance/testdata/conformance.yaml"))
	if err != nil {
		return err
	}
	requiredTests, err := conformance.ParseRequired(list)
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, filepath.Join(run.Programs, "e2e.test"), "--version").Output()
	if err != nil {
		return fmt.Errorf("version of e2e.test: %w", err)
	}
	step := progress.NewStep(os.Stdout, "conformance")
	defer step.Close()
	results, err := run.Do(ctx, step)
	if err != nil {
		return err
	}
	missing := results.Missing(requiredTests)
	if len(missing) == 0 {
		step.Record() // only a whole run says how long the next takes
	}
	step.Close()
	fmt.Print(results.Summary(requiredTests))
	if len(results.Failed) > 0 {
		return fmt.Errorf("%d tests failed; %s has their output", len(results.Failed), run.Output)
	}
	if len(missing) > 0 {
		fmt.Println("Not all conformance tests were selected: there is no archive for a submission")
		return nil
	}
	archive, err := conformance.Submission{
		Kubernetes: strings.TrimSpace(string(version)),
		Release:    release,
	}.Write(run.Output)
	if err != nil {
		return err
	}
	fmt.Println("Archive for a submission to the CNCF:", archive)
	return nil
}

func serveImages(ctx context.Context, sources conformance.ImageSources, address, ready string) error {
	references, err := exec.CommandContext(ctx, filepath.Join(sources.Programs, "e2e.test"), "--list-images").Output()
	if err != nil {
		return fmt.Errorf("images of e2e.test: %w", err)
	}
	registry, added, err := sources.Registry(strings.Fields(string(references)))
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := atomicfile.Write(ready, []byte(strings.Join(added, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
