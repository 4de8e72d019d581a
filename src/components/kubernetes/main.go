// Command kubernetes holds the Kubernetes programs and metrics-server in
// one binary and runs the one whose name it was called by, as upstream's main
// function does. One link instead of seven makes the release a third of the
// size and lets the programs of a VM share their text pages.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's client auth plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	metrics "sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

// servers builds a program's command only when it is the one to run: each
// registers flags and metrics in process-wide registries.
var servers = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// others are the programs whose own main functions do not call cli.Run.
var others = map[string]func(){"kubectl": runKubectl, "metrics-server": runMetricsServer}

func main() {
	name := filepath.Base(os.Args[0])
	if run, ok := others[name]; ok {
		run()
		return
	}
	build, ok := servers[name]
	if !ok {
		names := slices.Collect(maps.Keys(others))
		for n := range servers {
			names = append(names, n)
		}
		slices.Sort(names)
		fmt.Fprintf(
			os.Stderr, "Error: called as %q; call it through a link named %s\n", name, strings.Join(names, ", "),
		)
		os.Exit(2)
	}
	os.Exit(cli.Run(build()))
}

// proxyCommand leaves out the process-wide flags, which are those of cAdvisor, a part of kubelet.
func proxyCommand() *cobra.Command {
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	return proxy.NewProxyCommand()
}

func runKubectl() {
	_, _ = logs.GlogSetter(
		cmd.GetLogVerbosity(os.Args),
	) // as kubectl's own main: verbosity counts while commands are built
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

func runMetricsServer() {
	logs.InitLogs()
	err := metrics.NewMetricsServerCommand(server.SetupSignalHandler()).Execute()
	logs.FlushLogs()
	if err != nil {
		os.Exit(1) // it has been printed; upstream's main function panics
	}
}
