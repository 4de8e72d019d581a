package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab/account"
	"kubernetes-release/testbed/lab/network"
)

// lossTime is how long packets are lost.
const lossTime = 30 * time.Second

// losePackets loses a tenth of all packets that VMs send. Each API server must be usable meanwhile: a write that fails
// is sent again, as programs do.
func losePackets(ctx context.Context, c *Cluster) ([]Part, error) {
	set := func(loss network.Loss) error {
		return each(c.machines, func(m *machine) error { return c.lab.Network.Lose(m.address, loss) })
	}
	started := time.Now()
	err := set(network.Loss{From: 10})
	var slowest time.Duration
	for err == nil && time.Since(started) < lossTime {
		sent := time.Now()
		err = each(c.control(), func(m *machine) error {
			_, err := until(
				ctx, sent, time.Minute, func(ctx context.Context) error { return writable(ctx, []*machine{m}) },
			)
			return err
		})
		slowest = max(slowest, time.Since(sent))
		if err == nil {
			err = poll.Sleep(ctx, time.Second)
		}
	}
	return []Part{{"slowest write, repeated until it succeeded", slowest}}, errors.Join(err, set(network.Loss{}))
}

// fullTime is how long a disk is full.
const fullTime = 30 * time.Second

// fullDisk fills a disk of a VM for a while. With the other VMs the API must be usable meanwhile.
func fullDisk(choose func(*Cluster) *machine, d disk) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		m := choose(c)
		dir, detach, err := c.give(ctx, m, d)
		if err != nil {
			return nil, err
		}
		if err := c.awaitHealthy(ctx, nil); err != nil {
			return nil, fmt.Errorf("with a disk of its own: %w", err)
		}
		free, err := fill(dir)
		if err != nil {
			return nil, err
		}
		filled := time.Now()
		took, err := until(
			ctx, filled, recoverTimeout,
			func(ctx context.Context) error { return writable(ctx, others(c.control(), m)) },
		)
		if err == nil {
			err = poll.Sleep(ctx, time.Until(filled.Add(fullTime)))
		}
		freed := time.Now()
		if err = errors.Join(err, free()); err != nil {
			return nil, err
		}
		again, err := until(ctx, freed, recoverTimeout, func(ctx context.Context) error { return c.healthy(ctx, nil) })
		if err != nil {
			return nil, fmt.Errorf("with free space again: %w", err)
		}
		parts := []Part{{"others serve after", took}, {"healthy after there was space again", again}}
		if d.name == persistentDisk.name {
			return parts, nil // it stays
		}
		// Back to a disk as the others have.
		return parts, errors.Join(c.kill(ctx, m), detach(), c.fix(ctx))
	}
}

// jumpClock sets the clock of a VM forward by an hour, and back.
func jumpClock(choose func(*Cluster) *machine) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		m := choose(c)
		v, err := c.vm(m)
		if err != nil {
			return nil, err
		}
		clock := newClock(v.Processes)
		var parts []Part
		for _, offset := range []time.Duration{time.Hour, 0} {
			started := time.Now()
			var took time.Duration
			if err = clock.jump(offset); err == nil {
				took, err = c.settled(ctx, started)
			}
			if err == nil {
				err = c.ahead(ctx, m, offset)
			}
			if err != nil {
				err = fmt.Errorf("with a clock that is ahead by %s: %w", offset, err)
				break
			}
			parts = append(parts, Part{fmt.Sprintf("healthy with a clock that is ahead by %s", offset), took})
		}
		return parts, errors.Join(err, clock.stop())
	}
}

// ahead returns nil if the kubelet of a VM writes times that differ from this machine's by an offset, give or take a
// minute.
func (c *Cluster) ahead(ctx context.Context, m *machine, offset time.Duration) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if !hasAddress(&node, m.address.String()) {
			continue
		}
		lease, err := c.client.CoordinationV1().
			Leases(corev1.NamespaceNodeLease).
			Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if off := time.Until(lease.Spec.RenewTime.Time) - offset; off.Abs() > time.Minute {
			return fmt.Errorf(
				"the lease of %s was renewed at %s, which is wrong by %s", node.Name, lease.Spec.RenewTime, off,
			)
		}
		return nil
	}
	return fmt.Errorf("%s has no node", m.name)
}

// settled waits until the cluster is healthy and has given signs of life since started, and returns the time since
// then.
func (c *Cluster) settled(ctx context.Context, started time.Time) (time.Duration, error) {
	signs, err := c.signsOfLife(ctx)
	if err != nil {
		return 0, err
	}
	return until(ctx, started, recoverTimeout, func(ctx context.Context) error { return c.healthy(ctx, signs) })
}

// cloudTime is how long the cloud does not answer.
const cloudTime = 2 * time.Minute

// loseCloud lets actions of the cloud reset all connections. Meanwhile each process of a worker is killed: those that
// start must not need the cloud. The exception is a process that waits for it, unless empty, and is back when the cloud
// is.
func loseCloud(waits string, actions ...string) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		started := time.Now()
		err := c.withoutCloud(ctx, started, waits, actions)
		back := time.Now()
		err = errors.Join(err, c.answerCalls(ctx))
		if err != nil {
			return nil, err
		}
		took, err := c.settled(ctx, back)
		return []Part{{"healthy after the cloud was back", took}}, err
	}
}

func (c *Cluster) withoutCloud(ctx context.Context, started time.Time, waits string, actions []string) error {
	if err := c.resetCalls(ctx, actions...); err != nil {
		return err
	}
	if _, err := killEach(firstWorker, waits)(ctx, c); err != nil {
		return err
	}
	if _, err := c.settled(ctx, started); err != nil {
		return err
	}
	if waits == "" {
		if err := wait(ctx, started, cloudTime); err != nil {
			return err
		}
		return c.healthy(ctx, nil)
	}
	processes, err := c.processes(ctx, firstWorker(c))
	if err == nil {
		_, err = c.in(ctx, firstWorker(c), "kill", "-9", strconv.Itoa(processes[waits]))
	}
	if err != nil {
		return err
	}
	return wait(ctx, started, cloudTime)
}

// resetCalls lets the simulated cloud reset all connections with calls of these actions.
func (c *Cluster) resetCalls(ctx context.Context, actions ...string) error {
	for _, action := range actions {
		fault := fmt.Sprintf(`{"action": %q, "kind": "reset"}`, action)
		if err := c.simulator(ctx, http.MethodPost, fault); err != nil {
			return err
		}
	}
	return nil
}

// answerCalls lets it answer all again.
func (c *Cluster) answerCalls(ctx context.Context) error {
	return c.simulator(ctx, http.MethodDelete, "")
}

// simulator changes the faults of the simulated cloud.
func (c *Cluster) simulator(ctx context.Context, method, fault string) error {
	request, err := http.NewRequestWithContext(
		ctx, method, account.URL(c.lab.Network)+"/_sim/faults", strings.NewReader(fault),
	)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: &http.Transport{}}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the simulated cloud answers %s", response.Status)
	}
	return nil
}
