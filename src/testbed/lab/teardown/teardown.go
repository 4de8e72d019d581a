// Package teardown removes a lab, and checks that nothing of it is left on the machine.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/deployment"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/volume"
)

// Down removes the lab: VMs, network, cloud process and state. Unpacked releases, compiled packages and logs are kept
// for the next lab unless everything is set. With orderly, instances are stopped first, as `bosh delete-deployment`
// does. Of a further deployment it removes the VMs and the state only.
func Down(ctx context.Context, l *lab.Lab, orderly, everything bool) error {
	if l.Dir != l.Root {
		return removeDeployment(ctx, l, orderly)
	}
	deployments, err := l.Deployments()
	if err != nil {
		return err
	}
	volumes := volume.Store{StateDir: l.Root}
	var removed []string
	var problems []error
	if orderly {
		stopInOrder(ctx, deployments...)
	}
	problems = append(problems, volumes.Unmount())
	for _, d := range deployments {
		vms, err := destroyVMs(ctx, d)
		removed, problems = append(removed, vms...), append(problems, err)
	}
	if l.Account().Running() {
		removed = append(removed, "the cloud process")
	}
	problems = append(problems, l.Account().Stop(ctx), volumes.Release())
	if l.Network.Exists() {
		removed = append(
			removed,
			fmt.Sprintf(
				"network %s (namespace %s, interface %s)", l.Network.Prefix(), l.Network.Namespace(),
				l.Network.HostInterface(),
			),
		)
	}
	problems = append(problems, l.Network.Destroy())
	problems = append(problems, awaitRemoval(ctx, l))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("the lab was not removed completely; run the command again:\n%w", err)
	}
	if err := removeState(l, everything); err != nil {
		return err
	}
	if len(removed) == 0 {
		removed = append(removed, "files only: there was no VM, process or network")
	}
	fmt.Fprintf(l.Out, "\nRemoved:\n")
	for _, line := range removed {
		fmt.Fprintf(l.Out, "  %s\n", line)
	}
	fmt.Fprintf(l.Out, "Nothing of the lab is left on this machine.")
	if !everything {
		fmt.Fprintf(l.Out, " Caches and logs are kept in %s.", lab.Relative(l.Dir))
	}
	fmt.Fprintln(l.Out)
	return nil
}

// stopInOrder stops deployments as `bosh delete-deployment` does. What could not be stopped is removed anyway.
func stopInOrder(ctx context.Context, deployments ...*lab.Lab) {
	for _, l := range deployments {
		if err := deployment.Delete(ctx, l); err != nil {
			fmt.Fprintf(l.Err, "Not everything could be stopped in order; removing it anyway: %v\n", err)
		}
	}
}

// removeDeployment removes what a further deployment has of its own.
func removeDeployment(ctx context.Context, l *lab.Lab, orderly bool) error {
	if orderly {
		stopInOrder(ctx, l)
	}
	removed, err := destroyVMs(ctx, l)
	if err != nil {
		return fmt.Errorf("the deployment was not removed completely; run the command again:\n%w", err)
	}
	if err := os.RemoveAll(l.Dir); err != nil {
		return err
	}
	fmt.Fprintf(l.Out, "\nRemoved:\n  the state of the deployment %s\n", filepath.Base(l.Dir))
	for _, line := range removed {
		fmt.Fprintf(l.Out, "  %s\n", line)
	}
	return nil
}

func destroyVMs(ctx context.Context, l *lab.Lab) ([]string, error) {
	list, err := vm.List(l.Dir)
	if err != nil {
		return nil, err
	}
	var removed []string
	var problems []error
	for _, name := range list {
		task := l.Progress().Begin("Removing VMs", name)
		err := vm.Remove(ctx, l.Dir, name)
		task.End(err)
		problems = append(problems, err)
		removed = append(removed, "VM "+name)
	}
	return removed, errors.Join(problems...)
}

// awaitRemoval gives the kernel some time to free what was removed. The error lists what is left after that.
func awaitRemoval(ctx context.Context, l *lab.Lab) error {
	return poll.Within(ctx, time.Minute, 100*time.Millisecond, func(context.Context) error {
		left, err := vm.Leftovers(l.Network, l.Dir)
		if err != nil {
			return poll.Permanent(err)
		}
		if len(left) > 0 {
			return errors.New("still there:\n" + strings.Join(left, "\n"))
		}
		return nil
	})
}

// caches are kept for the next lab: they take time to create and hold no state. The logs are kept to be read.
var caches = map[string]bool{"compiled": true, "releases": true, "log": true, "lock": true}

func removeState(l *lab.Lab, everything bool) error {
	if everything {
		return os.RemoveAll(l.Dir)
	}
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return err
	}
	// lab.json, which names the lab's network, is removed last, so that an interrupted removal can be repeated.
	sort.Slice(
		entries, func(a, b int) bool { return entries[b].Name() == "lab.json" && entries[a].Name() != "lab.json" },
	)
	for _, entry := range entries {
		if !caches[entry.Name()] {
			if err := os.RemoveAll(l.Path(entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
