package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"kubernetes-release/control/shutdown"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/kubeconfig"
)

// leaseTimeout bounds the release of a lease.
const leaseTimeout = 10 * time.Second

func stopProcess() *cobra.Command {
	command := &cobra.Command{
		Use:   "stop-process",
		Short: "Stop a process of bpm before monit does, and release its lease",
	}
	job := requirePath(command, "job", "job whose process to stop")
	lease := command.Flags().
		String("lease", "", "`NAME` of the lease in kube-system that the process holds if it leads; requires "+
			"--kubeconfig")
	config := command.Flags().String("kubeconfig", "", "kubeconfig of the identity that holds the lease")
	command.MarkFlagsRequiredTogether("lease", "kubeconfig")
	timeout := timeoutFlag(command, time.Minute, "how long the process may take to exit")
	again := command.Flags().
		Duration("again-after", 0, "when to send a second SIGTERM, at which Kubernetes' servers exit at once; 0 "+
			"means never")
	logged(command, "the process is not stopped", func(ctx context.Context, log *slog.Logger) error {
		err := shutdown.Stop(
			ctx,
			shutdown.Options{
				BPM:        bosh.DefaultRoot.Job("bpm", "bin/bpm"),
				Job:        *job,
				Timeout:    *timeout,
				AgainAfter: *again,
				Progress:   5 * time.Second,
				Clock:      clock.RealClock{},
			},
			log,
		)
		if err != nil || *lease == "" {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
		defer cancel()
		client, err := kubeconfig.Client(*config)
		if err != nil {
			return err
		}
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		return shutdown.ReleaseLease(ctx, client, *lease, host, time.Now(), log)
	})
	return command
}

// logged adds the flag --log to a command of a drain script, whose output nobody sees, and runs it with that log.
func logged(command *cobra.Command, failure string, run func(context.Context, *slog.Logger) error) {
	file := command.Flags().String("log", "", "`FILE` to append the log to, in addition to standard error")
	command.RunE = func(command *cobra.Command, _ []string) error {
		log, closeLog := alsoTo(*file, command.ErrOrStderr())
		defer closeLog()
		err := run(command.Context(), log)
		if err != nil && *file != "" {
			log.Error(failure, "error", err)
		}
		return err
	}
}
