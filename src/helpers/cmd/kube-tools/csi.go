package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/node"
	"kubernetes-release/node/csiregistration"
	"kubernetes-release/node/object"
)

// csiCheckTimeout limits check-csi-driver, which wait-ready repeats.
const csiCheckTimeout = 10 * time.Second

func registerCSIDriver() *cobra.Command {
	command := &cobra.Command{
		Use:   "register-csi-driver",
		Short: "Register a CSI driver with this VM's kubelet, and answer kubelet until stopped",
		Long: "Register a CSI driver with this VM's kubelet, and answer kubelet until stopped. It is registered when " +
			"the cloud-controller-manager has initialized the Node: kubelet sets the driver's zone on it, and an " +
			"admission policy refuses another one than the cloud's.",
	}
	driver := csiDriverFlags(command)
	socket := requirePath(command, "socket", "socket to create in the directory that kubelet watches")
	kubeconfigPath := requirePath(command, "kubeconfig", "kubelet's kubeconfig, which may appear later")
	nodePath := requirePath(command, "node", nodeUsage)
	command.RunE = func(command *cobra.Command, _ []string) error {
		identity, err := node.Load(*nodePath)
		if err != nil {
			return err
		}
		plugin := driver()
		plugin.Socket = *socket
		plugin.CheckNode = object.InitializedCheck(
			object.Options{Kubeconfig: *kubeconfigPath, Name: identity.Name, Timeout: time.Minute},
		)
		return plugin.Serve(command.Context(), slog.Default())
	}
	return command
}

func checkCSIDriver() *cobra.Command {
	command := &cobra.Command{
		Use:   "check-csi-driver",
		Short: "Check once whether a CSI driver answers and this VM's kubelet has registered it",
	}
	driver := csiDriverFlags(command)
	kubeconfigPath := requirePath(command, "kubeconfig", "kubelet's kubeconfig, which may appear later")
	nodePath := requirePath(command, "node", nodeUsage)
	command.RunE = func(command *cobra.Command, _ []string) error {
		identity, err := node.Load(*nodePath)
		if err != nil {
			return err
		}
		client, err := kubeconfig.Client(*kubeconfigPath)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(command.Context(), csiCheckTimeout)
		defer cancel()
		return driver().Check(ctx, client, identity.Name)
	}
	return command
}

// csiDriverFlags adds the flags that name a driver.
func csiDriverFlags(command *cobra.Command) func() csiregistration.Plugin {
	driver := command.Flags().String("driver", "", "name of the driver")
	require(command, "driver")
	endpoint := requirePath(command, "endpoint", "socket of the driver")
	return func() csiregistration.Plugin { return csiregistration.Plugin{Driver: *driver, Endpoint: *endpoint} }
}
