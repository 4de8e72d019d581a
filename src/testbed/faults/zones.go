package faults

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab/network"
)

// zonesNamespace is where the pods are that Zones looks at: the StatefulSet database has one, with a volume, in each
// zone.
const zonesNamespace = "zones"

//go:embed zones.yml
var zonesManifest string

const (
	webLabel, databaseLabel = "app=web", "app=database"
	zonePods                = 3
	// zoneTime is how long a zone fails, at least: longer than everything takes that does not wait for the zone.
	zoneTime = 2 * time.Minute
	// serviceInterval and serviceTimeout are those of requests to Services.
	serviceInterval = 100 * time.Millisecond
	serviceTimeout  = 2 * time.Second
	// healing is how long requests to Services may fail after the pods of a lost zone are known not to be Ready: the
	// time until all nodes have left out their addresses.
	healing = 15 * time.Second
	// strayShare is the share of requests that may fail after that, 1 in so many. A node sends a connection to a lost
	// pod again if it has the source port of an attempt that was sent there in the last two minutes
	// (nf_conntrack_tcp_timeout_syn_sent of Linux), and a load balancer has few ports.
	strayShare = 50
)

// Zones is the list of faults of a whole availability zone, with all its VMs and volumes. The cluster has a control VM
// and a worker in each of three zones.
func Zones() []Fault {
	return []Fault{
		{
			Name:   "a zone is cut off",
			inject: loseZone((*Cluster).cutOffZone, (*Cluster).reconnectZone),
		},
		{
			Name: "a zone loses power",
			inject: loseZone((*Cluster).killZone, func(c *Cluster, ctx context.Context, _ []*machine) error {
				return c.fix(ctx) // BOSH creates the VMs again
			}),
		},
	}
}

func (c *Cluster) cutOffZone(_ context.Context, zone []*machine) error {
	return each(zone, func(m *machine) error { return c.lab.Network.Lose(m.address, network.Everything) })
}

func (c *Cluster) reconnectZone(_ context.Context, zone []*machine) error {
	return each(zone, func(m *machine) error { return c.lab.Network.Lose(m.address, network.Loss{}) })
}

func (c *Cluster) killZone(ctx context.Context, zone []*machine) error {
	return each(zone, func(m *machine) error { return c.kill(ctx, m) })
}

// loseZone lets the zone fail that the cluster depends on most, while clients in the others use its Services. It
// expects all nodes of the other zones to stay Ready, and Services to work again before the zone is back. Only pods
// with a volume in the zone are missing until then.
func loseZone(
	fail, restore func(*Cluster, context.Context, []*machine) error,
) func(context.Context, *Cluster) ([]Part, error) {
	return func(ctx context.Context, c *Cluster) ([]Part, error) {
		if err := c.createZonePods(ctx); err != nil {
			return nil, err
		}
		text := "stored at " + time.Now().String()
		if err := c.storeText(ctx, text); err != nil {
			return nil, err
		}
		zone, err := c.worstZone(ctx)
		if err != nil {
			return nil, err
		}
		rest := others(c.machines, zone...)
		using, stop := context.WithCancel(ctx)
		defer stop()
		await, err := c.useServices(using, rest[len(rest)-1])
		if err != nil {
			return nil, err
		}
		started := time.Now()
		if err := fail(c, ctx, zone); err != nil {
			return nil, err
		}
		parts, err := c.withoutZone(ctx, started, zone, rest)
		stop()
		seen, failed := await(started, parts)
		parts = append(parts, seen...)
		back := time.Now()
		if err = errors.Join(err, failed, restore(c, ctx, zone)); err != nil {
			return parts, err
		}
		restored := time.Since(back)
		took, err := until(ctx, back, recoverTimeout, func(ctx context.Context) error {
			return c.zonePodsReady(ctx, databaseLabel, zonePods)
		})
		if err == nil {
			err = c.keptText(ctx, text)
		}
		return append(
			parts, Part{"VMs are back, after the zone", restored},
			Part{"the pod with a volume in the zone is Ready, after the zone is back", took},
		), err
	}
}

// knownLost is the part in which Services begin to leave out the pods of a lost zone.
const knownLost = "pods in the zone are not Ready"

// withoutZone waits until the other zones have taken over.
func (c *Cluster) withoutZone(ctx context.Context, started time.Time, zone, rest []*machine) ([]Part, error) {
	control := slices.DeleteFunc(slices.Clone(rest), func(m *machine) bool { return !m.control })
	var parts []Part
	for _, step := range []struct {
		name  string
		check func(context.Context) error
	}{
		{
			"API servers of other zones write",
			func(ctx context.Context) error { return writable(ctx, control) },
		},
		{"controllers of other zones lead", func(ctx context.Context) error {
			return c.ledElsewhere(ctx, controllers, zone...)
		}},
		{knownLost, func(ctx context.Context) error {
			ready, err := c.readyPods(ctx, zonesNamespace, webLabel)
			if err == nil && slices.ContainsFunc(ready, func(pod corev1.Pod) bool { return on(zone, pod) != nil }) {
				err = errors.New("a pod in the zone is still Ready")
			}
			return err
		}},
		{"pods without volumes run in other zones", func(ctx context.Context) error {
			return c.zonePodsReady(ctx, webLabel, zonePods, zone...)
		}},
	} {
		took, err := until(ctx, started, recoverTimeout, step.check)
		if err != nil {
			return parts, fmt.Errorf("%s: %w", step.name, err)
		}
		c.say("%s after %s", step.name, short(took))
		parts = append(parts, Part{step.name, took})
	}
	err := wait(ctx, started, zoneTime)
	return parts, errors.Join(
		err, c.othersStay(ctx, started, zone...), c.zonePodsReady(ctx, databaseLabel, zonePods-1, zone...),
	)
}

// zonePodsReady returns nil if so many pods are Ready, none of them on the given VMs.
func (c *Cluster) zonePodsReady(ctx context.Context, labels string, want int, lost ...*machine) error {
	ready, err := c.readyPods(ctx, zonesNamespace, labels, lost...)
	if err == nil && len(ready) != want {
		err = fmt.Errorf("%d pods with %s are Ready, want %d", len(ready), labels, want)
	}
	return err
}

// createZonePods creates the pods, unless they exist, and waits until there is one of each kind in each zone.
func (c *Cluster) createZonePods(ctx context.Context) error {
	image, err := c.smokeImage(ctx)
	if err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, strings.ReplaceAll(zonesManifest, "IMAGE", image), "apply", "-f", "-"); err != nil {
		return err
	}
	// Nothing moves them back to a zone that has failed before.
	if err := c.client.CoreV1().Pods(zonesNamespace).DeleteCollection(
		ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: webLabel},
	); err != nil {
		return err
	}
	return poll.Within(ctx, recoverTimeout, time.Second, func(ctx context.Context) error {
		for _, labels := range []string{webLabel, databaseLabel} {
			ready, err := c.readyPods(ctx, zonesNamespace, labels)
			if err != nil {
				return err
			}
			zones := map[string]bool{}
			for _, pod := range ready {
				if m := on(c.machines, pod); m != nil {
					zones[m.az] = true
				}
			}
			if len(ready) != zonePods || len(zones) != zonePods {
				return fmt.Errorf("%d pods with %s are Ready, in %d zones", len(ready), labels, len(zones))
			}
		}
		return nil
	})
}

// kubectl runs kubectl as administrator. It uses the API server that the lab's kubeconfig names, whose zone may fail.
func (c *Cluster) kubectl(ctx context.Context, stdin string, arguments ...string) (string, error) {
	arguments = append([]string{"--kubeconfig", c.lab.Path("kubeconfig")}, arguments...)
	command := exec.CommandContext(ctx, c.lab.Path("bin/kubectl"), arguments...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// storeText writes a text to the volume of each database. keptText returns nil if each still has it.
func (c *Cluster) storeText(ctx context.Context, text string) error {
	return c.eachDatabase(ctx, "", "store", "/data/text", text)
}

func (c *Cluster) keptText(ctx context.Context, text string) error {
	return c.eachDatabase(ctx, text, "show", "/data/text")
}

func (c *Cluster) eachDatabase(ctx context.Context, want string, arguments ...string) error {
	for n := range zonePods {
		pod := fmt.Sprintf("database-%d", n)
		exec := append([]string{"-n", zonesNamespace, "exec", pod, "--", "/smoke-server"}, arguments...)
		got, err := c.kubectl(ctx, "", exec...)
		if err == nil && want != "" && got != want {
			err = fmt.Errorf("%s has %q on its volume, want %q", pod, got, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// worstZone returns the VMs of the zone that has most of what others take over: etcd's leader, those of the
// controllers, and CoreDNS.
func (c *Cluster) worstZone(ctx context.Context) ([]*machine, error) {
	in := map[string][]string{}
	leader, err := c.etcdLeader(ctx)
	if err != nil {
		return nil, err
	}
	in[leader.az] = append(in[leader.az], "etcd's leader")
	for _, component := range controllers {
		if leader, err = c.leader(ctx, component); err != nil {
			return nil, err
		}
		in[leader.az] = append(in[leader.az], component)
	}
	dns, err := c.readyPods(ctx, metav1.NamespaceSystem, dnsLabel)
	if err != nil {
		return nil, err
	}
	for _, pod := range dns {
		if m := on(c.machines, pod); m != nil {
			in[m.az] = append(in[m.az], "CoreDNS")
		}
	}
	worst := ""
	for zone, what := range in {
		if len(what) > len(in[worst]) || len(what) == len(in[worst]) && zone < worst {
			worst = zone
		}
	}
	c.say("zone %s fails, with %s", worst, strings.Join(in[worst], ", "))
	return slices.DeleteFunc(slices.Clone(c.machines), func(m *machine) bool { return m.az != worst }), nil
}

// service is what a client does again and again.
type service struct {
	name    string
	request func(context.Context) error

	began    time.Time
	outcomes []outcome
}

// outcome is how a request ended, and when.
type outcome struct {
	at  time.Time
	err error
}

// dnsLabel selects the pods of CoreDNS, and dnsService is the name of its Service.
const (
	dnsLabel   = "k8s-app=kube-dns"
	dnsService = "kube-dns"
)

// useServices sends requests from a VM, to the cluster's DNS and to a Service, and from outside to the load balancer of
// the Service, until ctx ends. await returns what they have seen since a fault, of which it gets the parts.
func (c *Cluster) useServices(
	ctx context.Context, from *machine,
) (await func(time.Time, []Part) ([]Part, error), err error) {
	v, err := c.vm(from)
	if err != nil {
		return nil, err
	}
	dns, err := c.client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, dnsService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	web, err := c.client.CoreV1().Services(zonesNamespace).Get(ctx, "web", metav1.GetOptions{})
	for err == nil && len(web.Status.LoadBalancer.Ingress) == 0 {
		if err = poll.Sleep(ctx, time.Second); err == nil {
			web, err = c.client.CoreV1().Services(zonesNamespace).Get(ctx, "web", metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, err
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, kind, _ string) (net.Conn, error) {
		return v.DialContext(ctx, kind, net.JoinHostPort(dns.Spec.ClusterIP, "53"))
	}}
	type dial = func(context.Context, string, string) (net.Conn, error)
	get := func(dial dial, host string) func(context.Context) error {
		client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
		return func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/", nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			_, err = io.Copy(io.Discard, response.Body)
			if err == nil && response.StatusCode != http.StatusOK {
				err = errors.New(response.Status)
			}
			return err
		}
	}
	services := []*service{
		{name: "DNS of the cluster", request: func(ctx context.Context) error {
			_, err := resolver.LookupHost(ctx, "web."+zonesNamespace+".svc.cluster.local.")
			return err
		}},
		{name: "Service by its cluster IP", request: get(v.DialContext, web.Spec.ClusterIP)},
		{
			name:    "Service by its load balancer",
			request: get(c.byName.Dial, web.Status.LoadBalancer.Ingress[0].Hostname),
		},
	}
	for _, s := range services {
		if err := poll.Within(ctx, recoverTimeout, time.Second, s.request); err != nil {
			return nil, fmt.Errorf("%s, before the fault: %w", s.name, err)
		}
	}
	var group sync.WaitGroup
	for _, s := range services {
		group.Go(func() { s.use(ctx) })
	}
	return func(started time.Time, faults []Part) ([]Part, error) {
		group.Wait()
		var healed time.Duration
		for _, part := range faults {
			if part.Name == knownLost {
				healed = part.Took + healing
			}
		}
		var parts []Part
		var problems []error
		for _, s := range services {
			part, err := s.examine(started, healed)
			c.say("%s: %s", part.Name, short(part.Took))
			parts, problems = append(parts, part), append(problems, err)
		}
		return parts, errors.Join(problems...)
	}, nil
}

// use sends requests one after another until ctx ends.
func (s *service) use(ctx context.Context) {
	s.began = time.Now()
	for poll.Sleep(ctx, serviceInterval) == nil {
		limited, cancel := context.WithTimeout(ctx, serviceTimeout)
		err := s.request(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		s.outcomes = append(s.outcomes, outcome{time.Now(), err})
	}
}

// examine returns the longest time without a success, and an error if more than stray requests failed later than a time
// after the fault at which the Service must work again.
func (s *service) examine(started time.Time, healed time.Duration) (Part, error) {
	var gap time.Duration
	var last outcome
	failed, late, lateFailed := 0, 0, 0
	success := s.began
	for _, o := range s.outcomes {
		isLate := o.at.Sub(started) > healed
		if isLate {
			late++
		}
		if o.err == nil {
			gap, success = max(gap, o.at.Sub(success)), o.at
			continue
		}
		last = o
		failed++
		if isLate {
			lateFailed++
		}
	}
	part := Part{fmt.Sprintf("%s: longest gap, %d of %d requests failed", s.name, failed, len(s.outcomes)), gap}
	if failed > 0 {
		part.Name += ", the last after " + short(last.at.Sub(started))
	}
	if lateFailed*strayShare > late {
		return part, fmt.Errorf("%s: %d of %d requests failed later than %s after the fault, want 1 in %d at most: %w",
			s.name, lateFailed, late, short(healed), strayShare, last.err)
	}
	return part, nil
}
