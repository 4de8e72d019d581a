package instances

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/vm"
)

// SSH runs a command, or a login shell, as root on an instance. The exit code is the command's.
func SSH(ctx context.Context, l *lab.Lab, name string, argv []string) (int, error) {
	i, v, err := Find(l, name)
	if err != nil {
		return 0, err
	}
	if !v.Alive() {
		return 0, fmt.Errorf("the VM of %s is not running; `bin/lab reboot` boots it, `bin/lab up` creates another", i)
	}
	if len(argv) == 0 {
		argv = []string{"bash", "-l"}
	}
	err = v.Run(ctx, argv, vm.RunOptions{
		Env: map[string]string{
			"TERM": os.Getenv("TERM"),
		},
		Dir:    "/root",
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	var failed *vm.ExitError
	if errors.As(err, &failed) {
		return failed.Code, nil
	}
	return 0, err
}

// Logs shows the ends of the logs of an instance, of one job or all. With follow it goes on showing what is added.
func Logs(l *lab.Lab, name, job string, lines int, follow bool) error {
	i, v, err := Find(l, name)
	if err != nil {
		return err
	}
	root := v.HostPath(bosh.DefaultRoot.Path("sys/log"))
	files, err := logFiles(root, job)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		jobs, _ := os.ReadDir(root)
		var known []string
		for _, entry := range jobs {
			known = append(known, entry.Name())
		}
		return fmt.Errorf(
			"instance %s has no logs of the job '%s'; there are logs of: %s", i, job, strings.Join(known, ", "),
		)
	}
	arguments := []string{"-n", fmt.Sprint(lines), "-v"}
	if follow {
		arguments = append(arguments, "-F")
	}
	command := exec.Command("tail", append(append(arguments, "--"), files...)...)
	command.Dir = root
	return lab.Exec(command)
}

// logFiles lists the files below a log directory, by the time of their last line.
func logFiles(root, job string) ([]string, error) {
	type file struct {
		path string
		time time.Time
	}
	var found []file
	err := filepath.WalkDir(filepath.Join(root, job), func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return nil //nolint:nilerr // a log that has just been rotated away
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found = append(found, file{name, info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, err
	}
	sort.Slice(found, func(a, b int) bool { return found[a].time.Before(found[b].time) })
	names := make([]string, 0, len(found))
	for _, f := range found {
		names = append(names, f.path)
	}
	return names, nil
}

// Kill ends an instance's VM at once, as when a machine loses power. The next `up` creates another one.
func Kill(ctx context.Context, l *lab.Lab, name string) error {
	i, v, err := Find(l, name)
	if err != nil {
		return err
	}
	if err := v.Kill(ctx); err != nil {
		return err
	}
	fmt.Fprintf(
		l.Out,
		"The VM of %s is dead; `bin/lab reboot` boots it again; `bin/lab up` or `bin/lab recreate`, with --fix, "+
			"creates another one with the same persistent disk\n",
		i,
	)
	return nil
}

// Reboot powers VMs off, all at the same time, and on again: those of the instances that a name means, all if there is
// no name. Disks are kept, and no pre-start runs. With withoutDisk the agents do not mount the persistent disks.
func Reboot(ctx context.Context, l *lab.Lab, names []string, withoutDisk bool) error {
	boot := agent.Boot
	if withoutDisk {
		boot = agent.BootWithoutDisk
	}
	machines, err := machines(l, names)
	if err != nil {
		return err
	}
	progress := l.Progress()
	for _, phase := range []struct {
		name string
		do   func(context.Context, *vm.VM) error
	}{
		{"Powering off", func(ctx context.Context, v *vm.VM) error { return v.Kill(ctx) }},
		{"Powering on", boot},
	} {
		var group errgroup.Group
		for _, v := range machines {
			group.Go(func() error {
				task := progress.Begin(phase.name, v.Spec.Name)
				err := phase.do(ctx, v)
				task.End(err)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	fmt.Fprintf(l.Out, "\nRebooted %d VMs; monit starts their processes.\n", len(machines))
	return nil
}

// machines returns the VMs of the instances that a name means, all if there is no name.
func machines(l *lab.Lab, names []string) ([]*vm.VM, error) {
	store, err := State(l)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = []string{""}
	}
	machines := map[string]*vm.VM{}
	for _, name := range names {
		found, err := store.State.Find(name)
		if err != nil {
			return nil, err
		}
		for _, i := range found {
			if i.VM == nil {
				continue
			}
			v, err := openVM(l, i)
			if err != nil {
				return nil, err
			}
			machines[i.VM.Name] = v
		}
	}
	if len(machines) == 0 {
		return nil, errors.New("none of the instances has a VM")
	}
	return slices.Collect(maps.Values(machines)), nil
}
