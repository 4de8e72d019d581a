package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/control/nodes/approver"
	"kubernetes-release/control/nodes/join"
	"kubernetes-release/control/nodes/labeler"
	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/node"
)

func nodeController() *cobra.Command {
	command := &cobra.Command{
		Use:   "node-controller",
		Short: "Let VMs join as nodes, label Nodes, and approve the certificates of kubelets until stopped",
	}
	path := requirePath(command, "kubeconfig", "kubeconfig of the identity that lets VMs join")
	configPath := requirePath(
		command, "config",
		"JSON file with the endpoint at which VMs join, config/join.json of the job node-controller",
	)
	metricsAddress := command.Flags().String("metrics-bind-address", "", "ADDRESS:PORT that serves metrics; required")
	require(command, "metrics-bind-address")
	command.RunE = func(command *cobra.Command, _ []string) error {
		hostname, err := os.Hostname()
		if err != nil {
			return err
		}
		settings, err := join.Load(*configPath)
		if err != nil {
			return err
		}
		if l, ok := providers.All().Get(settings.Provider).(cloud.Locator); ok {
			settings.Deployment.Locator = l.NewLocator(settings.CloudConfigFile)
		}
		authority, err := newAuthority(settings)
		if err != nil {
			return err
		}
		certificate, err := tls.LoadX509KeyPair(settings.Certificate, settings.PrivateKey)
		if err != nil {
			return fmt.Errorf("certificate %s with private key %s: %w", settings.Certificate, settings.PrivateKey, err)
		}
		client, err := kubeconfig.Client(*path)
		if err != nil {
			return err
		}
		// The random part is needed: in containers, two VMs may have the same host name, and both would lead.
		identity := fmt.Sprintf("%s_%s", hostname, uuid.NewUUID())
		listener, err := net.Listen("tcp", settings.Listen)
		if err != nil {
			return err
		}
		metricsListener, err := net.Listen("tcp", *metricsAddress)
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		instances := &labeler.Instances{
			Deployment:   settings.Deployment.Deployment,
			ControlGroup: settings.InstanceGroup,
			Taints:       settings.Taints,
			Locator:      settings.Deployment.Locator,
		}
		if attester(settings.Provider) != nil {
			instances.Cloud = authority
		}
		server := join.NewServer(client, authority, slog.Default())
		keeper := labeler.NewKeeper(client, instances, slog.Default())
		var approval approver.Metrics
		// Every instance lets VMs join and labels Nodes; one of them approves.
		group, ctx := errgroup.WithContext(command.Context())
		group.Go(func() error { return server.Serve(ctx, listener, certificate, settings.TLS) })
		group.Go(func() error { return keeper.Run(ctx) })
		group.Go(func() error {
			return approver.RunElected(ctx, client, authority, identity, &approval, slog.Default())
		})
		group.Go(func() error {
			return exposition.Serve(ctx, metricsListener, server.WriteMetrics, keeper.WriteMetrics, approval.Write)
		})
		return group.Wait()
	}
	return command
}

// newAuthority returns what knows the machines of a cluster.
func newAuthority(config join.Config) (node.Authority, error) {
	if config.Deployment.SecretFile == "" {
		return nil, errors.New(
			"deployment.secret_file is empty: no machine can join without the secret of the deployment",
		)
	}
	if a := attester(config.Provider); a != nil {
		return &join.Instances{Cloud: a.NewAuthority(config.Cluster, config.Roles), Deployment: &config.Deployment}, nil
	}
	return &config.Deployment, nil
}
