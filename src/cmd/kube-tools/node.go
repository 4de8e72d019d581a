package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"kubernetes-release/helpers/node"
	"kubernetes-release/helpers/nodeobject"
)

func waitNode(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	kubeconfig := flags.String("kubeconfig", "", "the kubelet's kubeconfig; it may appear later")
	name := nodeFlags(flags)
	timeout := flags.Duration("timeout", 5*time.Minute, "how long to wait")
	untainted := flags.Bool("untainted", false, "also wait until the cloud-controller-manager has initialised the Node")
	if err := errors.Join(parse(flags, arguments, "kubeconfig"), positive("timeout", *timeout)); err != nil {
		return err
	}
	nodeName, err := name()
	if err != nil {
		return err
	}
	return nodeobject.Wait(ctx, nodeobject.Options{Kubeconfig: *kubeconfig, Name: nodeName, Timeout: *timeout, Untainted: *untainted}, slog.Default())
}

func deleteNode(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	kubeconfig := flags.String("kubeconfig", "", "the kubelet's kubeconfig; without it there is nothing to delete")
	name := nodeFlags(flags)
	timeout := flags.Duration("timeout", 10*time.Second, "how long to try")
	if err := errors.Join(parse(flags, arguments, "kubeconfig"), positive("timeout", *timeout)); err != nil {
		return err
	}
	nodeName, err := name()
	if err != nil {
		return err
	}
	return nodeobject.Delete(ctx, nodeobject.Options{Kubeconfig: *kubeconfig, Name: nodeName, Timeout: *timeout}, slog.Default())
}

// nodeFlags adds the flags by which a Node is named. What it returns gives the name once the flags are parsed.
func nodeFlags(flags *flag.FlagSet) func() (string, error) {
	identity := flags.String("node-identity", "", "file with the node's identity")
	name := flags.String("name", "", "the Node's name, instead of --node-identity")
	return func() (string, error) {
		if (*identity == "") == (*name == "") {
			return "", fmt.Errorf("%w: %s needs one of --node-identity and --name", errUsage, flags.Name())
		}
		if *identity == "" {
			return *name, nil
		}
		read, err := node.Read(*identity)
		return read.Name, err
	}
}
