// Command kube-launcher starts and stops the processes of this release from the flags that a job has rendered as data.
//
//	kube-launcher check|exec|start|stop CONFIG
//
// CONFIG is a job's config/flags.json; package launcher says what it holds and what the commands do. Exit status: 0 done,
// 1 with what is wrong on standard error, 2 for wrong arguments.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"kubernetes-release/helpers/launcher"
)

const usage = `Usage: kube-launcher COMMAND CONFIG

CONFIG is a job's flags file, /var/vcap/jobs/JOB/config/flags.json.

Commands:
  check  judge configuration, certificates and flags; start and stop nothing
  exec   wait for what the process needs, then become the process
  start  run the process as a daemon and return when it is ready
  stop   end the process that start started
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, arguments []string) int {
	if len(arguments) == 1 && (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
		fmt.Print(usage)
		return 0
	}
	command, err := choose(arguments)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kube-launcher: %v\n\n%s", err, usage)
		return 2
	}
	if err := command(ctx, arguments[1]); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		return 1
	}
	return 0
}

func choose(arguments []string) (func(context.Context, string) error, error) {
	if len(arguments) != 2 {
		return nil, fmt.Errorf("want a command and a file, got %q", arguments)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the launcher's own program: %w", err)
	}
	l := launcher.New(self, os.Stderr)
	command, ok := map[string]func(context.Context, string) error{"check": l.Check, "exec": l.Exec, "start": l.Start, "stop": l.Stop}[arguments[0]]
	if !ok {
		return nil, errors.New("unknown command " + arguments[0])
	}
	return command, nil
}
