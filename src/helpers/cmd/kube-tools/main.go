// Command kube-tools holds what the release's jobs need from a client of Kubernetes or of etcd; see kube-tools --help.
// Logs go to standard error.
package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/logging"
)

func main() {
	log := logging.New(os.Stderr)
	slog.SetDefault(log)
	klog.SetSlogLogger(log)
	cli.Main(newCommand())
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kube-tools",
		Short: "Clients of Kubernetes and etcd for the release's jobs",
	}
	root.AddCommand(
		addDNSAddress(),
		applyAddons(),
		checkAPIServerVersion(),
		checkAlias(),
		checkCSIDriver(),
		checkCloudController(),
		checkDriverImage(),
		checkCorefile(),
		checkEtcdSpace(),
		checkKubeletVersion(),
		checkRotation(),
		checkSettings(),
		drainNode(),
		etcdMaintenance(),
		etcdSnapshot(),
		handleInterruptions(),
		interceptDNS(),
		ipSet(),
		joinCluster(),
		joinEtcd(),
		keepCertificates(),
		keepFirewall(),
		keepSettings(),
		kmsPlugin(),
		leaveEtcd(),
		moveEtcdLeader(),
		nodeController(),
		prepareEtcd(),
		prepareFlannel(),
		publishIssuer(),
		registerCSIDriver(),
		renewKubeletCertificates(),
		returnNode(),
		settleEtcd(),
		signKubeletCSRs(),
		smokeTest(),
		startKeys(),
		stopProcess(),
		forgetAllocation(),
		waitNode(),
		waitReady(),
		writeFiles(),
	)
	return root
}
