package deployment

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/director"
)

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
		return false, explain(s.Lab, err)
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
	command := s.Command()
	fmt.Fprintln(s.Out, "\nTry next:")
	if access {
		kubectl := lab.Relative(s.Path("bin/kubectl")) + " --kubeconfig " + lab.Relative(s.Path("kubeconfig"))
		fmt.Fprintf(s.Out, "  %s get nodes,pods -A\n", kubectl)
	}
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if job.Job.Name == "smoke-tests" {
				fmt.Fprintf(s.Out, "  %s smoke-tests\n", command("errand"))
			}
		}
	}
	fmt.Fprintf(s.Out, "  %s\n", command("status"))
	if instances := s.director.Store.State.Instances; len(instances) > 0 {
		fmt.Fprintf(s.Out, "  %s %s\n", command("ssh"), instances[0].ShortName())
	}
	fmt.Fprintf(s.Out, "  . %s   (points any AWS client at the simulated cloud)\n", lab.Relative(s.Path("aws.env")))
	fmt.Fprintf(
		s.Out,
		"  %s curl http://HOST/   (HOST is the host name of a load balancer in `kubectl get service`)\n",
		command("client"),
	)
	fmt.Fprintf(s.Out, "  %s   (removes the lab)\n", command("down"))
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

var failedInstance = regexp.MustCompile(
	`(?:updating instance|post-deploy of|creating the VM of) ([^/\s]+)/[0-9a-f-]+(?: \((\d+)\))?`,
)

// explain adds to an error what the operator can do next.
func explain(l *lab.Lab, err error) error {
	parts := failedInstance.FindStringSubmatch(err.Error())
	if parts == nil {
		return err
	}
	instance := parts[1]
	if parts[2] != "" {
		instance += "/" + parts[2]
	}
	command := l.Command()
	return fmt.Errorf(
		"%w\n\nNext: `%s %s [JOB]` shows the logs, `%s %s` opens a shell.\nFix the cause and run the same command "+
			"again; it continues where it stopped",
		err,
		command("logs"),
		instance,
		command("ssh"),
		instance,
	)
}
