package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/internal/cli"
	"kubernetes-release/preflight"
)

func newPolicyCommand() *cobra.Command {
	var policy policyFlags
	var role string
	command := &cobra.Command{
		Use:   "iam-policy --role control|worker --cluster NAME",
		Short: "Print the IAM policy that machines with a role require",
		RunE: func(command *cobra.Command, _ []string) error {
			if err := policy.read(); err != nil {
				return err
			}
			o := policy.options
			o.Role = preflight.Role(role)
			document, err := aws.NewPolicy(o)
			if err != nil {
				return cli.Usagef("%w", err)
			}
			content, err := document.JSON()
			if err != nil {
				return err
			}
			if o.Role == preflight.Control && o.VPC == "" && !o.WideOpen {
				fmt.Fprintln(
					command.ErrOrStderr(),
					"cloud-preflight: without --vpc this policy allows creating security groups in all VPCs of the "+
						"account",
				)
			}
			if o.WideOpen {
				fmt.Fprintln(
					command.ErrOrStderr(),
					"cloud-preflight: this policy allows everything: use it for experiments, not for production",
				)
			}
			_, err = command.OutOrStdout().Write(content)
			return err
		},
	}
	policy.register(command)
	flags, o := command.Flags(), &policy.options
	flags.StringVar(&role, "role", "", "`ROLE` of the machines: control or worker")
	flags.StringVar(&o.Cluster, "cluster", "", "`NAME` of the cluster; the policy is restricted to its tag")
	flags.StringVar(&o.Partition, "partition", "aws", "aws, aws-cn, aws-us-gov or aws-eusc")
	flags.StringVar(
		&o.RoleName,
		"role-name",
		"",
		"`NAME` of the IAM role, which can then ask IAM about itself (default kubernetes-ROLE)",
	)
	flags.StringVar(&o.VPC, "vpc", "", "`ID` of the only VPC in which security groups may be created (default all)")
	flags.BoolVar(
		&o.AssumedRole, "assumed-role", false,
		"print the policy of the role in the configuration's RoleARN, in place of the one of the instance profile",
	)
	flags.BoolVar(
		&o.WideOpen, "wide-open", false,
		"allow everything in EC2, load balancers and ECR: for experiments, not for production",
	)
	return command
}
