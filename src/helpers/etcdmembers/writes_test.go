package etcdmembers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// TestNoWriteIsLostWhileTheLeadershipMoves is that clients of API servers, one on each of three members, notice nothing
// while the leadership of etcd moves again and again: all their writes succeed, each once.
func TestNoWriteIsLostWhileTheLeadershipMoves(t *testing.T) {
	// The moves end before etcd gives up what they lost (7 s), so that no write is lost twice.
	const writersEach, movesFor = 4, 5 * time.Second
	d := newDeployment(t)
	d.deploy(0, 1, 2)
	moved, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	counts := make([]int, 3*writersEach)
	for member := range 3 {
		api := d.apiServer(member).Admin()
		for i := range writersEach {
			writer := member*writersEach + i
			writers.Go(func() {
				n, err := count(moved, api.CoreV1().ConfigMaps("default"), fmt.Sprintf("writer-%d", writer))
				if counts[writer] = n; err != nil {
					t.Errorf("write %d of writer %d, by member %d: %v", n+1, writer, member, err)
				}
			})
		}
	}
	time.Sleep(time.Second)
	moves := 0
	for begin := time.Now(); time.Since(begin) < movesFor; moves++ {
		d.lead(moves % 3)
		time.Sleep(200 * time.Millisecond)
	}
	stop()
	writers.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	t.Logf("%d writes while the leadership moved %d times", total, moves)
}

// count writes until ctx ends and returns how many writes succeeded: in turn it creates an object, increases the number
// in it ten times, which shows a write that was applied twice, and deletes it.
func count(ctx context.Context, objects clientcorev1.ConfigMapInterface, name string) (writes int, err error) {
	running := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		object, err := objects.Create(
			running, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
		)
		if err != nil {
			return writes, err
		}
		writes++
		for n := range 10 {
			object.Data = map[string]string{"n": strconv.Itoa(n)}
			if object, err = objects.Update(running, object, metav1.UpdateOptions{}); err != nil {
				return writes, err
			}
			writes++
		}
		if object.Data["n"] != "9" {
			return writes, errors.New("a write was lost")
		}
		if err := objects.Delete(running, name, metav1.DeleteOptions{}); err != nil {
			return writes, err
		}
		writes++
	}
	return writes, nil
}
