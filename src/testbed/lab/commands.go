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
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab/director"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/volume"
)

// Up deploys the input: a first deploy, an update, or the continuation of one that was interrupted. Then it runs the
// errand, unless that is empty or has already succeeded on the deployment as it is. The exit code is the errand's.
func (l *Lab) Up(ctx context.Context, in Input, errand string) (int, error) {
	started, done := time.Now(), l.step("deploy")
	s, err := l.load(ctx, in)
	if err == nil {
		err = s.director.Prepare(ctx, s.plan)
	}
	if err != nil {
		return 0, errors.Join(err, l.abandon())
	}
	if err := s.remember(); err != nil {
		return 0, err
	}
	access, err := s.deploy(ctx, director.Options{}, started)
	if err != nil {
		return 0, err
	}
	done()
	if errand != "" && !s.director.ErrandSucceeded(errand) {
		done := l.step(errand)
		if code, err := s.runErrand(ctx, errand, false); code != 0 || err != nil {
			return code, err
		}
		done()
	}
	s.suggest(access)
	return 0, nil
}

// Act restarts, recreates, stops or starts instances by the manifest of the last deploy.
func (l *Lab) Act(ctx context.Context, options director.Options) error {
	started := time.Now()
	s, err := l.reload()
	if err != nil {
		return err
	}
	if _, err := s.director.Store.State.Find(options.Targets); err != nil {
		return err
	}
	if err := s.director.Prepare(ctx, s.plan); err != nil {
		return err
	}
	_, err = s.deploy(ctx, options, started)
	return err
}

// deploy updates instances to the prepared plan. It returns false if there is no kubeconfig; see writeAccess.
func (s *session) deploy(ctx context.Context, options director.Options, started time.Time) (bool, error) {
	account := s.Account()
	if err := account.Prepare(accountSettings(s.plan)); err != nil {
		return false, err
	}
	if err := account.Ensure(ctx, s.director.Progress); err != nil {
		return false, err
	}
	if usesAPIBalancer(s.plan) {
		if err := account.EnsureAPIBalancer(ctx); err != nil {
			return false, err
		}
	}
	touched, err := s.director.Deploy(ctx, s.plan, options)
	if err != nil {
		return false, s.explain(err)
	}
	if options.Action == director.None { // after an action, instances that it did not target may still use old releases
		if err := s.prune(); err != nil {
			return false, err
		}
	}
	access, err := s.writeAccess()
	if err != nil {
		return false, err
	}
	took := time.Since(started).Round(100 * time.Millisecond)
	switch {
	case touched == 0:
		fmt.Fprintf(s.Out, "\nNothing has changed; nothing was touched (%s).\n", took)
	case options.Action != director.None:
		fmt.Fprintf(s.Out, "\nDone (%s).\n", took)
	default:
		fmt.Fprintf(s.Out, "\nDeployed '%s' (%s).\n", s.plan.Manifest.Name, took)
	}
	return access, nil
}

// suggest prints what to try after a deploy.
func (s *session) suggest(access bool) {
	lab := s.command()
	fmt.Fprintln(s.Out, "\nTry next:")
	if access {
		kubectl := relative(s.path("bin/kubectl")) + " --kubeconfig " + relative(s.path("kubeconfig"))
		fmt.Fprintf(s.Out, "  %s get nodes,pods -A\n", kubectl)
	}
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if job.Job.Name == "smoke-tests" {
				fmt.Fprintf(s.Out, "  %s smoke-tests\n", lab("errand"))
			}
		}
	}
	fmt.Fprintf(s.Out, "  %s\n", lab("status"))
	if instances := s.director.Store.State.Instances; len(instances) > 0 {
		fmt.Fprintf(s.Out, "  %s %s/%d\n", lab("ssh"), instances[0].Group, instances[0].Index)
	}
	fmt.Fprintf(s.Out, "  . %s   (points any AWS client at the simulated cloud)\n", relative(s.path("aws.env")))
	fmt.Fprintf(
		s.Out,
		"  %s curl http://HOST/   (HOST is the host name of a load balancer in `kubectl get service`)\n",
		lab("client"),
	)
	fmt.Fprintf(s.Out, "  %s   (removes the lab)\n", lab("down"))
}

// command returns a function that words the command line of a command on this lab.
func (l *Lab) command() func(string) string {
	program := relative(l.Executable)
	state := ""
	if dir := relative(l.Dir); dir != ".lab" {
		state = " --state " + dir
	}
	return func(name string) string {
		return program + " " + name + state
	}
}

// relative shortens paths below the working directory.
func relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if r, err := filepath.Rel(dir, path); err == nil && !strings.HasPrefix(r, "..") {
		return r
	}
	return path
}

// CreateEmptyAccount starts the account of a lab in which nothing is deployed yet; see account.Account.PrepareEmpty.
func (l *Lab) CreateEmptyAccount(ctx context.Context) error {
	if err := l.Account().PrepareEmpty(); err != nil {
		return err
	}
	if err := l.Account().Ensure(ctx, l.progress()); err != nil {
		return err
	}
	return l.Account().WriteEnvironment()
}

// Errand runs an errand of the last deploy. The exit code is the errand's, the highest if it ran on several instances.
func (l *Lab) Errand(ctx context.Context, name string, keepAlive bool) (int, error) {
	s, err := l.reload()
	if err != nil {
		return 0, err
	}
	if err := s.director.Prepare(ctx, s.plan); err != nil {
		return 0, err
	}
	if err := s.Account().Ensure(ctx, s.director.Progress); err != nil {
		return 0, err
	}
	return s.runErrand(ctx, name, keepAlive)
}

func (s *session) runErrand(ctx context.Context, name string, keepAlive bool) (int, error) {
	results, err := s.director.RunErrand(ctx, s.plan, name, keepAlive, s.Out, s.Err)
	code := 0
	for _, r := range results {
		code = max(code, r.ExitCode)
		if r.Stdout != "" || r.Stderr != "" {
			fmt.Fprintf(s.Out, "\nInstance   %s\nExit Code  %d\nStdout\n%s", r.Instance, r.ExitCode, indent(r.Stdout))
			if r.Stderr != "" {
				fmt.Fprintf(s.Out, "Stderr\n%s", indent(r.Stderr))
			}
		}
	}
	if err != nil {
		return code, err
	}
	if code != 0 {
		fmt.Fprintf(s.Out, "\nErrand '%s' failed (exit code %d)\n", name, code)
	} else {
		fmt.Fprintf(s.Out, "\nErrand '%s' succeeded\n", name)
	}
	return code, nil
}

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

// Down removes the lab: VMs, network, cloud process and state. Unpacked releases, compiled packages and logs are kept
// for the next lab unless everything is set. With orderly, instances are stopped first, as `bosh delete-deployment`
// does.
func (l *Lab) Down(ctx context.Context, orderly, everything bool) error {
	progress := l.progress()
	if orderly {
		if err := l.stopOrderly(ctx); err != nil {
			fmt.Fprintf(l.Err, "Not everything could be stopped in order; removing it anyway: %v\n", err)
		}
	}
	volumes := volume.Store{StateDir: l.Dir}
	problems := []error{volumes.Unmount()}
	removed, err := l.destroyVMs(ctx, progress)
	problems = append(problems, err)
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
	problems = append(problems, l.awaitRemoval(ctx))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("the lab was not removed completely; run the command again:\n%w", err)
	}
	if err := l.removeState(everything); err != nil {
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
		fmt.Fprintf(l.Out, " Caches and logs are kept in %s.", relative(l.Dir))
	}
	fmt.Fprintln(l.Out)
	return nil
}

func (l *Lab) stopOrderly(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	s, err := l.reload()
	if err != nil {
		return err
	}
	return errors.Join(s.director.DeleteDeployment(ctx)...)
}

func (l *Lab) destroyVMs(ctx context.Context, progress *director.Progress) ([]string, error) {
	list, err := vm.List(l.Dir)
	if err != nil {
		return nil, err
	}
	var removed []string
	var problems []error
	for _, name := range list {
		task := progress.Begin("Removing VMs", name)
		err := vm.Remove(ctx, l.Dir, name)
		task.End(err)
		problems = append(problems, err)
		removed = append(removed, "VM "+name)
	}
	return removed, errors.Join(problems...)
}

// awaitRemoval gives the kernel some time to free what was removed. The error lists what is left after that.
func (l *Lab) awaitRemoval(ctx context.Context) error {
	return poll.Within(ctx, 10*time.Second, 100*time.Millisecond, func(context.Context) error {
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

func (l *Lab) removeState(everything bool) error {
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
			if err := os.RemoveAll(l.path(entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Client replaces this process by a command that resolves names by the lab's DNS.
func (l *Lab) Client(argv []string) error {
	if !l.Network.Exists() {
		return fmt.Errorf("the lab in %s is not running; run `bin/lab up` first", l.Dir)
	}
	resolver := l.path("resolv.conf")
	if err := atomicfile.Write(resolver, fmt.Appendf(nil, "nameserver %s\n", l.Network.Gateway()), 0o644); err != nil {
		return err
	}
	const script = `mount --make-rprivate / && mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"`
	command := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, resolver}, argv...)...)
	return replace(command)
}
