package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// apiServerCommand is that of kube-apiserver (NewAPIServerCommand in cmd/kube-apiserver/app/server.go of Kubernetes),
// but keeps requests from using up its memory and processors, and clients from noticing that it stops, that etcd's
// leadership moves or that a member goes away, see docs/decisions/0044-limits-in-the-api-server.md,
// 0045-repeated-writes.md and 0047-writes-on-broken-connections.md.
func apiServerCommand() *cobra.Command {
	ctx := server.SetupSignalContext()
	opts := options.NewServerRunOptions()
	registry := opts.GenericServerRunOptions.ComponentGlobalsRegistry
	command := &cobra.Command{
		Use: "kube-apiserver", SilenceUsage: true, Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{}) // of requests to itself
			return registry.Set()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			gates := registry.FeatureGateFor(compatibility.DefaultKubeComponent)
			if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
				return err
			}
			flag.PrintFlags(command.Flags())
			completed, err := opts.Complete(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(completed.Validate()...); err != nil {
				return err
			}
			if all, ok := gates.(featuregate.MutableFeatureGate); ok {
				all.AddMetrics()
			}
			registry.AddMetrics()
			return runAPIServer(ctx, completed)
		},
	}
	command.SetContext(ctx)
	sets := opts.Flags()
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	flag.SetUsageAndHelpFunc(command, sets, 0)
	return command
}

// runAPIServer serves until ctx ends.
func runAPIServer(ctx context.Context, opts options.CompletedOptions) error {
	klog.InfoS("Version", "version", version.Get())
	config, err := apiserver.NewConfig(opts)
	if err != nil {
		return err
	}
	extra := &config.KubeAPIs.ControlPlane.Extra
	extra.ProxyTransport = limitPages(extra.ProxyTransport)
	for _, options := range []*generic.RESTOptionsGetter{
		&config.KubeAPIs.ControlPlane.Generic.RESTOptionsGetter, &config.Aggregator.GenericConfig.RESTOptionsGetter,
		&config.ApiExtensions.GenericConfig.RESTOptionsGetter, &config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter,
	} {
		repeatLostWrites(options)
	}
	outermost := config.Aggregator.GenericConfig
	chainOf := outermost.BuildHandlerChainFunc
	outermost.BuildHandlerChainFunc = func(next http.Handler, c *server.Config) http.Handler {
		return chainOf(limitPatches(next), c)
	}
	sendClientsAway(&outermost.Config)
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := apiserver.CreateServerChain(completed)
	if err != nil {
		return err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}
