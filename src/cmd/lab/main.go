// Command lab runs the release's test bed on one Linux machine: a Director's order of events, VMs made of namespaces, and a simulated
// AWS. `lab help` lists its commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"kubernetes-release/lab"
	"kubernetes-release/lab/director"
	"kubernetes-release/lab/vm"
)

const usage = `usage: lab COMMAND [--state DIR] [FLAGS] [ARGUMENTS]

  up [-o FILE]… [-v NAME=VALUE]… [-l FILE]… [--manifest FILE] [--cloud-config FILE] [--release FILE]
     [--errand NAME]      deploy, update, or continue what was cut off; --errand runs an errand after it, unless it has
                          already succeeded on the deployment as it is
  down [--orderly] [--all]
                          remove everything; --orderly stops instances first as bosh delete-deployment does,
                          --all removes the caches too
  status                  instances and their processes
  ssh INSTANCE [COMMAND…] a root shell, or a command, on an instance (control, control/0, control/ID)
  logs [-n LINES] [-f] INSTANCE [JOB]
                          the ends of an instance's logs
  errand [--keep-alive] NAME
                          run an errand
  recreate [INSTANCE]     make VMs again; persistent disks are kept
  restart [INSTANCE]      stop and start jobs in a Director's order
  stop [--hard] [INSTANCE]
                          stop jobs; --hard removes the VMs too
  start [INSTANCE]        start what was stopped
  kill INSTANCE           end a VM at once, as if it lost power
  client COMMAND…         run a command on this machine with the lab's DNS

--state DIR is the lab's directory, .lab by default; labs with different directories do not disturb each other.
--verbose shows each variable, package and step of what changes the lab; by default variables and packages are one line each, and a
terminal shows steps only while they last.
`

func main() {
	vm.MaybeRunInit()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nError:", err)
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "\nInterrupted. Run the same command again to continue.")
		}
		code = max(code, 1)
	}
	os.Exit(code)
}

// command is one of the lab's commands: its flags and what it does with the rest of the arguments.
type command struct {
	// flags declares the command's own flags; may be nil.
	flags func(*flag.FlagSet)
	// least and most count the arguments; most is -1 for any number.
	least, most int
	// changes says that the command needs the lock; creates that it may make a new lab.
	changes, creates bool
	do               func(ctx context.Context, l *lab.Lab, arguments []string) (int, error)
}

func commands() map[string]command {
	var input lab.Input
	var errand string
	var orderly, everything, hard, keepAlive, follow bool
	var lines int
	act := func(action func() director.Action) command {
		return command{most: 1, changes: true, do: func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			options := director.Options{Action: action()}
			if len(arguments) > 0 {
				options.Targets = arguments[0]
			}
			return 0, l.Act(ctx, options)
		}}
	}
	stop := act(func() director.Action {
		if hard {
			return director.Detach
		}
		return director.Stop
	})
	stop.flags = func(f *flag.FlagSet) { f.BoolVar(&hard, "hard", false, "remove the VMs, keep the disks") }
	return map[string]command{
		"up": {
			changes: true, creates: true,
			flags: func(f *flag.FlagSet) {
				f.Var((*list)(&input.OpsFiles), "o", "ops-file, may be given several times")
				f.Var((*list)(&input.Vars), "v", "variable NAME=VALUE, may be given several times")
				f.Var((*list)(&input.VarsFiles), "l", "file of variables, may be given several times")
				f.StringVar(&input.Manifest, "manifest", "manifests/kubernetes.yml", "deployment manifest")
				f.StringVar(&input.CloudConfig, "cloud-config", "manifests/cloud-config/aws.yml", "cloud config")
				f.StringVar(&input.Release, "release", ".build/release/kubernetes.tgz", "release tarball")
				f.StringVar(&errand, "errand", "", "errand to run after the deploy when something has changed")
			},
			do: func(ctx context.Context, l *lab.Lab, _ []string) (int, error) { return l.Up(ctx, input, errand) },
		},
		"down": {
			changes: true,
			flags: func(f *flag.FlagSet) {
				f.BoolVar(&orderly, "orderly", false, "stop instances in order first")
				f.BoolVar(&everything, "all", false, "remove caches and logs too")
			},
			do: func(ctx context.Context, l *lab.Lab, _ []string) (int, error) {
				return 0, l.Down(ctx, orderly, everything)
			},
		},
		"status": {do: func(ctx context.Context, l *lab.Lab, _ []string) (int, error) {
			well, err := l.Status(ctx)
			if err == nil && !well {
				return 1, nil
			}
			return 0, err
		}},
		"ssh": {least: 1, most: -1, do: func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			return l.SSH(ctx, arguments[0], arguments[1:])
		}},
		"logs": {
			least: 1, most: 2,
			flags: func(f *flag.FlagSet) {
				f.IntVar(&lines, "n", 20, "lines of each file")
				f.BoolVar(&follow, "f", false, "go on showing what is added")
			},
			do: func(_ context.Context, l *lab.Lab, arguments []string) (int, error) {
				return 0, l.Logs(arguments[0], strings.Join(arguments[1:], ""), lines, follow)
			},
		},
		"errand": {
			least: 1, most: 1, changes: true,
			flags: func(f *flag.FlagSet) { f.BoolVar(&keepAlive, "keep-alive", false, "keep the VMs of an errand group") },
			do: func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
				return l.Errand(ctx, arguments[0], keepAlive)
			},
		},
		"recreate": act(func() director.Action { return director.Recreate }),
		"restart":  act(func() director.Action { return director.Restart }),
		"stop":     stop,
		"start":    act(func() director.Action { return director.Start }),
		"kill": {least: 1, most: 1, changes: true, do: func(ctx context.Context, l *lab.Lab, arguments []string) (int, error) {
			return 0, l.Kill(ctx, arguments[0])
		}},
		"client": {least: 1, most: -1, do: func(_ context.Context, l *lab.Lab, arguments []string) (int, error) {
			return 0, l.Client(arguments)
		}},
		lab.CloudArgument: {do: func(ctx context.Context, l *lab.Lab, _ []string) (int, error) { return 0, l.RunCloud(ctx) }},
	}
}

func run(ctx context.Context, arguments []string) (int, error) {
	if len(arguments) == 0 || slices.Contains([]string{"help", "-h", "--help"}, arguments[0]) {
		fmt.Print(usage)
		return 0, nil
	}
	name := arguments[0]
	c, known := commands()[name]
	if !known {
		fmt.Fprint(os.Stderr, usage)
		return 2, fmt.Errorf("there is no command '%s'", name)
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	state := flags.String("state", ".lab", "the lab's directory")
	verbose := flags.Bool("verbose", false, "show each variable, package and step")
	if c.flags != nil {
		c.flags(flags)
	}
	if err := flags.Parse(arguments[1:]); err != nil {
		fmt.Fprint(os.Stderr, usage)
		return 2, err
	}
	rest := flags.Args()
	if len(rest) < c.least || c.most >= 0 && len(rest) > c.most {
		fmt.Fprint(os.Stderr, usage)
		return 2, fmt.Errorf("'%s' with %d arguments: see above for what it wants", name, len(rest))
	}
	if os.Geteuid() != 0 {
		return 1, errors.New("the lab makes namespaces and interfaces, which needs root")
	}
	return dispatch(ctx, c, name, *state, *verbose, rest)
}

func dispatch(ctx context.Context, c command, name, state string, verbose bool, arguments []string) (int, error) {
	l, err := lab.Open(state, false)
	if err != nil && !(lab.IsNoLab(err) && c.creates) {
		if name == "down" && lab.IsNoLab(err) {
			fmt.Printf("There is no lab in %s; nothing to remove.\n", l.Dir)
			return 0, nil
		}
		return 1, err
	}
	if c.changes {
		release, err := l.Lock(name)
		if err != nil {
			return 1, err
		}
		defer release()
		if l, err = lab.Open(state, c.creates); err != nil { // again, now that nobody else changes it
			return 1, err
		}
		if err := l.OpenLog(); err != nil && name != "down" { // a full disk must not keep a lab from being removed
			return 1, err
		}
	}
	if c.changes {
		l.Verbose = verbose
		defer l.StartDisplay()()
	}
	return c.do(ctx, l, arguments)
}

// list collects the values of a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}
