// Command bpm stands in for bpm-release's program in the lab; see package bpm.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"kubernetes-release/lab/bpm"
)

const usage = `usage: bpm start|stop|pid|run JOB [-p PROCESS] [-e NAME=VALUE]...
       bpm list`

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// arguments are what follows the command, flags before or after the job's name.
type arguments struct {
	job, process string
	env          []string
}

func parse(args []string) (arguments, error) {
	var a arguments
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		switch name {
		case "-p", "--process", "-e", "--env":
			if !joined {
				if i++; i == len(args) {
					return a, fmt.Errorf("%s needs a value\n%s", name, usage)
				}
				value = args[i]
			}
			if name == "-p" || name == "--process" {
				a.process = value
			} else {
				a.env = append(a.env, value)
			}
		default:
			if strings.HasPrefix(args[i], "-") || a.job != "" {
				return a, fmt.Errorf("unexpected argument %q\n%s", args[i], usage)
			}
			a.job = args[i]
		}
	}
	if a.job == "" {
		return a, errors.New("no job given\n" + usage)
	}
	return a, nil
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("no command given\n" + usage)
	}
	switch args[0] {
	case "sandbox":
		if len(args) == 2 {
			return 1, bpm.RunSandbox(args[1])
		}
	case "list":
		return 0, list()
	case "start", "stop", "pid", "run":
		a, err := parse(args[1:])
		if err != nil {
			return 2, err
		}
		p, err := bpm.Find(a.job, a.process)
		if err != nil {
			return 1, err
		}
		return command(args[0], p, a)
	}
	return 2, fmt.Errorf("unknown command %q\n%s", args[0], usage)
}

func command(name string, p *bpm.Process, a arguments) (int, error) {
	switch name {
	case "start":
		return 0, p.Start()
	case "stop":
		return 0, p.Stop()
	case "run":
		return p.Run(a.env, os.Stdin, os.Stdout, os.Stderr)
	}
	pid := p.PID()
	if pid == 0 {
		return 1, fmt.Errorf("process %s of job %s is not running", p.Config.Name, p.Job)
	}
	fmt.Println(pid)
	return 0, nil
}

func list() error {
	processes, err := bpm.List()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "Name\tPid\tStatus")
	for _, p := range processes {
		name, pid, status := p.Job, "-", "stopped"
		if p.Process != p.Job {
			name += ":" + p.Process
		}
		if p.PID != 0 {
			pid, status = fmt.Sprint(p.PID), "running"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", name, pid, status)
	}
	return table.Flush()
}
