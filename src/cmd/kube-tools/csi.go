package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/helpers/csiregistration"
)

func registerCSIDriver() *cobra.Command {
	command := &cobra.Command{
		Use:   "register-csi-driver",
		Short: "Register a CSI driver with this VM's kubelet, and answer kubelet until stopped",
	}
	driver := command.Flags().String("driver", "", "name of the driver")
	if err := command.MarkFlagRequired("driver"); err != nil {
		panic(err) // the flag has just been added
	}
	endpoint := requirePath(command, "endpoint", "socket of the driver")
	socket := requirePath(command, "socket", "socket to create in the directory that kubelet watches")
	command.RunE = func(command *cobra.Command, _ []string) error {
		plugin := csiregistration.Plugin{Driver: *driver, Endpoint: *endpoint, Socket: *socket}
		return plugin.Serve(command.Context(), slog.Default())
	}
	return command
}
