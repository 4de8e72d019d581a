package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/node"
	"kubernetes-release/node/drain"
	"kubernetes-release/node/object"
)

// requestTimeout bounds each request, to leave time for others if an API server accepts it and never answers.
const requestTimeout = 10 * time.Second

// deleteTimeout bounds how long drain-node tries to delete the Node.
const deleteTimeout = 10 * time.Second

func drainNode() *cobra.Command {
	command := &cobra.Command{
		Use:   "drain-node",
		Short: "Take this VM's node out of service and evict its pods, and delete the Node of a VM that is deleted",
		Long: `Take this VM's node out of service and evict its pods, as their budgets permit. If the VM is about
to be deleted, then stop kubelet and delete the Node. The exit status is 1 only if the policy is fail and pods or
volumes are left at the deadline, if the VM is about to be deleted while etcd refuses writes, or if the drain is
canceled, which takes the node back into service: an API that does not answer must not keep BOSH from stopping the VM.`,
	}
	config := requirePath(
		command, "kubeconfig", "kubelet's kubeconfig; if the file is missing, there is nothing to drain and to delete",
	)
	path := requirePath(command, "node", nodeUsage)
	run := requirePath(command, "run", "directory of the files leaving and undeployed of pre-stop, and of left")
	ctl := requirePath(command, "ctl", "script that stops kubelet with the argument stop")
	timeout := command.Flags().Duration("timeout", 0, "how long pods and volumes can take; 0s evicts none")
	policy := command.Flags().String("policy", "", "force deletes the pods that are left at the deadline, fail fails")
	require(command, "timeout", "policy")
	delay := command.Flags().Duration("load-balancer-delay", 0, "how long load balancers need to send no more requests")
	logged(command, "the node is not drained", func(ctx context.Context, log *slog.Logger) error {
		if *policy != "force" && *policy != "fail" {
			return cli.Usagef("--policy is %q; it must be force or fail", *policy)
		}
		steps := drain.Steps{
			Restore: func(ctx context.Context) error {
				client, name, err := nodeClient(*config, *path)
				if err != nil {
					return err
				}
				return drain.Restore(ctx, client, name, log)
			},
			StopKubelet: func(ctx context.Context) error { return runScript(ctx, *ctl, "stop") },
			DeleteNode: func(ctx context.Context) error {
				identity, err := node.Load(*path)
				if err != nil {
					return err
				}
				options := object.Options{Kubeconfig: *config, Name: identity.Name, Timeout: deleteTimeout}
				return object.Delete(ctx, options, log)
			},
		}
		steps.Drain = func(ctx context.Context, vmDeleted bool) error {
			if *timeout <= 0 {
				log.Info("not evicting pods", "timeout", *timeout)
				return nil
			}
			client, name, err := nodeClient(*config, *path)
			if err != nil {
				log.Error("not drained", "error", err)
				return nil
			}
			return drain.Drain(ctx, client, drain.Options{
				Node: name, VMDeleted: vmDeleted, Timeout: *timeout, Force: *policy == "force",
				LoadBalancerDelay: *delay,
			}, log)
		}
		return drain.Leave(ctx, *run, steps, log)
	})
	return command
}

// runScript runs a job's own script; what it prints is in the error.
func runScript(ctx context.Context, path, argument string) error {
	output, err := exec.CommandContext(ctx, path, argument).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", path, argument, err, output)
	}
	return nil
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
