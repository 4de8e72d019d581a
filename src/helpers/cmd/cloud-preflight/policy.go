package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/internal/cli"
	"kubernetes-release/issuer"
	"kubernetes-release/preflight"
	"kubernetes-release/preflight/runner"
)

func newPolicyCommand() *cobra.Command {
	var o aws.PolicyOptions
	var role, config, published string
	var noStorage bool
	command := &cobra.Command{
		Use:   "iam-policy --role control|worker --cluster NAME",
		Short: "Print the IAM policy that machines with a role require",
		RunE: func(command *cobra.Command, _ []string) error {
			o.Role = preflight.Role(role)
			o.Storage = !noStorage
			if noStorage && len(o.Keys) > 0 {
				return cli.Usagef(
					"--key is for the EBS CSI driver, whose permissions --no-storage leaves out: use one of them",
				)
			}
			if published != "" {
				bucket, path, _ := strings.Cut(published, "/")
				o.Published = issuer.Bucket{Name: bucket, Prefix: path}.Objects()
			}
			var err error
			if o.CloudConfig, err = runner.ReadCloudConfig(config); err != nil {
				return err
			}
			policy, err := aws.NewPolicy(o)
			if err != nil {
				return cli.Usagef("%w", err)
			}
			content, err := policy.JSON()
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
	flags := command.Flags()
	flags.StringVar(&role, "role", "", "`ROLE` of the machines: control or worker")
	flags.StringVar(&o.Cluster, "cluster", "", "`NAME` of the cluster; the policy is restricted to its tag")
	flags.StringVar(&o.Partition, "partition", "aws", "aws, aws-cn or aws-us-gov")
	flags.StringVar(
		&o.RoleName,
		"role-name",
		"",
		"`NAME` of the IAM role, which can then ask IAM about itself (default kubernetes-ROLE)",
	)
	flags.StringVar(&o.VPC, "vpc", "", "`ID` of the only VPC in which security groups may be created (default all)")
	flags.StringVar(
		&config,
		"cloud-config",
		"",
		"the cloud controller's configuration `FILE` (property config of the job cloud-provider), which adds and "+
			"removes permissions",
	)
	flags.BoolVar(
		&o.AssumedRole, "assumed-role", false,
		"print the policy of the role in the configuration's RoleARN, in place of the one of the instance profile",
	)
	flags.BoolVar(&o.CloudRoutes, "cloud-routes", false, "include the permissions to write pod routes")
	flags.BoolVar(
		&noStorage, "no-storage", false,
		"leave out the permissions of the EBS CSI driver, which control machines require with ops-files/aws.yml",
	)
	flags.StringSliceVar(
		&o.Keys,
		"key",
		nil,
		"`ARN` of a customer managed key that volumes are encrypted with; can be repeated",
	)
	flags.StringSliceVar(
		&o.Secrets,
		"encryption-key",
		nil,
		"`ARN` of a key that Secrets in etcd are encrypted with (encryption.kms_key); can be repeated",
	)
	flags.BoolVar(
		&o.LoadBalancerController, "load-balancer-controller", false,
		"include the permissions of the AWS Load Balancer Controller "+
			"(ops-files/enable-aws-load-balancer-controller.yml)",
	)
	flags.StringVar(
		&published, "pod-roles", "",
		"`BUCKET[/PATH]` in which the keys of the issuer of service account tokens are published "+
			"(ops-files/enable-pod-roles.yml), with the path of the issuer",
	)
	flags.BoolVar(
		&o.WideOpen, "wide-open", false,
		"allow everything in EC2, load balancers and ECR: for experiments, not for production",
	)
	return command
}
