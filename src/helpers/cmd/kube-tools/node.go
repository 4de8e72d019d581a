package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/logging"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/node"
	"kubernetes-release/nodeobject"
)

const nodeUsage = "file with the node's configuration, a job's config/node.json"

func waitNode() *cobra.Command {
	command := &cobra.Command{
		Use:   "wait-node",
		Short: "Wait until this VM's Node is Ready",
	}
	kubeconfig := requirePath(command, "kubeconfig", "kubelet's kubeconfig, which may appear later")
	path := requirePath(command, "node", nodeUsage)
	members := etcdMembersFlag(command)
	timeout := timeoutFlag(command, 5*time.Minute, "how long to wait")
	command.RunE = func(command *cobra.Command, _ []string) error {
		identity, err := node.Load(*path)
		if err != nil {
			return err
		}
		options := nodeobject.Options{
			Kubeconfig:  *kubeconfig,
			Name:        identity.Name,
			EtcdMembers: members(),
			Timeout:     *timeout,
		}
		return noQuorumIsNoError(nodeobject.Wait(command.Context(), options, slog.Default()))
	}
	return command
}

func deleteNode() *cobra.Command {
	command := &cobra.Command{
		Use:   "delete-node",
		Short: "Delete this VM's Node",
	}
	kubeconfig := requirePath(
		command, "kubeconfig", "kubelet's kubeconfig; if the file is missing, there is nothing to delete",
	)
	path := requirePath(command, "node", nodeUsage)
	timeout := timeoutFlag(command, 10*time.Second, "how long to try")
	logged(command, "the Node is not deleted", func(ctx context.Context, log *slog.Logger) error {
		identity, err := node.Load(*path)
		if err != nil {
			return err
		}
		return nodeobject.Delete(
			ctx, nodeobject.Options{Kubeconfig: *kubeconfig, Name: identity.Name, Timeout: *timeout}, log,
		)
	})
	return command
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
