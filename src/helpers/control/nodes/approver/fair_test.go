package approver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/node"
)

func TestRequestersTakeTurns(t *testing.T) {
	queue := newQueue()
	defer queue.ShutDown()
	for n := range 5 {
		queue.Add(item{"a", fmt.Sprint(n)})
	}
	queue.Add(item{"b", "0"})
	queue.Add(item{"b", "1"})
	queue.Add(item{"c", "0"})
	queue.Add(item{"a", "0"}) // it waits already
	var order []string
	for range 8 {
		next, _ := queue.Get()
		order = append(order, next.requester+next.name)
		queue.Done(next)
	}
	if want := []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"}; !slices.Equal(order, want) ||
		queue.Len() != 0 {
		t.Errorf("%v, want %v", order, want)
	}
}

func TestShares(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Now())
	s, reports := shares{clock: clock, of: map[string]*share{}}, 0
	take := func(requester string) bool { return s.take(requester, func() { reports++ }) }
	for range shareBurst {
		if !take("a") {
			t.Fatal("refused within the share")
		}
	}
	for range 10 {
		if take("a") {
			t.Error("more than the share")
		}
	}
	if reports != 1 || !take("b") {
		t.Errorf("%d reports", reports)
	}
	clock.SetTime(clock.Now().Add(shareInterval))
	if !take("a") || take("a") || reports != 1 {
		t.Errorf("not one more after %s, or another report: %d", shareInterval, reports)
	}
	clock.SetTime(clock.Now().Add(reportInterval))
	for take("a") {
	}
	if reports != 2 {
		t.Errorf("%d reports after %s, want 2", reports, reportInterval)
	}
}

func TestRemembersWhatWasFound(t *testing.T) {
	clock, calls := testingclock.NewFakePassiveClock(time.Now()), 0
	var failure error
	found := remember(finder(func() error { calls++; return failure }), clock)
	find := func(name string, labels map[string]string, want int) {
		t.Helper()
		if _, err := found.Find(t.Context(), name, labels); !errors.Is(err, failure) || calls != want {
			t.Errorf("%s %v: %d calls and %v, want %d and %v", name, labels, calls, err, want, failure)
		}
	}
	find("a", nil, 1)
	find("a", nil, 1)
	find("b", nil, 2)
	find("a", map[string]string{"zone": "b"}, 3)
	clock.SetTime(clock.Now().Add(foundFor + time.Second))
	find("b", nil, 4)
	failure = errors.New("refused")
	find("c", nil, 5)
	find("c", nil, 6)
}

// finder is called when a machine is looked up.
type finder func() error

func (f finder) Find(context.Context, string, map[string]string) (node.Machine, error) {
	return node.Machine{}, f()
}

// TestFewRequestsAreNoFlood is a kubelet whose requests stay pending, while Nodes change all the time.
func TestFewRequestsAreNoFlood(t *testing.T) {
	for sent, want := range map[int]bool{1: false, shareBurst: false, shareBurst + 1: true} {
		var objects []runtime.Object
		for n := range sent {
			request := kubeletOf("node-a", "10.0.0.1").request(t)
			request.Name, request.UID = fmt.Sprint(n), types.UID(fmt.Sprint(n))
			objects = append(objects, request)
		}
		log := &safeLog{}
		c := New(
			fake.NewClientset(objects...), machineList{}, &Metrics{}, slog.New(slog.NewTextHandler(log, nil)),
		)
		c.recorder = events.NewFakeRecorder(100)
		ctx, stop := context.WithCancel(t.Context())
		if err := c.startInformers(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 * (shareBurst + 1) {
			c.enqueuePending()
			c.next(ctx)
		}
		stop()
		c.queue.ShutDown()
		if !strings.Contains(log.text(), "NodeNotFound") || strings.Contains(log.text(), "TooManyRequests") != want {
			t.Errorf("%d requests, want a report of a flood: %v; got:\n%s", sent, want, log.text())
		}
	}
}

// slowMachines answers like EC2, after a while, and counts the calls.
type slowMachines struct {
	machineList
	mu    sync.Mutex
	calls int
}

func (m *slowMachines) Find(ctx context.Context, name string, labels map[string]string) (node.Machine, error) {
	m.mu.Lock()
	m.calls++
	m.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
	return m.machineList.Find(ctx, name, labels)
}

func (m *slowMachines) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

type safeLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *safeLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// TestFloodOfOneNodeDoesNotDelayAnother has one node send hundreds of requests, before another sends one.
func TestFloodOfOneNodeDoesNotDelayAnother(t *testing.T) {
	const flood = 500
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	admin, ctx := cluster.Admin(), t.Context()
	const user = "system:node-controller"
	grant(t, admin, permissions(user))
	setAddresses(t, admin, "node-a", true, internalIP("10.0.0.1"))
	setAddresses(t, admin, "node-b", true, internalIP("10.0.0.2"))
	machines := &slowMachines{
		machineList: machineList{"node-a": vm("node-a", "10.0.0.1"), "node-b": vm("node-b", "10.0.0.2")},
	}
	ask := func(name, address string) string {
		created, err := cluster.ClientFor("system:node:"+name, "system:nodes").
			CertificatesV1().
			CertificateSigningRequests().
			Create(ctx, kubeletOf(name, address).request(t), metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
			return ""
		}
		return created.Name
	}
	attacker := cluster.ClientFor("system:node:node-a", "system:nodes").CertificatesV1().CertificateSigningRequests()
	body := kubeletOf("node-a", "10.0.0.1").request(t)
	for range flood {
		if _, err := attacker.Create(ctx, body, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	log := &safeLog{}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- New(
			cluster.ClientFor(user), machines, &Metrics{}, slog.New(slog.NewTextHandler(log, nil)),
		).Run(running)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	eventually.Succeeds(t, timeout, "the controller works on the flood", func() error {
		if machines.count() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	started, name := time.Now(), ask("node-b", "10.0.0.2")
	eventually.Succeeds(t, 2*time.Minute, "certificate of the other node", func() error {
		got, err := admin.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(got.Status.Certificate) == 0 {
			err = errors.New("no certificate")
		}
		return err
	})
	took := time.Since(started)
	list, err := admin.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	decided := 0
	for i := range list.Items {
		if !pending(&list.Items[i]) {
			decided++
		}
	}
	t.Logf(
		"certificate after %s; %d of %d requests were decided with %d calls of the cloud",
		took.Round(time.Millisecond), decided, len(list.Items), machines.count(),
	)
	if decided > shareBurst+3+int(took/shareInterval) || machines.count() > 2*deciders+2 {
		t.Errorf("%d requests were decided with %d calls of the cloud", decided, machines.count())
	}
	eventually.Succeeds(t, timeout, "a line about the flood", func() error {
		if !strings.Contains(log.text(), "TooManyRequests") ||
			!strings.Contains(log.text(), "system:node:node-a has sent more than") {
			return errors.New("not logged")
		}
		return nil
	})
}
