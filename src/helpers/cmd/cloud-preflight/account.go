package main

import (
	"errors"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/spf13/cobra"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/account"
	"kubernetes-release/internal/cli"
)

func newAccountCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "account",
		Short: "Prepare an AWS account for a cluster, with your own credentials",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return cli.Usagef("name a command: prepare") },
	}
	command.AddCommand(newPrepareCommand())
	return command
}

func newPrepareCommand() *cobra.Command {
	var file, cluster string
	var dryRun, remove, noStorage bool
	var policy aws.PolicyOptions
	command := &cobra.Command{
		Use:   "prepare --vars FILE --cluster NAME",
		Short: "Create what a cluster requires of the account, before its first VM exists",
		Long: `Create roles, instance profiles, policies, the nodes' security group with its rules, and the tags of subnets, as docs/aws.md
describes. Each step is printed. What exists already is left as it is, so the command can be repeated, for example after an
upgrade that changes the policies. The id of a new security group is written into the file.

Credentials and region are those of the AWS CLI.`,
		Example: `  cloud-preflight account prepare --vars aws-vars.yml --cluster prod --dry-run
  cloud-preflight account prepare --vars aws-vars.yml --cluster prod`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if file == "" || cluster == "" {
				return cli.Usagef("--vars and --cluster are required")
			}
			policy.Storage = !noStorage
			settings, err := account.ReadSettings(file, cluster)
			if err != nil {
				return err
			}
			sdk, err := config.LoadDefaultConfig(command.Context(), config.WithDefaultRegion(settings.Region()))
			if err != nil {
				return err
			}
			if sdk.Region == "" {
				return errors.New("no region is configured: set AWS_REGION")
			}
			a := account.New(sdk, settings, policy, command.OutOrStdout())
			if remove {
				return a.Delete(command.Context(), dryRun)
			}
			return a.Prepare(command.Context(), dryRun)
		},
	}
	flags := command.Flags()
	flags.StringVar(&file, "vars", "", "variables `FILE` of the cloud config, a copy of manifests/cloud-config/aws-vars.yml")
	flags.StringVar(&cluster, "cluster", "", "`NAME` of the cluster")
	flags.BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	flags.BoolVar(&remove, "delete", false, "delete what this command has created")
	flags.BoolVar(&policy.CloudRoutes, "cloud-routes", false, "include the permissions to write pod routes")
	flags.BoolVar(&noStorage, "no-storage", false, "leave out the permissions of the EBS CSI driver")
	flags.StringSliceVar(&policy.Keys, "key", nil, "`ARN` of a customer managed key that volumes are encrypted with; can be repeated")
	return command
}
