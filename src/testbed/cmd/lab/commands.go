package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/client"
	"kubernetes-release/testbed/lab/deployment"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/instances"
	"kubernetes-release/testbed/lab/rotation"
	"kubernetes-release/testbed/lab/status"
	"kubernetes-release/testbed/lab/teardown"
)

func newCommand() *cobra.Command {
	p := &program{}
	root := &cobra.Command{
		Use:   "lab",
		Short: "Deploy the release on this machine, in a lab that simulates the Director and the cloud",
		Long: `The lab deploys the release tarball on one Linux machine, with network namespaces as VMs and a simulated
AWS. It follows the Director's order of events, so that what passes here passes under a Director. It
requires root.

INSTANCE is GROUP, GROUP/INDEX or GROUP/ID, as in control, control/0 or control/3f2c.`,
	}
	root.PersistentFlags().
		StringVar(&p.state, "state", ".lab", "`directory` of the lab; labs with different directories are independent")
	_ = root.MarkPersistentFlagDirname("state")
	root.PersistentFlags().StringVarP(
		&p.name, "deployment", "d", "",
		"`name` of a further deployment of the same Director, in the lab's network and account",
	)
	root.PersistentFlags().
		BoolVar(&p.verbose, "verbose", false, "show each variable, package and step; not -v, which sets a variable")
	root.AddCommand(
		p.up(),
		p.down(),
		p.emptyAccount(),
		p.errand(),
		p.cloud(), // the deployment
		p.status(),
		p.ssh(),
		p.logs(),
		p.client(),
		p.probe(), // access to it
		p.recreate(),
		p.action(
			"restart", "Stop and start the jobs of all instances or some, in the Director's order",
			func() director.Options { return director.Options{Action: director.Restart} },
		),
		p.action(
			"start", "Start stopped instances, and recreate VMs that stop --hard has deleted",
			func() director.Options { return director.Options{Action: director.Start} },
		),
		p.stop(),
		p.kill(),
		p.reboot(),
		p.rotateCA(),
		p.cpi(),
		p.cpiRelease(), // a cloud for another Director
	)
	return root
}

func (p *program) up() *cobra.Command {
	var input deployment.Input
	var errand string
	c := &cobra.Command{
		Use:   "up",
		Short: "Deploy, update, or continue a deploy that was interrupted",
		Long: `Deploys the release tarball, or several. A lab that already has a deployment is updated: only instances
that differ from the manifest are touched. A deploy that failed or was interrupted continues where it stopped.

Secrets and certificates that the manifest defines in 'variables' are generated and kept in
DIRECTORY/vars.yml.`,
		Example: `  lab up -o ops-files/single-vm.yml -o ops-files/aws.yml -o ops-files/lab.yml -o ops-files/lab-aws.yml
  lab up -o ops-files/aws.yml -o ops-files/lab.yml -o ops-files/lab-aws.yml -v cluster_name=test --errand smoke-tests`,
		RunE: p.run(
			creates, func(ctx context.Context, l *lab.Lab, _ []string) (int, error) {
				return deployment.Up(ctx, l, input, errand)
			},
		),
	}
	f := c.Flags()
	f.StringArrayVarP(&input.OpsFiles, "ops-file", "o", nil, "apply an ops-`file`; can be repeated")
	f.StringArrayVarP(&input.Vars, "var", "v", nil, "set a variable, `NAME=VALUE`; can be repeated")
	f.StringArrayVarP(&input.VarsFiles, "vars-file", "l", nil, "set the variables of a YAML `file`; can be repeated")
	f.StringVar(&input.Manifest, "manifest", "manifests/kubernetes.yml", "`file` with the deployment manifest")
	f.StringArrayVar(
		&input.CloudConfigs, "cloud-config", nil,
		"`file` with a cloud config, merged if repeated; defaults to OpenStack's with openstack.yml, else to AWS's",
	)
	f.StringArrayVar(
		&input.Releases,
		"release",
		[]string{".build/release/kubernetes.tgz"},
		"`file` with a release tarball; repeated if the manifest has several releases",
	)
	addFix(c, &input.Fix)
	f.StringVar(
		&errand,
		"errand",
		"",
		"run this `errand` after the deploy, unless it has already succeeded on the deployment as it is",
	)
	for _, name := range []string{"ops-file", "vars-file", "manifest", "cloud-config"} {
		_ = c.MarkFlagFilename(name, "yml", "yaml")
	}
	_ = c.MarkFlagFilename("release", "tgz")
	return c
}

func (p *program) emptyAccount() *cobra.Command {
	return &cobra.Command{
		Use:   "empty-account",
		Short: "Create a lab in whose AWS account nothing is prepared, and deploy nothing",
		Long: `Creates a lab with an AWS account that has a VPC with subnets and a Director, and nothing for a cluster:
no roles, no tags, no permission to pass roles to VMs. DIRECTORY/aws.env points AWS clients at it, such as
cloud-preflight account prepare. lab up deploys there; the cloud config must name what the account has.`,
		Args: cobra.NoArgs,
		RunE: p.run(creates, func(ctx context.Context, l *lab.Lab, _ []string) (int, error) {
			return 0, l.Account().CreateEmpty(ctx, l.Progress())
		}),
	}
}

func (p *program) down() *cobra.Command {
	var orderly, everything bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove the lab: VMs, network, processes and state",
		Long: `Removes everything that the lab has created on this machine, and fails if anything is left. Unpacked
releases, compiled packages and logs are kept for the next lab. With --deployment, it removes the VMs and
the state of that deployment only.`,
		RunE: p.run(removes, func(ctx context.Context, l *lab.Lab, _ []string) (int, error) {
			return 0, teardown.Down(ctx, l, orderly, everything)
		}),
	}
	c.Flags().BoolVar(&orderly, "orderly", false, "stop instances first, as bosh delete-deployment does")
	c.Flags().BoolVar(&everything, "all", false, "remove caches and logs too")
	return c
}

func (p *program) errand() *cobra.Command {
	var keepAlive bool
	c := &cobra.Command{
		Use:   "errand NAME",
		Short: "Run an errand",
		Long: `Runs an errand as bosh run-errand does: NAME is a job with bin/run, which runs on every instance that has
it, or an instance group with lifecycle errand. The exit code is the errand's, the highest if it ran on
several instances.`,
		Example: "  lab errand smoke-tests",
		Args:    cobra.ExactArgs(1),
		RunE: p.run(changes, func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			return deployment.Errand(ctx, l, arguments[0], keepAlive)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().BoolVar(&keepAlive, "keep-alive", false, "keep the VMs of an errand group after it has run")
	return c
}

// cloud is started by the lab itself.
func (p *program) cloud() *cobra.Command {
	return &cobra.Command{
		Use:    account.Argument,
		Short:  "Run the simulated cloud and DNS, inside the lab's network namespace",
		Hidden: true,
		RunE: p.run(
			reads, func(ctx context.Context, l *lab.Lab, _ []string) (int, error) { return 0, l.Account().Serve(ctx) },
		),
	}
}

func (p *program) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the API's address, instances, nodes, load balancers and volumes",
		Long: `Shows how to reach the cluster, instances and their processes as bosh instances --ps does, nodes, load
balancers and volumes. The exit code is 1 if an instance or the simulated cloud is not running.`,
		RunE: p.run(reads, func(ctx context.Context, l *lab.Lab, _ []string) (int, error) {
			healthy, err := status.Show(ctx, l)
			if err == nil && !healthy {
				return 1, nil
			}
			return 0, err
		}),
	}
}

func (p *program) ssh() *cobra.Command {
	c := &cobra.Command{
		Use:   "ssh INSTANCE [COMMAND [ARGUMENT...]]",
		Short: "Open a root shell on an instance, or run a command there",
		Long: `Opens a root shell on an instance, or runs a command there and exits with its exit code. Everything after
INSTANCE belongs to the command, so flags of the lab go before it.`,
		Example: `  lab ssh control/0
  lab ssh control/0 tail -n 5 /var/vcap/sys/log/kubelet/kubelet.log`,
		Args: cobra.MinimumNArgs(1),
		RunE: p.run(reads, func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			return instances.SSH(ctx, l, arguments[0], arguments[1:])
		}),
		ValidArgsFunction: p.completeInstance,
	}
	c.Flags().SetInterspersed(false)
	return c
}

func (p *program) logs() *cobra.Command {
	var lines int
	var follow bool
	c := &cobra.Command{
		Use:   "logs INSTANCE [JOB]",
		Short: "Show the last lines of an instance's logs",
		Example: `  lab logs control/0
  lab logs -f -n 100 control/0 kubelet`,
		Args: cobra.RangeArgs(1, 2),
		RunE: p.run(reads, func(_ context.Context, l *lab.Lab, arguments []string) (int, error) {
			job := ""
			if len(arguments) > 1 {
				job = arguments[1]
			}
			return 0, instances.Logs(l, arguments[0], job, lines, follow)
		}),
		ValidArgsFunction: p.completeInstanceAndJob,
	}
	c.Flags().IntVarP(&lines, "num", "n", 20, "`lines` of each file")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "continue to show lines as they are written")
	return c
}

func (p *program) client() *cobra.Command {
	c := &cobra.Command{
		Use:   "client COMMAND [ARGUMENT...]",
		Short: "Run a command on this machine that resolves names by the lab's DNS",
		Long: `Runs a command on this machine that resolves names by the lab's DNS, which resolves the names of load
balancers. Everything after COMMAND belongs to it, so flags of the lab go before it.`,
		Example: "  lab client curl http://HOST/",
		Args:    cobra.MinimumNArgs(1),
		RunE: p.run(
			reads,
			func(_ context.Context, l *lab.Lab, arguments []string) (int, error) {
				return 0, client.Run(l, arguments)
			},
		),
	}
	c.Flags().SetInterspersed(false)
	return c
}

func (p *program) probe() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "probe [INSTANCE]",
		Short: "Read, write and watch until interrupted, and report failures",
		Long: `Uses the API until interrupted (Ctrl-C), from an instance or from this machine: 10 reads and 10 writes a
second and a watch, by the API's name, on a connection that is kept, as client-go does, and as many requests
that are not retried. Then it prints how many of each kind failed, and the longest time without a successful one.`,
		Example: "  lab probe worker/0",
		Args:    cobra.MaximumNArgs(1),
		RunE: p.run(reads, func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			return 0, client.Probe(ctx, l, strings.Join(arguments, ""), asJSON)
		}),
		ValidArgsFunction: p.completeInstance,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON, on one line")
	return c
}

// addFix adds the flag --fix, which bosh deploy and bosh recreate have.
func addFix(c *cobra.Command, fix *bool) {
	c.Flags().BoolVar(fix, "fix", false, "recreate VMs that were lost, instead of failing")
}

// recreate is the action with a flag of its own.
func (p *program) recreate() *cobra.Command {
	options := &director.Options{Action: director.Recreate}
	c := p.action(
		"recreate", "Recreate the VMs of all instances or some; persistent disks are kept",
		func() director.Options { return *options },
	)
	addFix(c, &options.Fix)
	return c
}

// action is a command that does the same to all instances, or to those that its argument names.
func (p *program) action(name, short string, chosen func() director.Options) *cobra.Command {
	return &cobra.Command{
		Use:     name + " [INSTANCE]",
		Short:   short,
		Example: "  lab " + name + "\n  lab " + name + " control/0",
		Args:    cobra.MaximumNArgs(1),
		RunE: p.run(changes, func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			options := chosen()
			if len(arguments) > 0 {
				options.Targets = arguments[0]
			}
			return 0, deployment.Act(ctx, l, options)
		}),
		ValidArgsFunction: p.completeInstance,
	}
}

func (p *program) stop() *cobra.Command {
	var hard bool
	c := p.action("stop", "Stop the jobs of all instances or some", func() director.Options {
		if hard {
			return director.Options{Action: director.Detach}
		}
		return director.Options{Action: director.Stop}
	})
	c.Flags().BoolVar(&hard, "hard", false, "delete the VMs too; persistent disks are kept")
	return c
}

func (p *program) kill() *cobra.Command {
	return &cobra.Command{
		Use:     "kill INSTANCE",
		Short:   "Kill a VM, as if it lost power",
		Long:    "Kills a VM, as if it lost power. lab up --fix replaces it.",
		Example: "  lab kill worker/0",
		Args:    cobra.ExactArgs(1),
		RunE: p.run(changes, func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			return 0, instances.Kill(ctx, l, arguments[0])
		}),
		ValidArgsFunction: p.completeInstance,
	}
}

func (p *program) reboot() *cobra.Command {
	var withoutDisk bool
	c := &cobra.Command{
		Use:   "reboot [INSTANCE...]",
		Short: "Power off the VMs of all instances or some at the same time, and power them on again",
		Long: `Powers VMs off, all at the same time, and on again. Disks are kept; processes, tmpfs and the state of the
network are gone. As under a Director no pre-start runs: monit starts the processes.`,
		Example: "  lab reboot\n  lab reboot control/0 worker/1",
		Args:    cobra.ArbitraryArgs,
		RunE: p.run(changes, func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			return 0, instances.Reboot(ctx, l, arguments, withoutDisk)
		}),
		ValidArgsFunction: p.completeInstances,
	}
	c.Flags().BoolVar(&withoutDisk, "without-disk", false, "as if bosh-agent failed to mount the persistent disks")
	return c
}

func (p *program) rotateCA() *cobra.Command {
	var store string
	c := &cobra.Command{
		Use:   "rotate-ca STEP [CA...]",
		Short: "Do one step of the rotation of all CAs or some in a variables store, as CredHub does",
		Long: `Changes a variables store as CredHub changes its variables while CAs are rotated. STEP is add, switch or
remove, in this order; deploy after each of them. CA is the name of a variable; all CAs without one.

  add     generates a new version of each CA, which is trusted but signs nothing yet
  switch  issues all certificates of the CA again, with the new version
  remove  removes the old version`,
		Example:           "  lab rotate-ca add\n  lab rotate-ca switch --vars-store ~/kubernetes/vars.yml etcd_ca",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	ofLab := p.run(changes, func(_ context.Context, l *lab.Lab, arguments []string) (int, error) {
		return 0, rotateCAs(l.Out, l.VarsStore(), arguments[0], arguments[1:])
	})
	c.RunE = func(command *cobra.Command, arguments []string) error {
		if store == "" {
			return ofLab(command, arguments)
		}
		return rotateCAs(command.OutOrStdout(), store, arguments[0], arguments[1:])
	}
	c.Flags().
		StringVar(&store, "vars-store", "", "`file` of bosh deploy --vars-store, in place of that of the lab; "+
			"requires neither a lab nor root")
	_ = c.MarkFlagFilename("vars-store", "yml", "yaml")
	return c
}

// rotateCAs does one step of a rotation in a variables store, for the named CAs or for all.
func rotateCAs(out io.Writer, store, step string, names []string) error {
	names, err := rotation.Run(store, rotation.Step(step), names, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s. Deploy now.\n", step, strings.Join(names, ", "))
	return nil
}
