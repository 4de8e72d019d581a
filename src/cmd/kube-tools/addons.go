package main

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/helpers/addons"
	"kubernetes-release/helpers/kubeconfig"
)

func applyAddons() *cobra.Command {
	command := &cobra.Command{
		Use:   "apply-addons",
		Short: "Apply directories of manifests and delete objects that are no longer in them",
	}
	path := requirePath(command, "kubeconfig", "kubeconfig of a cluster administrator")
	dirs := command.Flags().StringArray("dir", nil, "directory with manifests: *.yaml, *.yml, *.json; can be repeated")
	if err := command.MarkFlagRequired("dir"); err != nil {
		panic(err) // the flag has just been added
	}
	images := command.Flags().String("images", "", "JSON file that maps names to image references, for ${image:NAME} in manifests")
	keepObsolete := command.Flags().Bool("keep-obsolete", false, "do not delete objects that are no longer in the directory")
	members := etcdMembersFlag(command)
	timeout := timeoutFlag(command, 5*time.Minute, "for everything, including the wait for the API server")
	command.RunE = func(command *cobra.Command, _ []string) error {
		options := addons.Options{Dirs: *dirs, KeepObsolete: *keepObsolete, EtcdMembers: members(), Timeout: *timeout}
		if *images != "" {
			loaded, err := addons.LoadImages(*images)
			if err != nil {
				return err
			}
			options.Images = loaded
		}
		config, err := kubeconfig.Load(*path)
		if err != nil {
			return err
		}
		_, err = addons.Apply(command.Context(), config, options, slog.Default())
		if err := noQuorumIsNoError(err); err != nil {
			return fmt.Errorf("apply manifests in %s: %w", strings.Join(*dirs, ", "), err)
		}
		return nil
	}
	return command
}
