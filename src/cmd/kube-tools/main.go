// Command kube-tools holds what the release's jobs need from a client of Kubernetes or of etcd:
//
//	kube-tools approve-kubelet-csrs --kubeconfig FILE [--lease-namespace NAME] [--identity NAME]
//	kube-tools apply-addons --kubeconfig FILE --dir DIR [--images FILE] [--inventory NAME] [--timeout D] [--wait]
//	kube-tools wait-node --kubeconfig FILE (--node-identity FILE | --name NAME) [--timeout D] [--untainted]
//	kube-tools delete-node --kubeconfig FILE (--node-identity FILE | --name NAME) [--timeout D]
//	kube-tools smoke-test --config FILE
//	kube-tools check-etcd-start --config FILE
//	kube-tools check-etcd-leave --config FILE
//
// Exit status 0 on success, 1 when what was asked for did not succeed, 2 for wrong arguments. Logs go to standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"kubernetes-release/helpers/addons"
	"kubernetes-release/helpers/csrapproval"
)

type command struct {
	name string
	run  func(ctx context.Context, flags *flag.FlagSet, arguments []string) error
}

func commands() []command {
	return []command{
		{"approve-kubelet-csrs", approveKubeletCSRs},
		{"apply-addons", applyAddons},
		{"wait-node", waitNode},
		{"delete-node", deleteNode},
		{"smoke-test", smokeTest},
		{"check-etcd-start", checkEtcdStart},
		{"check-etcd-leave", checkEtcdLeave},
	}
}

// errUsage marks wrong arguments.
var errUsage = errors.New("wrong arguments")

func main() {
	log := newLog(os.Stderr)
	slog.SetDefault(log)
	klog.SetSlogLogger(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// The first signal ends the work in good order; a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "kube-tools:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "kube-tools:", err)
		os.Exit(1)
	}
}

// newLog writes structured lines with times in UTC.
func newLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			a.Value = slog.StringValue(a.Value.Time().UTC().Format(time.RFC3339))
		}
		return a
	}}))
}

func run(ctx context.Context, arguments []string) error {
	var names []string
	for _, c := range commands() {
		if len(arguments) > 0 && arguments[0] == c.name {
			flags := flag.NewFlagSet("kube-tools "+c.name, flag.ContinueOnError)
			return c.run(ctx, flags, arguments[1:])
		}
		names = append(names, c.name)
	}
	return fmt.Errorf("%w: got %q; the first must be one of %s", errUsage, arguments, strings.Join(names, ", "))
}

// parse reads flags, allows nothing else, and wants those that are required to have a value.
func parse(flags *flag.FlagSet, arguments []string, required ...string) error {
	flags.SetOutput(os.Stdout)
	switch err := flags.Parse(arguments); {
	case errors.Is(err, flag.ErrHelp):
		return err // the flags have been listed
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: %s takes flags only, got %q", errUsage, flags.Name(), flags.Args())
	}
	var missing []string
	flags.VisitAll(func(f *flag.Flag) {
		if slices.Contains(required, f.Name) && f.Value.String() == "" {
			missing = append(missing, "--"+f.Name)
		}
	})
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s needs %s", errUsage, flags.Name(), strings.Join(missing, ", "))
	}
	return nil
}

// positive is for durations, of which 0 or less would never let anything succeed.
func positive(name string, value time.Duration) error {
	if value <= 0 {
		return fmt.Errorf("%w: --%s is %s; it must be more than 0, such as 5m", errUsage, name, value)
	}
	return nil
}

func loadKubeconfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config.UserAgent = "kube-tools"
	return config, nil
}

func approveKubeletCSRs(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the identity that approves")
	namespace := flags.String("lease-namespace", "kube-system", "namespace of the lease by which one of several instances is chosen")
	identity := flags.String("identity", "", "this instance's name in the lease, different on each VM (default: host name and a random part)")
	if err := parse(flags, arguments, "kubeconfig", "lease-namespace"); err != nil {
		return err
	}
	if *identity == "" {
		// In a container two VMs may see the same host name and process id; two leaders would be the result.
		*identity = fmt.Sprintf("%s_%s", hostname, uuid.NewUUID())
	}
	config, err := loadKubeconfig(*kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return csrapproval.RunElected(ctx, client, csrapproval.Election{Namespace: *namespace, Identity: *identity}, slog.Default())
}

func applyAddons(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of a cluster administrator")
	dir := flags.String("dir", "", "folder with the manifests: *.yaml, *.yml, *.json")
	images := flags.String("images", "", "JSON file of short name to full reference, for ${image:NAME} in manifests")
	inventory := flags.String("inventory", addons.DefaultInventory, "name of the ConfigMap in kube-system that records what was applied; one for each folder")
	timeout := flags.Duration("timeout", 5*time.Minute, "for everything, waiting for the API server included")
	wait := flags.Bool("wait", false, "also wait until Deployments, DaemonSets and StatefulSets have rolled out")
	if err := errors.Join(parse(flags, arguments, "kubeconfig", "dir", "inventory"), positive("timeout", *timeout)); err != nil {
		return err
	}
	options := addons.Options{Dir: *dir, Inventory: *inventory, Timeout: *timeout, Wait: *wait}
	if *images != "" {
		loaded, err := addons.LoadImages(*images)
		if err != nil {
			return err
		}
		options.Images = loaded
	}
	config, err := loadKubeconfig(*kubeconfig)
	if err != nil {
		return err
	}
	if _, err := addons.Apply(ctx, config, options, slog.Default()); err != nil {
		return fmt.Errorf("apply manifests in %s: %w", *dir, err)
	}
	return nil
}
