package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/spf13/cobra"

	"kubernetes-release/cloud/aws/account"
	"kubernetes-release/internal/cli"
	"kubernetes-release/preflight"
	"kubernetes-release/preflight/runner"
)

// accountFlags are what all commands of account have.
type accountFlags struct {
	file, cluster string
	policy        policyFlags
	secrets       *preflight.Secrets
}

func (f *accountFlags) register(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(
		&f.file,
		"vars",
		"",
		"variables `FILE` of the cloud config, a copy of manifests/cloud-config/aws-vars.yml",
	)
	flags.StringVar(&f.cluster, "cluster", "", "`NAME` of the cluster")
	f.policy.register(command)
}

func (f *accountFlags) account(command *cobra.Command) (*account.Account, error) {
	if f.file == "" || f.cluster == "" {
		return nil, cli.Usagef("--vars and --cluster are required")
	}
	if err := f.policy.read(); err != nil {
		return nil, err
	}
	settings, err := account.ReadSettings(f.file, f.cluster)
	if err != nil {
		return nil, err
	}
	sdk, err := config.LoadDefaultConfig(command.Context(), config.WithDefaultRegion(settings.Region()))
	if err != nil {
		return nil, err
	}
	if sdk.Region == "" {
		return nil, errors.New("no region is configured: set AWS_REGION")
	}
	if region := settings.Region(); region != "" && region != sdk.Region {
		return nil, fmt.Errorf(
			"the AWS CLI's region is %s, but az1 is %s in %s: set AWS_REGION=%s, or correct az1 in the file",
			sdk.Region, settings.Zone, f.file, region,
		)
	}
	retrieve := sdk.Credentials.Retrieve
	sdk.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		keys, err := retrieve(ctx)
		f.secrets.Add(keys.SecretAccessKey, keys.SessionToken)
		return keys, err
	})
	a := account.New(sdk, settings, f.policy.options, command.OutOrStdout())
	a.Options = f.policy.given()
	return a, nil
}

func newAccountCommand(secrets *preflight.Secrets) *cobra.Command {
	flags := accountFlags{secrets: secrets}
	var output string
	var checks map[string]string
	command := &cobra.Command{
		Use:   "account --vars FILE --cluster NAME",
		Short: "Check an AWS account before a cluster's first VM exists, with your own credentials",
		Long: `Check what the account must contain for a cluster: roles, instance profiles and policies, what IAM
says about them and about the Director, the nodes' security group and its rules, subnets, their routes and network
ACLs. It changes nothing. The command prepare creates what is missing.

Credentials and region are those of the AWS CLI. The region must be that of the zone az1.
Exit codes: 0 if no check failed, 1 if a check failed, 2 if none failed, but not everything could be checked.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			json, err := asJSON(output)
			if err != nil {
				return err
			}
			a, err := flags.account(command)
			if err != nil {
				return err
			}
			a.Checks = map[string]preflight.Severity{}
			for id, severity := range checks {
				a.Checks[id] = preflight.Severity(severity)
			}
			report, err := a.Check(command.Context())
			if err != nil {
				return err
			}
			report.Clean()
			destination := runner.Output{
				JSON: json, Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr(),
			}
			if err := destination.Publish(report); err != nil {
				return err
			}
			switch report.Result {
			case preflight.RunFailed:
				return &cli.ExitError{Code: exitFailed}
			case preflight.RunError:
				return &cli.ExitError{Code: exitCouldNotRun, Err: errors.New("not everything could be checked")}
			}
			return nil
		},
	}
	flags.register(command)
	command.Flags().StringVar(&output, "output", "text", "`FORMAT` of the report: text or json")
	command.Flags().StringToStringVar(
		&checks, "check", nil, "severity of a check, `ID=warn` to accept what it finds, or ID=off; can be repeated",
	)
	command.AddCommand(newPrepareCommand(secrets), newTerraformCommand(secrets))
	return command
}

func newPrepareCommand(secrets *preflight.Secrets) *cobra.Command {
	flags := accountFlags{secrets: secrets}
	var dryRun, remove, replace bool
	var adopt []string
	command := &cobra.Command{
		Use:   "prepare --vars FILE --cluster NAME",
		Short: "Create what a cluster requires of the account",
		Long: `Create roles, instance profiles, policies, the nodes' security group with its rules, and the tags of
subnets, as docs/aws.md describes. Each step is printed. What exists already is left as it is, so the command can be
repeated, for example after an upgrade that changes the policies. Repeat it with the same options: it changes nothing if
a policy would lose statements, or has the tag of another cluster, or if a role, an instance profile or the security
group of that name exists and this command did not create it. The id of a new security group is written into the file.

Credentials and region are those of the AWS CLI. The region must be that of the zone az1.`,
		Example: `  cloud-preflight account prepare --vars aws-vars.yml --cluster prod --dry-run
  cloud-preflight account prepare --vars aws-vars.yml --cluster prod`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			a, err := flags.account(command)
			if err != nil {
				return err
			}
			a.Replace, a.Adopt = replace, adopt
			if remove {
				return a.Delete(command.Context(), dryRun)
			}
			return a.Prepare(command.Context(), dryRun)
		},
	}
	flags.register(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	command.Flags().BoolVar(
		&replace, "replace", false,
		"replace policies of the roles that would lose statements or are of another cluster",
	)
	command.Flags().StringArrayVar(
		&adopt, "adopt", nil,
		"use `role/NAME` or instance-profile/NAME, although this command did not create it; can be repeated",
	)
	command.Flags().BoolVar(&remove, "delete", false, "delete what this command has created, and list what it leaves")
	return command
}

func newTerraformCommand(secrets *preflight.Secrets) *cobra.Command {
	flags := accountFlags{secrets: secrets}
	command := &cobra.Command{
		Use:   "terraform --vars FILE --cluster NAME",
		Short: "Print what prepare creates as a Terraform configuration",
		Long: `Print what prepare creates as a configuration for Terraform's provider for AWS, for those who keep
their account in Terraform. It reads the account, to find out its number and the VPC, and changes nothing. Put the
output security_group into the file.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			a, err := flags.account(command)
			if err != nil {
				return err
			}
			return a.Terraform(command.Context(), command.OutOrStdout())
		},
	}
	flags.register(command)
	return command
}
