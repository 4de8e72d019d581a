package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/internal/cli"
	"kubernetes-release/preflight/runner"
)

// policyFlags are the options of policies that iam-policy and account have in common.
type policyFlags struct {
	options           aws.PolicyOptions
	config, published string
	noStorage         bool
	set               *pflag.FlagSet
}

func (f *policyFlags) register(command *cobra.Command) {
	f.set = pflag.NewFlagSet("policy", pflag.ContinueOnError)
	f.set.StringVar(
		&f.config,
		"cloud-config",
		"",
		"the cloud controller's configuration `FILE` (property config of the job cloud-provider), which adds and "+
			"removes permissions",
	)
	f.set.BoolVar(&f.options.CloudRoutes, "cloud-routes", false, "include the permissions to write pod routes")
	f.set.BoolVar(
		&f.noStorage, "no-storage", false,
		"leave out the permissions of the EBS CSI driver, which control machines require with ops-files/aws.yml",
	)
	f.set.StringSliceVar(
		&f.options.Keys,
		"key",
		nil,
		"`ARN` of a customer managed key that volumes are encrypted with; can be repeated",
	)
	f.set.StringSliceVar(
		&f.options.Secrets,
		"encryption-key",
		nil,
		"`ARN` of a key that Secrets in etcd are encrypted with (encryption.kms_key); can be repeated",
	)
	f.set.BoolVar(
		&f.options.LoadBalancerController, "load-balancer-controller", false,
		"include the permissions of the AWS Load Balancer Controller "+
			"(ops-files/enable-aws-load-balancer-controller.yml)",
	)
	f.set.StringVar(
		&f.published, "pod-roles", "",
		"`BUCKET[/PATH]` in which the keys of the issuer of service account tokens are published "+
			"(ops-files/enable-pod-roles.yml), with the path of the issuer",
	)
	command.Flags().AddFlagSet(f.set)
}

// read completes the options by what the flags refer to.
func (f *policyFlags) read() (err error) {
	f.options.Storage = !f.noStorage
	if f.noStorage && len(f.options.Keys) > 0 {
		return cli.Usagef("--key is for the EBS CSI driver, whose permissions --no-storage leaves out: use one of them")
	}
	if f.published != "" {
		bucket, path, _ := strings.Cut(f.published, "/")
		f.options.Published = issuer.Bucket{Name: bucket, Prefix: path}.Objects()
	}
	f.options.CloudConfig, err = runner.ReadCloudConfig(f.config)
	return err
}

// given are the flags of the command line as its words.
func (f *policyFlags) given() []string {
	var words []string
	f.set.VisitAll(func(flag *pflag.Flag) {
		name := "--" + flag.Name
		list, isList := flag.Value.(pflag.SliceValue)
		switch {
		case !flag.Changed:
		case isList:
			for _, value := range list.GetSlice() {
				words = append(words, name, value)
			}
		case flag.Value.String() == flag.NoOptDefVal:
			words = append(words, name)
		case flag.NoOptDefVal != "":
			words = append(words, name+"="+flag.Value.String())
		default:
			words = append(words, name, flag.Value.String())
		}
	})
	return words
}
