package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/lab/network"
)

// Table is the list of faults, in the order in which they are injected.
func Table() []Fault {
	return []Fault{
		{Name: "each process of a control VM is killed", Aim: ProcessAim, inject: killEach(lastControl)},
		{Name: "each process of a worker is killed", Aim: ProcessAim, inject: killEach(firstWorker)},
		{Name: "the VM of etcd's leader loses power", Aim: LeaderAim, inject: losePower(etcdLeader)},
		{Name: "the VM of the controllers' leader loses power", Aim: LeaseAim, inject: losePower(controllersLeader)},
		{Name: "a worker loses power", Aim: monitorGracePeriod + toleration + PodsAim, inject: loseWorker},
		{Name: "a control VM is cut off", Aim: LeaderAim, inject: cutOff(etcdLeader, network.Everything)},
		{
			Name: "packets from a control VM are lost", Aim: LeaderAim,
			inject: cutOff(etcdLeader, network.Loss{From: 100}),
		},
		{Name: "packets to a control VM are lost", Aim: LeaderAim, inject: cutOff(etcdLeader, network.Loss{To: 100})},
		{
			Name:   "a worker is cut off",
			Aim:    monitorGracePeriod + toleration + PodsAim,
			inject: cutOffWorker(network.Everything),
		},
		{
			Name:   "packets from a worker are lost",
			Aim:    monitorGracePeriod + toleration + PodsAim,
			inject: cutOffWorker(network.Loss{From: 100}),
		},
		{
			Name:   "packets to a worker are lost",
			Aim:    monitorGracePeriod + toleration + PodsAim,
			inject: cutOffWorker(network.Loss{To: 100}),
		},
		{Name: "a tenth of all packets is lost", Aim: LeaderAim, inject: losePackets},
		{Name: "the persistent disk of a control VM is full", inject: fullDisk(lastControl, persistentDisk)},
		{Name: "the ephemeral disk of a control VM is full", inject: fullDisk(lastControl, ephemeralDisk)},
		{Name: "the root and ephemeral disks of a control VM are full", inject: fullDisk(lastControl, rootDisk)},
		{Name: "the ephemeral disk of a worker is full", inject: fullDisk(firstWorker, ephemeralDisk)},
		{Name: "the root and ephemeral disks of a worker are full", inject: fullDisk(firstWorker, rootDisk)},
		{Name: "etcd's disks are slow", inject: slowDisk},
		{Name: "etcd's quota is full", Aim: LeaseAim, inject: fillQuota},
		{Name: "a deploy while etcd's quota is full", inject: deployWhileFull},
		{Name: "the clock of a control VM jumps by an hour and back", inject: jumpClock(lastControl)},
		{Name: "the clock of a worker jumps by an hour and back", inject: jumpClock(firstWorker)},
		{
			Name:   "the cloud's API does not answer",
			inject: loseCloud("", "ec2:*", "elasticloadbalancing:*", "iam:*", "sts:*", "ecr:*", "s3:*"),
		},
		{Name: "instance metadata does not answer", inject: loseCloud("ebs-csi-node", "metadata:*")},
		{Name: "KMS does not answer", Aim: KMSAim, inject: loseKMS},
		{Name: "the bucket of the issuer does not answer", inject: loseIssuer},
		{Name: "all VMs reboot at once", inject: rebootAll},
		{Name: "the Director dies in the middle of an update", inject: killDirector},
		{Name: "all control VMs are updated", inject: spread},
	}
}

// LeaseAim is the aim for controllers: the duration of their leases, 15 s by default, before another one may take over,
// and two attempts.
const LeaseAim = 15*time.Second + 5*time.Second

func lastControl(c *Cluster) *machine { return c.control()[len(c.control())-1] }

func firstWorker(c *Cluster) *machine { return c.workers()[0] }

// killEach kills the processes of a VM one after the other, whatever monit watches there. A process is back when monit
// has a new one, all others run, and all API servers are ready.
func killEach(choose func(*Cluster) *machine, except ...string) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		m := choose(c)
		processes, err := c.processes(ctx, m)
		if err != nil {
			return nil, err
		}
		if len(processes) < 4 {
			return nil, fmt.Errorf("%s: only the processes %v", m.name, processes)
		}
		var parts []Part
		for _, name := range slices.Sorted(maps.Keys(processes)) {
			if slices.Contains(except, name) {
				continue
			}
			before, err := c.processes(ctx, m)
			if err != nil {
				return parts, err
			}
			started := time.Now()
			if _, err := c.in(ctx, m, "kill", "-9", strconv.Itoa(before[name])); err != nil {
				return parts, err
			}
			took, err := until(ctx, started, recoverTimeout, func(ctx context.Context) error {
				after, err := c.processes(ctx, m)
				if err != nil {
					return err
				}
				if after[name] == before[name] {
					return fmt.Errorf("%s has not been started again", name)
				}
				return ready(ctx, c.control())
			})
			if err != nil {
				return parts, fmt.Errorf("after %s was killed: %w", name, err)
			}
			c.say("%s: %s is back after %s", m.name, name, short(took))
			parts = append(parts, Part{name, took})
		}
		return parts, nil
	}
}

// pick chooses a VM, and returns when another one has taken over.
type pick func(context.Context, *Cluster) (victim *machine, takenOver func(context.Context) error, err error)

func etcdLeader(ctx context.Context, c *Cluster) (*machine, func(context.Context) error, error) {
	m, err := c.etcdLeader(ctx)
	return m, func(ctx context.Context) error { return writable(ctx, others(c.control(), m)) }, err
}

func controllersLeader(ctx context.Context, c *Cluster) (*machine, func(context.Context) error, error) {
	m, err := c.leader(ctx, controllers[0])
	return m, func(ctx context.Context) error {
		return c.ledElsewhere(ctx, append(slices.Clone(controllers), loadBalancers), m)
	}, err
}

// losePower takes the power from a control VM, waits until others have taken over, and lets BOSH create the VM again.
func losePower(choose pick) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		m, takenOver, err := choose(ctx, c)
		if err != nil {
			return nil, err
		}
		started := time.Now()
		if err := c.kill(ctx, m); err != nil {
			return nil, err
		}
		took, err := until(ctx, started, recoverTimeout, takenOver)
		if err != nil {
			return nil, err
		}
		c.say("%s has lost power; others took over after %s", m.name, short(took))
		return []Part{{"others have taken over", took}}, errors.Join(c.othersStay(ctx, started, m), c.fix(ctx))
	}
}

func (c *Cluster) kill(ctx context.Context, m *machine) error {
	v, err := c.vm(m)
	if err != nil {
		return err
	}
	return v.Kill(ctx)
}

// loseWorker takes the power from a worker.
func loseWorker(ctx context.Context, c *Cluster) ([]Part, error) {
	m := c.workers()[0]
	if err := c.movePods(ctx, m); err != nil {
		return nil, err
	}
	started := time.Now()
	if err := c.kill(ctx, m); err != nil {
		return nil, err
	}
	took, err := until(ctx, started, recoverTimeout, func(ctx context.Context) error { return c.podsReady(ctx, m) })
	if err != nil {
		return nil, err
	}
	return []Part{{"pods run on other VMs", took}}, c.fix(ctx)
}

// cutTime is how long a VM is cut off, at least: longer than the timeouts of kept connections, which are 30 and 15
// seconds in client-go.
const cutTime = time.Minute

// cutOff lets the network lose packets of a control VM. It ends when connections between members of etcd have resumed,
// because two faults at the same time are more than three members bear. The streams between them do not time out while
// they are read (etcd v3.7.3: NewTimeoutTransport in client/pkg/transport sets Dial, which net/http ignores, since
// NewTransport has set DialContext), so some wait for TCP's next retransmission, which comes after as long again as
// packets were lost, at most.
func cutOff(choose pick, loss network.Loss) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		m, takenOver, err := choose(ctx, c)
		if err != nil {
			return nil, err
		}
		started := time.Now()
		if err := c.lab.Network.Lose(m.address, loss); err != nil {
			return nil, err
		}
		took, err := until(ctx, started, recoverTimeout, takenOver)
		if err == nil {
			err = wait(ctx, started, cutTime)
		}
		lost := time.Since(started)
		err = errors.Join(err, c.othersStay(ctx, started, m), c.lab.Network.Lose(m.address, network.Loss{}))
		if err != nil {
			return nil, err
		}
		c.say("%s was cut off; others took over after %s", m.name, short(took))
		return []Part{{"others have taken over", took}}, poll.Sleep(ctx, lost)
	}
}

// cutOffWorker lets the network lose packets of a worker until its pods run elsewhere.
func cutOffWorker(loss network.Loss) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		m := c.workers()[0]
		if err := c.movePods(ctx, m); err != nil {
			return nil, err
		}
		started := time.Now()
		if err := c.lab.Network.Lose(m.address, loss); err != nil {
			return nil, err
		}
		took, err := until(ctx, started, recoverTimeout, func(ctx context.Context) error { return c.podsReady(ctx, m) })
		err = errors.Join(err, c.lab.Network.Lose(m.address, network.Loss{}))
		return []Part{{"pods run on other VMs", took}}, err
	}
}

// wait waits until a time has passed since started.
func wait(ctx context.Context, started time.Time, d time.Duration) error {
	return poll.Sleep(ctx, time.Until(started.Add(d)))
}

// rebootAll takes the power from all VMs at the same time, and gives it back. No pre-start runs.
func rebootAll(ctx context.Context, c *Cluster) ([]Part, error) {
	started := time.Now()
	if err := c.run(ctx, "reboot"); err != nil {
		return nil, err
	}
	took, err := until(ctx, started, recoverTimeout, func(ctx context.Context) error { return c.healthy(ctx, nil) })
	return []Part{{"all nodes and pods are Ready", took}}, err
}

// loseIssuer lets S3 reset all connections while the control VMs are updated. Each has published the same keys before.
func loseIssuer(ctx context.Context, c *Cluster) ([]Part, error) {
	if err := c.resetCalls(ctx, "s3:*"); err != nil {
		return nil, err
	}
	c.toggleChanges()
	started := time.Now()
	err := c.up(ctx)
	took := time.Since(started)
	return []Part{{"all control VMs are updated", took}}, errors.Join(err, c.answerCalls(ctx))
}

// changes is an ops-file that updates the control VMs.
const changes = "src/testbed/acceptance/testdata/log-level.yml"

// toggleChanges lets the next deploy update the control VMs.
func (c *Cluster) toggleChanges() {
	if n := slices.Index(c.deploy, changes); n > 0 {
		c.deploy = slices.Delete(slices.Clone(c.deploy), n-1, n+1)
		return
	}
	c.deploy = append(slices.Clone(c.deploy), "-o", changes)
}

// killDirector kills the Director while it updates the second control VM, and deploys again.
func killDirector(ctx context.Context, c *Cluster) ([]Part, error) {
	c.toggleChanges()
	running, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	command := c.command(running, append(slices.Clone(c.deploy), "--verbose")...)
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		return nil, err
	}
	seen, reached := "", 0
	for lines := bufio.NewScanner(output); reached < 2 && lines.Scan(); {
		seen += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "Updating instance control") &&
			strings.HasSuffix(lines.Text(), " L stopping jobs") {
			reached++
		}
	}
	killed := command.Process.Kill()
	_ = command.Wait()
	if reached < 2 {
		return nil, fmt.Errorf("the deploy never stopped the jobs of a second VM:\n%s", tail.Lines(seen, 40))
	}
	started := time.Now()
	err = errors.Join(killed, c.up(ctx))
	return []Part{{"the next deploy has completed", time.Since(started)}}, err
}
