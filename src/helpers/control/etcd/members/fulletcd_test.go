package members

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"kubernetes-release/internal/eventually"
)

var fullMiB = flag.Int64("full-mib", 64, "size in MiB of the databases that TestFullEtcdUnderLoad fills")

// TestFullEtcdUnderLoad fills the quota of three members through their API servers, which are used meanwhile. Nothing
// that was acknowledged is lost, no read fails, and what the errand does makes space, alone, and lets writes succeed.
func TestFullEtcdUnderLoad(t *testing.T) {
	d := newDeployment(t)
	d.quota = *fullMiB << 20
	d.deploy(0, 1, 2)
	var clients []kubernetes.Interface
	for member := range 3 {
		clients = append(clients, d.apiServer(member).Admin())
	}
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	counts := make([]readCount, len(clients))
	var readers, writers sync.WaitGroup
	for i, client := range clients {
		readers.Go(func() { counts[i].read(reading, client) })
	}

	acknowledged := make([]int, len(clients))
	for i, client := range clients {
		writers.Go(func() {
			var err error
			if acknowledged[i], err = fillBy(t.Context(), client.CoreV1().ConfigMaps("default"), i); err == nil ||
				!strings.Contains(err.Error(), "database space exceeded") {
				t.Errorf("writer %d ended with %v", i, err)
			}
		})
	}
	writers.Wait()
	full := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	passes(t, d.configs[0].MakeSpace(ctx, quiet()))
	took := time.Since(full)
	for i, client := range clients {
		name := fmt.Sprintf("after-%d", i)
		eventually.Succeeds(t, 30*time.Second, "a write by API server "+strconv.Itoa(i), func() error {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	stop()
	readers.Wait()

	for i, last := range acknowledged {
		for n, client := range clients {
			object, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), fillerName(i), metav1.GetOptions{})
			if err != nil {
				t.Error(err)
				continue
			}
			// A write that the API server's member accepted is applied and refused if there is no space then (Put of
			// quotaApplierV3 in server/etcdserver/apply of etcd).
			if got, err := strconv.Atoi(object.Data["n"]); err != nil || got != last && got != last+1 {
				t.Errorf("API server %d has %q of writer %d, who wrote %d", n, object.Data["n"], i, last)
			}
		}
	}
	var all readCount
	for _, c := range counts {
		all.sent, all.slowest = all.sent+c.sent, max(all.slowest, c.slowest)
		all.failures = append(all.failures, c.failures...)
	}
	if len(all.failures) > 0 {
		t.Errorf("%d of %d reads failed, the first with %v", len(all.failures), all.sent, all.failures[0])
	}
	t.Logf(
		"three databases of %d MiB were defragmented, and etcd took writes again, after %.1f s; "+
			"%d of %d reads failed, and the slowest took %.1f s",
		*fullMiB, took.Seconds(), len(all.failures), all.sent, all.slowest.Seconds(),
	)
}

// fillBy writes an object of 100 KB again and again until that fails, and returns what was acknowledged last.
func fillBy(ctx context.Context, objects clientcorev1.ConfigMapInterface, writer int) (acknowledged int, err error) {
	object, err := objects.Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fillerName(writer)}}, metav1.CreateOptions{},
	)
	for n := 0; err == nil; n++ {
		object.Data = map[string]string{"n": strconv.Itoa(n), "filler": strings.Repeat("x", 100_000)}
		var written *corev1.ConfigMap
		if written, err = objects.Update(ctx, object, metav1.UpdateOptions{}); err == nil {
			object, acknowledged = written, n
		}
	}
	return acknowledged, err
}

func fillerName(writer int) string { return fmt.Sprintf("filler-%d", writer) }

// readCount are the reads by one API server.
type readCount struct {
	sent     int
	failures []error
	slowest  time.Duration
}

// read reads from etcd, not from the API server's cache, without a pause longer than 50 ms, until ctx ends.
func (c *readCount) read(ctx context.Context, client kubernetes.Interface) {
	for ctx.Err() == nil {
		began := time.Now()
		_, err := client.CoreV1().Namespaces().Get(context.WithoutCancel(ctx), "default", metav1.GetOptions{})
		if c.sent++; err != nil {
			c.failures = append(c.failures, err)
		}
		c.slowest = max(c.slowest, time.Since(began))
		time.Sleep(50 * time.Millisecond)
	}
}
