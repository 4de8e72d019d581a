package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/lab/director"
	"kubernetes-release/lab/vm"
)

// state reads what the director remembers.
func (l *Lab) state() (*director.Store, error) {
	store, err := director.OpenState(l.path("state.json"))
	if err != nil {
		return nil, err
	}
	if len(store.State.Instances) == 0 {
		return nil, fmt.Errorf("nothing is deployed in %s; run `bin/lab up` first", l.Dir)
	}
	return store, nil
}

// instance finds the one instance that a name means, and its VM.
func (l *Lab) instance(name string) (*director.Instance, *vm.VM, error) {
	store, err := l.state()
	if err != nil {
		return nil, nil, err
	}
	found, err := store.State.Find(name)
	if err != nil {
		return nil, nil, err
	}
	if len(found) > 1 {
		var list []string
		for _, i := range found {
			list = append(list, fmt.Sprintf("%s/%d", i.Group, i.Index))
		}
		return nil, nil, fmt.Errorf("'%s' means several instances: %s", name, strings.Join(list, ", "))
	}
	i := found[0]
	if i.VM == nil {
		return nil, nil, fmt.Errorf("instance %s has no VM (it is %s)", i, i.DesiredState)
	}
	v, err := vm.Open(l.Dir, i.VM.Name)
	if err != nil {
		return nil, nil, fmt.Errorf("instance %s: %w", i, err)
	}
	return i, v, nil
}

// SSH runs a command, or a login shell, as root on an instance. The exit code is the command's.
func (l *Lab) SSH(ctx context.Context, name string, argv []string) (int, error) {
	i, v, err := l.instance(name)
	if err != nil {
		return 0, err
	}
	if !v.Alive() {
		return 0, fmt.Errorf("the VM of %s is not running; `bin/lab up` makes it again", i)
	}
	if len(argv) == 0 {
		argv = []string{"bash", "-l"}
	}
	err = v.Run(ctx, argv, vm.RunOptions{
		Env: map[string]string{"TERM": os.Getenv("TERM")}, Dir: "/root", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	var failed *vm.ExitError
	if errors.As(err, &failed) {
		return failed.Code, nil
	}
	return 0, err
}

// Logs shows the ends of the logs of an instance, of one job or all. With follow it goes on showing what is added.
func (l *Lab) Logs(name, job string, lines int, follow bool) error {
	i, v, err := l.instance(name)
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
		return fmt.Errorf("instance %s has no logs of the job '%s'; there are logs of: %s", i, job, strings.Join(known, ", "))
	}
	arguments := []string{"-n", fmt.Sprint(lines), "-v"}
	if follow {
		arguments = append(arguments, "-F")
	}
	command := exec.Command("tail", append(append(arguments, "--"), files...)...)
	command.Dir = root
	return replace(command)
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

// Kill ends an instance's VM at once, as when a machine loses power. The next `up` makes another.
func (l *Lab) Kill(ctx context.Context, name string) error {
	i, v, err := l.instance(name)
	if err != nil {
		return err
	}
	if err := v.Kill(ctx); err != nil {
		return err
	}
	fmt.Fprintf(l.Out, "The VM of %s is dead; `bin/lab up` or `bin/lab recreate` makes another, with the same disk\n", i)
	return nil
}

// replace turns this process into the command.
func replace(command *exec.Cmd) error {
	if command.Err != nil {
		return command.Err
	}
	if command.Dir != "" {
		if err := os.Chdir(command.Dir); err != nil {
			return err
		}
	}
	return fmt.Errorf("running %s: %w", command.Path, syscall.Exec(command.Path, command.Args, os.Environ()))
}
