package main

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/control/etcd/members"
	"kubernetes-release/internal/logging"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/node"
	"kubernetes-release/node/drain"
	"kubernetes-release/node/object"
)

const (
	nodeUsage    = "file with the node's configuration, a job's config/node.json"
	pendingUsage = "file that exists while the node has not returned into service after a start"
)

func waitNode() *cobra.Command {
	command := &cobra.Command{
		Use:   "wait-node",
		Short: "Wait until this VM's Node is Ready, and take it back into service after a drain",
	}
	options := nodeOptions(command, "kubelet's kubeconfig, which may appear later")
	timeout := command.Flags().Duration("timeout", 0, "how long to wait; 0s is not at all")
	pending := requirePath(command, "pending", pendingUsage)
	etcd := command.Flags().
		String("etcd-config", "", "config/members.json of the job etcd; without the `FILE` no etcd runs on this VM")
	kubelet := command.Flags().String("kubelet-log", "", "`FILE` whose end to print if the Node is not Ready")
	controller := command.Flags().StringSlice(
		"controller-logs", nil, "`GLOBS` of the cloud controller manager's logs: also wait until it has initialized "+
			"the Node, and print the end of the newest if it has not",
	)
	command.RunE = func(command *cobra.Command, _ []string) error {
		options, err := options()
		if err != nil {
			return err
		}
		options.Timeout, options.Untainted = *timeout, len(*controller) > 0
		if config, err := members.Load(*etcd); err == nil {
			options.Full = config.Full
		}
		files := drain.Files{KubeletLog: *kubelet, ControllerLogs: *controller, Pending: *pending}
		return noQuorumIsNoError(drain.Return(command.Context(), options, files, slog.Default()))
	}
	return command
}

func returnNode() *cobra.Command {
	command := &cobra.Command{
		Use:   "return-node",
		Short: "Take this VM's Node back into service if wait-node could not, because etcd had no quorum",
	}
	options := nodeOptions(command, "kubelet's kubeconfig")
	pending := requirePath(command, "pending", pendingUsage)
	command.RunE = func(command *cobra.Command, _ []string) error {
		options, err := options()
		if err != nil {
			return err
		}
		return noQuorumIsNoError(drain.Finish(command.Context(), options, *pending, slog.Default()))
	}
	return command
}

// nodeOptions adds the flags that say which Node is this VM's, and returns a function that reads what they refer to.
func nodeOptions(command *cobra.Command, kubeconfigUsage string) func() (object.Options, error) {
	kubeconfig := requirePath(command, "kubeconfig", kubeconfigUsage)
	path := requirePath(command, "node", nodeUsage)
	members := etcdMembersFlag(command)
	return func() (object.Options, error) {
		identity, err := node.Load(*path)
		if err != nil {
			return object.Options{}, err
		}
		addresses, err := members()
		if err != nil {
			return object.Options{}, err
		}
		return object.Options{Kubeconfig: *kubeconfig, Name: identity.Name, EtcdMembers: addresses}, nil
	}
}

// alsoTo returns a logger that writes to a file too. If the file cannot be opened, it logs that, and the work goes on.
func alsoTo(path string, stderr io.Writer) (*slog.Logger, func()) {
	if path == "" {
		return slog.Default(), func() {}
	}
	file, err := rootfile.Append(path, 0o640)
	if err != nil {
		slog.Warn("logging to standard error only", "error", err)
		return slog.Default(), func() {}
	}
	return logging.New(io.MultiWriter(stderr, file)), func() { _ = file.Close() }
}
