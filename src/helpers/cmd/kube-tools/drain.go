package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/cli"
	"kubernetes-release/kubeconfig"
	"kubernetes-release/node"
	"kubernetes-release/nodedrain"
)

// requestTimeout bounds each request, to leave time for others if an API server accepts it and never answers.
const requestTimeout = 10 * time.Second

func drainNode() *cobra.Command {
	command := &cobra.Command{
		Use:   "drain-node",
		Short: "Take this VM's node out of service and evict its pods",
		Long: `Take this VM's node out of service and evict its pods, as their budgets permit. The exit status is
1 only if the policy is fail and pods or volumes are left at the deadline: an API that does not answer must not keep
BOSH from stopping the VM.`,
	}
	config := requirePath(
		command, "kubeconfig", "kubelet's kubeconfig; if the file is missing, there is nothing to drain",
	)
	path := requirePath(command, "node", nodeUsage)
	timeout := timeoutFlag(command, 10*time.Minute, "how long pods and volumes can take")
	policy := command.Flags().
		String("policy", "force", "force deletes the pods that are left at the deadline, fail fails")
	delay := command.Flags().Duration("load-balancer-delay", 0, "how long load balancers need to send no more requests")
	deleted := command.Flags().Bool("vm-deleted", false, "the VM is about to be deleted, and not only stopped")
	logged(command, "the node is not drained", func(ctx context.Context, log *slog.Logger) error {
		if *policy != "force" && *policy != "fail" {
			return cli.Usagef("--policy is %q; it must be force or fail", *policy)
		}
		client, name, err := nodeClient(*config, *path)
		if err != nil {
			log.Error("not drained", "error", err)
			return nil
		}
		return nodedrain.Drain(ctx, client, nodedrain.Options{
			Node: name, VMDeleted: *deleted, Timeout: *timeout, Force: *policy == "force", LoadBalancerDelay: *delay,
		}, log)
	})
	return command
}

// nodeClient returns the kubelet's client and the name of its Node.
func nodeClient(config, path string) (kubernetes.Interface, string, error) {
	if _, err := os.Stat(config); errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("this VM has not joined the cluster: %w", err)
	}
	identity, err := node.Load(path)
	if err != nil {
		return nil, "", err
	}
	client, err := kubeconfig.ClientWithin(config, requestTimeout)
	return client, identity.Name, err
}
