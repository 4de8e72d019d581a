package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/stopwatch"
)

const (
	// joinTimeout limits the copy of the database and the promotion. After it the process exits, and monit starts it
	// again.
	joinTimeout = 10 * time.Minute
	// promoteInterval is the time between two attempts to promote a learner.
	promoteInterval = 200 * time.Millisecond
	// learnerStopTimeout is the time between SIGTERM and SIGKILL.
	learnerStopTimeout = 10 * time.Second
)

// CommandLine returns etcd's command line with these values instead of the configured ones.
type CommandLine func(flags map[string]string) ([]string, error)

// Join returns when etcd can be started as a member with a vote, or as the first member of a new cluster. A member
// without a vote runs here until it has one: it refuses most requests ("rpc not supported for learner"), so that its
// port for clients must not be reachable from other VMs before.
func (c *Config) Join(ctx context.Context, etcd CommandLine, log *slog.Logger) error {
	var cluster []Member
	logged := heard(log)
	if err := c.repeat(ctx, log, func(ctx context.Context) (err error) {
		given, err := c.ask(ctx, c.others())
		if err != nil {
			return err
		}
		logged(given)
		cluster, err = c.mustJoin(given, log)
		return err
	}); err != nil || cluster == nil {
		return err
	}
	return c.runLearner(ctx, etcd, cluster, log)
}

// mustJoin returns the members of the cluster that this instance must join, none if it can be started. It changes
// nothing.
func (c *Config) mustJoin(given answers, log *slog.Logger) ([]Member, error) {
	data, err := c.hasData()
	if err != nil {
		return nil, poll.Permanent(err)
	}
	if c.left() && !c.kept(given) {
		return nil, poll.Permanent(c.hasLeft())
	}
	if data {
		entry, err := c.checkReturning(given)
		if err != nil {
			return nil, poll.Permanent(err)
		}
		if entry.IsLearner {
			return []Member{entry}, nil // its own list is in its data
		}
		return nil, nil
	}
	if err := c.unanswered(given); err != nil {
		return nil, err
	}
	given = given.given()
	if len(given) == 0 {
		if c.Bootstrap() {
			return nil, c.create(log)
		}
		return nil, c.nobodyAnswers()
	}
	for _, a := range given {
		entry, listed := a.lists(c.Self)
		switch {
		case !listed:
			err = c.notAdded(a) // a member that lags behind does not know it yet
		case entry.joined():
			return nil, poll.Permanent(c.lostData(a))
		default:
			return a.members, nil
		}
	}
	return nil, err
}

// runLearner runs etcd until this member has a vote. Only this VM reaches its port for clients.
func (c *Config) runLearner(ctx context.Context, etcd CommandLine, cluster []Member, log *slog.Logger) error {
	local, err := loopback(c.self().ClientURL)
	if err != nil {
		return err
	}
	line, err := etcd(map[string]string{
		"initial-cluster":       c.initialCluster(cluster),
		"initial-cluster-state": "existing",
		"listen-client-urls":    local,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(
		ctx, joinTimeout, fmt.Errorf("the member has no vote after %s", joinTimeout),
	)
	defer cancel()
	log.Info(
		"this member has no vote yet: it runs without clients until it has a copy of the data", "members",
		list(cluster),
	)
	took := stopwatch.Start()
	report := func(elapsed time.Duration, err error) {
		log.Info("waiting for the vote", "elapsed", elapsed.Round(time.Second), "reason", err)
	}
	var l *learner
	defer func() { l.stop() }()
	err = poll.Until(
		ctx,
		promoteInterval,
		poll.Reported(reportEvery, reportEvery, report, func(ctx context.Context) error {
			// etcd exits if it cannot resolve the other members' names, before bosh-dns runs.
			if l.ended() {
				if l != nil {
					if err := poll.Sleep(ctx, interval); err != nil {
						return err
					}
				}
				if l, err = startLearner(line); err != nil {
					return poll.Permanent(err)
				}
			}
			return c.promote(ctx)
		}),
	)
	if err != nil {
		return fmt.Errorf("etcd on %s has not become a member with a vote: %w", c.self(), err)
	}
	log.Info("this member has a vote", "took", took().Round(time.Millisecond))
	return nil
}

// initialCluster is the value of the flag: all members of the cluster, with this instance under the name of its flag.
func (c *Config) initialCluster(cluster []Member) string {
	var entries []string
	for _, m := range cluster {
		name := m.Name
		if name == "" {
			name = fmt.Sprintf("%x", m.ID) // not joined; etcd compares URLs only
		}
		for _, peer := range m.PeerURLs {
			if peer == c.Self {
				name = c.self().member()
			}
			entries = append(entries, name+"="+peer)
		}
	}
	return strings.Join(entries, ",")
}

// promote asks the other members for a vote of this one. It succeeds if it has one already.
func (c *Config) promote(ctx context.Context) error {
	given, err := c.ask(ctx, c.others())
	if err != nil {
		return err
	}
	via, members, err := c.reach(ctx, given)
	if err != nil {
		return err
	}
	defer via.done()
	entry, listed := find(members, c.Self)
	switch {
	case !listed:
		return fmt.Errorf("%s no longer lists this instance", via.Name)
	case !entry.joined():
		return errors.New("the member has not started yet")
	case !entry.IsLearner:
		return nil
	}
	return via.promote(ctx, entry.ID)
}

func loopback(clientURL string) (string, error) {
	parsed, err := url.Parse(clientURL)
	if err != nil {
		return "", err
	}
	parsed.Host = net.JoinHostPort("127.0.0.1", parsed.Port())
	return parsed.String(), nil
}

// learner is the process of a member without a vote. Its output is part of the log.
type learner struct {
	command *exec.Cmd
	exited  chan struct{}
}

func startLearner(line []string) (*learner, error) {
	command := exec.Command(line[0], line[1:]...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	l := &learner{command: command, exited: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(l.exited)
	}()
	return l, nil
}

// ended reports whether there is no process; l may be nil.
func (l *learner) ended() bool {
	if l == nil {
		return true
	}
	select {
	case <-l.exited:
		return true
	default:
		return false
	}
}

// stop ends the process and waits for it; l may be nil.
func (l *learner) stop() {
	if l.ended() {
		return
	}
	_ = l.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-l.exited:
	case <-time.After(learnerStopTimeout):
		_ = l.command.Process.Kill()
		<-l.exited
	}
}
