package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/launcher"
	"kubernetes-release/node"
	"kubernetes-release/node/join"
)

// attester returns the provider of that name if its machines can prove their identity, or nil.
func attester(provider string) cloud.Attester {
	a, _ := providers.All().Get(provider).(cloud.Attester)
	return a
}

// joinInterval is the time between two attempts to join.
const joinInterval = 2 * time.Second

func joinCluster() *cobra.Command {
	command := &cobra.Command{
		Use:   "join",
		Short: "Get the kubelet's first client certificate, unless it has one",
	}
	path := requirePath(command, "config", joinUsage)
	command.RunE = func(command *cobra.Command, _ []string) error {
		client, err := newJoinClient(*path)
		if err != nil {
			return err
		}
		return client.Join(command.Context())
	}
	return command
}

const joinUsage = "JSON file with this VM and the endpoint, config/join.json of the job kubelet"

func newJoinClient(path string) (*join.Client, error) {
	config, err := join.Load(path)
	if err != nil {
		return nil, err
	}
	identity, err := node.Load(config.Node)
	if err != nil {
		return nil, err
	}
	client := &join.Client{
		URL:            config.URL,
		CA:             config.CA,
		APIServer:      config.APIServer,
		Node:           identity.Name,
		SecretFile:     config.SecretFile,
		CertificateDir: config.CertificateDir,
		Kubeconfig:     config.Kubeconfig,
		TrustedCAs:     config.TrustedCAs,
		SigningCA:      config.SigningCA,
		Timeout:        config.Timeout.Std(),
		Interval:       joinInterval,
		Log:            slog.Default(),
		Now:            time.Now,
	}
	if a := attester(config.Provider); a != nil {
		client.Prover = join.SecretProver{Prover: a.NewProver(config.Cluster), SecretFile: config.SecretFile}
	} else {
		client.Prover = join.InstanceProver{Instance: config.Instance, SecretFile: config.SecretFile}
	}
	return client, nil
}

// renewTimeout limits the renewal of a kubelet's certificates, all kubelets of the deployment at the same time.
const renewTimeout = 5 * time.Minute

func renewKubeletCertificates() *cobra.Command {
	command := &cobra.Command{
		Use:   "renew-kubelet-certificates",
		Short: "Renew the kubelet's certificates, unless the CA that signs now has signed them",
	}
	path := requirePath(command, "config", joinUsage)
	ctl := requirePath(command, "restart", "script that stops and starts kubelet, with the arguments stop and start")
	process := requirePath(command, "process", "configuration of kubelet's process, config/flags.json")
	command.RunE = func(command *cobra.Command, _ []string) error {
		client, err := newJoinClient(*path)
		if err != nil || client.SigningCA == "" {
			return err
		}
		client.Timeout = renewTimeout
		connect := func() (kubernetes.Interface, error) { return kubeconfig.Client(client.Kubeconfig) }
		return client.Renew(command.Context(), connect, join.Kubelet{
			Running: func() (bool, error) { return launcher.Running(*process) },
			Restart: func(ctx context.Context) error {
				for _, action := range []string{"stop", "start"} {
					if err := runScript(ctx, *ctl, action); err != nil {
						return err
					}
				}
				return nil
			},
		})
	}
	return command
}
