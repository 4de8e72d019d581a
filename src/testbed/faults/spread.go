package faults

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/poll"
)

const (
	keptClients   = 24
	keptInterval  = 250 * time.Millisecond // of one client's requests, of which a server ends a hundredth by GOAWAY
	spreadTimeout = 5 * time.Minute
)

// connections are those that clients keep, by client: the server's address.
type connections struct {
	mu sync.Mutex
	to map[int]string
}

// keep starts clients of the API's name that keep their connections until ctx is done, and sends one request after
// another on each. A client that gets no answer asks again.
func (c *Cluster) keep(ctx context.Context, group *sync.WaitGroup) (*connections, error) {
	kept := &connections{to: map[int]string{}}
	for n := range keptClients {
		config := rest.CopyConfig(c.byName)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := c.byName.Dial(ctx, network, address)
			if err == nil {
				kept.mu.Lock()
				kept.to[n] = connection.RemoteAddr().(*net.TCPAddr).IP.String()
				kept.mu.Unlock()
			}
			return connection, err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		group.Go(func() {
			for poll.Sleep(ctx, keptInterval) == nil {
				_, _ = client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			}
		})
	}
	return kept, nil
}

func (k *connections) count(servers []*machine) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts := make([]int, len(servers))
	for n, m := range servers {
		for _, address := range k.to {
			if address == m.address.String() {
				counts[n]++
			}
		}
	}
	return counts
}

// even returns nil if each server has at least a third of its share, because clients choose at random.
func even(counts []int) error {
	total := 0
	for _, n := range counts {
		total += n
	}
	if total == 0 || slices.Min(counts)*len(counts)*3 < total {
		return fmt.Errorf("%d connections to the API servers", counts)
	}
	return nil
}

// spread updates all control VMs, one after another, which leaves the API server that was updated last without most of
// the connections that clients keep. Each must have its share again without any client being started again.
func spread(ctx context.Context, c *Cluster) ([]Part, error) {
	keeping, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	kept, err := c.keep(keeping, &group)
	if err != nil {
		return nil, err
	}
	if err := poll.Within(
		ctx, spreadTimeout, time.Second, func(context.Context) error { return even(kept.count(c.control())) },
	); err != nil {
		return nil, fmt.Errorf("before the update: %w", err)
	}
	lost := make(map[string]bool) // servers that had no connection
	watching, watched := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for poll.Sleep(watching, keptInterval) == nil {
			for n, count := range kept.count(c.control()) {
				if count == 0 {
					lost[c.control()[n].name] = true
				}
			}
		}
	})
	c.toggleChanges()
	err = c.up(ctx)
	started := time.Now()
	watched()
	watch.Wait()
	if err != nil {
		return nil, err
	}
	if len(lost) != len(c.control()) {
		return nil, fmt.Errorf(
			"the update took all connections only from %s", strings.Join(slices.Sorted(maps.Keys(lost)), ", "),
		)
	}
	before := kept.count(c.control())
	took, err := until(ctx, started, spreadTimeout, func(context.Context) error {
		return even(kept.count(c.control()))
	})
	c.say(
		"connections of %d clients to the API servers after the update: %d; after %s: %d", keptClients, before,
		short(took), kept.count(c.control()),
	)
	return []Part{{"each API server has its share of connections", took}}, err
}
