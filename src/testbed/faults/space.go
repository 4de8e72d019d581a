package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/nospace"
	"kubernetes-release/internal/poll"
)

const (
	// smallQuota is the ops-file of Ops with the quota that is filled, largerQuota one that increases it.
	smallQuota  = "src/testbed/acceptance/testdata/small-etcd.yml"
	largerQuota = "src/testbed/acceptance/testdata/larger-etcd.yml"

	// fillTimeout is below the five minutes after which API servers remove old revisions (DefaultCompactInterval in
	// pkg/storage/storagebackend/config.go of k8s.io/apiserver).
	fillTimeout = 4 * time.Minute
	// refusedTime is how long writes are refused before the errand runs: longer than leases of controllers last, and
	// than the controller manager waits for signs of life of nodes.
	refusedTime = monitorGracePeriod + 10*time.Second
)

// makeSpace is the only repair of a full etcd.
var makeSpace = []string{"errand", "etcd-defragment"}

// fillQuota fills etcd until it refuses writes. Meanwhile each API server reads, and pods answer. Then it runs the
// errand, and nothing else.
func fillQuota(ctx context.Context, c *Cluster) ([]Part, error) {
	if err := c.fillEtcd(ctx); err != nil {
		return nil, err
	}
	refused := time.Now()
	served := 0
	for time.Since(refused) < refusedTime {
		if err := c.readsOnly(ctx); err != nil {
			err = fmt.Errorf("%s after etcd refused the first write: %w", short(time.Since(refused)), err)
			_, failed := c.makeSpace(ctx) // or all faults after this one fail
			return nil, errors.Join(err, failed)
		}
		served++
		if err := poll.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	c.say(
		"etcd refused all writes for %s; each API server answered all of %d reads, and each pod all of %d requests",
		short(time.Since(refused)), served, served*len(c.control()),
	)
	parts, err := c.makeSpace(ctx)
	return parts, errors.Join(err, c.othersStay(ctx, refused))
}

// fillEtcd overwrites an object by each API server until etcd refuses that: what fills its quota are old revisions,
// which the errand removes.
func (c *Cluster) fillEtcd(ctx context.Context) error {
	began := time.Now()
	err := each(c.control(), func(m *machine) error {
		written := 0
		err := poll.Within(ctx, fillTimeout, time.Millisecond, func(ctx context.Context) error {
			err := overwrite(ctx, m, written)
			if nospace.Is(err) {
				return nil
			}
			if err == nil {
				written++
				err = fmt.Errorf("etcd has accepted all of %d writes", written)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("filling etcd by the API server of %s: %w", m.name, err)
		}
		return nil
	})
	if err == nil {
		c.say("etcd refuses writes after %s", short(time.Since(began)))
	}
	return err
}

func overwrite(ctx context.Context, m *machine, n int) error {
	configs := m.server.CoreV1().ConfigMaps(namespace)
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "filler-" + strings.ReplaceAll(m.name, "/", "-")},
		Data:       map[string]string{"n": strconv.Itoa(n), "filler": strings.Repeat("x", 500_000)},
	}
	_, err := configs.Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = configs.Create(ctx, object, metav1.CreateOptions{})
	}
	return err
}

// readsOnly returns nil if each API server reads from etcd, reaches each pod, and writes nothing, because etcd has no
// space.
func (c *Cluster) readsOnly(ctx context.Context) error {
	return each(c.control(), func(m *machine) error {
		pods, err := m.server.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("reading by the API server of %s: %w", m.name, err)
		}
		// Those that a kubelet ended on a full disk are there too.
		running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		})
		if len(running) != replicas {
			return fmt.Errorf("%d pods, want %d", len(running), replicas)
		}
		for _, pod := range running {
			if _, err := m.server.CoreV1().Pods(namespace).ProxyGet(
				"http", pod.Name, podPort, "/", nil,
			).DoRaw(ctx); err != nil {
				return fmt.Errorf("pod %s by the API server of %s: %w", pod.Name, m.name, err)
			}
		}
		if err := writable(ctx, []*machine{m}); !nospace.Is(err) {
			return fmt.Errorf("a write that etcd should refuse: %w", err)
		}
		return nil
	})
}

// podPort is that of the release's image for tests.
const podPort = "8080"

// makeSpace runs the errand and measures until all API servers write, and until all nodes and controllers have renewed
// their leases.
func (c *Cluster) makeSpace(ctx context.Context) ([]Part, error) {
	signs, err := c.signsOfLife(ctx)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		err := c.run(running, makeSpace...)
		if err != nil {
			stop()
		}
		ended <- err
	}()
	writes, err := until(
		running, began, recoverTimeout, func(ctx context.Context) error { return writable(ctx, c.control()) },
	)
	if err := errors.Join(<-ended, err); err != nil {
		return nil, err
	}
	healthy, err := until(ctx, began, recoverTimeout, func(ctx context.Context) error { return c.healthy(ctx, signs) })
	return []Part{
		{"API servers write, from the errand's start", writes},
		{"nodes and controllers have leases", healthy},
	}, err
}

// deployWhileFull deploys while etcd refuses writes: the deploy must fail, in the script of job etcd that says what to
// do, and in no other. After the errand the same deploy must complete. While etcd refuses writes again, a VM must not
// be deleted with its pods, and a deploy that increases the quota must complete and end that, without the errand.
func deployWhileFull(ctx context.Context, c *Cluster) ([]Part, error) {
	if err := c.fillEtcd(ctx); err != nil {
		return nil, err
	}
	c.toggleChanges()
	if err := c.refused(ctx, "post-start", "etcd", c.deploy...); err != nil {
		return nil, err
	}
	parts, err := c.makeSpace(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.completes(ctx, "the same deploy, after the errand,"); err != nil {
		return parts, err
	}
	if err := c.fillEtcd(ctx); err != nil {
		return parts, err
	}
	if err := c.refused(ctx, "drain", "kubelet", "recreate", firstWorker(c).name); err != nil {
		return parts, err
	}
	if err := c.readsOnly(ctx); err != nil {
		return parts, fmt.Errorf("after a VM was not deleted: %w", err)
	}
	c.deploy = append(slices.Clone(c.deploy), "-o", largerQuota)
	if err := c.completes(ctx, "a deploy that increases the quota"); err != nil {
		return parts, err
	}
	return parts, writable(ctx, c.control())
}

// completes deploys.
func (c *Cluster) completes(ctx context.Context, what string) error {
	began := time.Now()
	if err := c.up(ctx); err != nil {
		return fmt.Errorf("%s has failed: %w", what, err)
	}
	c.say("%s has completed after %s", what, short(time.Since(began)))
	return nil
}

// refused runs a command of the lab, which must fail in this script of this job only, for lack of space in etcd.
func (c *Cluster) refused(ctx context.Context, script, job string, arguments ...string) error {
	began := time.Now()
	err := c.run(ctx, arguments...)
	if err == nil {
		return fmt.Errorf("lab %s has completed although etcd refuses writes", arguments[0])
	}
	text := err.Error()
	for _, want := range []string{
		" " + script + " scripts failed:", "- job " + job + ": ", "etcd refuses writes",
		"run the errand etcd-defragment",
	} {
		if !strings.Contains(text, want) {
			return fmt.Errorf("while etcd refuses writes nothing says %q: %w", want, err)
		}
	}
	if strings.Count(text, "- job ") != 1 {
		return fmt.Errorf("while etcd refuses writes other jobs are named: %w", err)
	}
	c.say("%s has failed, in %s of job %s, after %s", arguments[0], script, job, short(time.Since(began)))
	return nil
}
