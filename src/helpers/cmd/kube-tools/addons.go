package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"kubernetes-release/control/addons"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/internal/nospace"
)

func applyAddons() *cobra.Command {
	command := &cobra.Command{
		Use:   "apply-addons",
		Short: "Apply directories of manifests and delete objects that are no longer in them",
	}
	path := requirePath(command, "kubeconfig", "kubeconfig of a member of system:masters")
	dirs := command.Flags().StringArray("dir", nil, "directory with manifests: *.yaml, *.yml, *.json; can be repeated")
	images := command.Flags().
		String("images", "", "JSON file that maps names to image references, for ${image:NAME} in manifests")
	controllerConfig := command.Flags().String("cloud-controller", "", controllerUsage)
	driverConfig := command.Flags().String("csi-driver", "", driverUsage)
	keepObsolete := command.Flags().
		Bool("keep-obsolete", false, "do not delete objects that are no longer in the directory")
	check := command.Flags().Bool("check", false, "only check the manifests, without the API server")
	members := etcdMembersFlag(command)
	timeout := timeoutFlag(command, 0, "for everything, including the wait for the API server")
	require(command, "dir", "timeout")
	command.RunE = func(command *cobra.Command, _ []string) error {
		addresses, err := members()
		if err != nil {
			return err
		}
		options := addons.Options{Dirs: *dirs, KeepObsolete: *keepObsolete, EtcdMembers: addresses, Timeout: *timeout}
		if *images != "" {
			loaded, err := addons.LoadImages(*images)
			if err != nil {
				return err
			}
			options.Images = loaded
		}
		if options.Objects, err = inPods(*controllerConfig, *driverConfig); err != nil {
			return err
		}
		if *check {
			return addons.Check(options, slog.Default())
		}
		config, err := kubeconfig.Load(*path)
		if err != nil {
			return err
		}
		_, err = addons.Apply(command.Context(), config, options, slog.Default())
		if err := nospace.Explain(noQuorumIsNoError(err)); err != nil {
			return fmt.Errorf("apply manifests in %s: %w", strings.Join(*dirs, ", "), err)
		}
		return nil
	}
	return command
}
