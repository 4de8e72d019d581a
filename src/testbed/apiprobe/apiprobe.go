// Package apiprobe uses the Kubernetes API as clients built on client-go do, and beside them as one that retries
// nothing, and measures what an update of the cluster does to both: failed requests of each kind, and the longest time
// without a successful one.
package apiprobe

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/poll"
)

const (
	// Namespace is where the probe creates Secrets, which are encrypted in etcd. It exists in every cluster.
	Namespace = metav1.NamespaceDefault
	label     = "api-probe"

	// interval is the time between two requests of a kind.
	interval = 100 * time.Millisecond
	// requestTimeout bounds a request: one that takes longer has failed.
	requestTimeout = 30 * time.Second
	// catchUpTimeout bounds the wait for the watch's last events.
	catchUpTimeout = 15 * time.Second
	startTimeout   = time.Minute
	cleanupTimeout = time.Minute
)

// Report is what a probe has measured.
type Report struct {
	// Client is a client with the defaults of client-go, which repeats a request that is refused with Retry-After.
	Client
	Watch Watch `json:"watch"`
	// Once is a client that sends each request once.
	Once Client `json:"once"`
	// Lost are acknowledged writes whose object does not exist, or has other content, at the end.
	Lost []string `json:"lost,omitempty"`
}

// Client is what one client has measured.
type Client struct {
	Reads  Requests `json:"reads"`
	Writes Requests `json:"writes"`
}

// Requests are those of one kind.
type Requests struct {
	Sent   int `json:"sent"`
	Failed int `json:"failed"`
	// LongestGap is the longest time without a successful response.
	LongestGap Duration `json:"longest_gap"`
	GapEnded   string   `json:"gap_ended,omitempty"`
	// Slowest is the longest time that a successful request took.
	Slowest Duration `json:"slowest"`
	// Slow are the slowest of the successful requests that took long, each with its time and its stages.
	Slow []string `json:"slow,omitempty"`
	// Errors are the first errors, each with its time.
	Errors []string `json:"errors,omitempty"`
}

// Watch is a watch of the written objects that is started again, at the last seen version, whenever the API server ends
// it.
type Watch struct {
	Events int `json:"events"`
	// Ended is how often the API server has ended the watch, which is no failure.
	Ended  int `json:"ended"`
	Failed int `json:"failed"`
	// LongestLag is the longest time between a write's response and its event.
	LongestLag Duration `json:"longest_lag"`
	// Missed are acknowledged writes without an event.
	Missed int      `json:"missed"`
	Errors []string `json:"errors,omitempty"`
}

// Duration is a time.Duration that reads well in JSON.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).Round(time.Millisecond).String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Failures is the number of failures that clients built on client-go notice.
func (r Report) Failures() int {
	return r.Reads.Failed + r.Writes.Failed + r.Watch.Failed + r.Watch.Missed + len(r.Lost)
}

// LongestGap is the longest of the gaps that clients built on client-go notice.
func (r Report) LongestGap() time.Duration {
	return time.Duration(max(r.Reads.LongestGap, r.Writes.LongestGap, r.Watch.LongestLag))
}

// String is the report for people.
func (r Report) String() string {
	var b strings.Builder
	for _, kind := range []struct {
		name string
		Requests
	}{
		{"reads", r.Reads}, {"writes", r.Writes},
		{"reads without retries", r.Once.Reads}, {"writes without retries", r.Once.Writes},
	} {
		fmt.Fprintf(
			&b, "%s: %d of %d failed, longest gap %s (until %s), slowest %s\n",
			kind.name, kind.Failed, kind.Sent, text(kind.LongestGap), kind.GapEnded, text(kind.Slowest),
		)
		writeLines(&b, kind.Slow)
		writeLines(&b, kind.Errors)
	}
	fmt.Fprintf(
		&b, "watch: %d events, ended %d times, %d failures, %d events missed, longest lag %s\n", r.Watch.Events,
		r.Watch.Ended, r.Watch.Failed, r.Watch.Missed, text(r.Watch.LongestLag),
	)
	writeLines(&b, r.Watch.Errors)
	fmt.Fprintf(&b, "lost objects: %d\n", len(r.Lost))
	writeLines(&b, r.Lost)
	return b.String()
}

func text(d Duration) string { return time.Duration(d).Round(time.Millisecond).String() }

func writeLines(b *strings.Builder, list []string) {
	for _, line := range list {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// Run probes until ctx ends. It calls started after the first successful read and write, from when it measures. An
// error means that nothing was measured; failed requests are in the report.
func Run(ctx context.Context, config *rest.Config, started func()) (Report, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Report{}, err
	}
	p := &probe{
		client:  client,
		run:     fmt.Sprintf("%s-%d", label, time.Now().UnixMilli()),
		written: map[string]time.Time{},
	}
	p.patient = &sender{probe: p, kind: "patient"}
	p.once = &sender{probe: p, kind: "once", once: true}
	defer p.cleanUp(context.WithoutCancel(ctx))
	version, err := p.begin(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("the API does not work, so nothing can be measured: %w", err)
	}
	watching, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.watch(watching, version)
	}()
	started()
	var loops sync.WaitGroup
	for _, c := range []*sender{p.patient, p.once} {
		loops.Go(func() { repeat(ctx, &c.reads, c.read) })
		loops.Go(func() { repeat(ctx, &c.writes, c.write) })
	}
	loops.Wait()
	_ = poll.Within(watching, catchUpTimeout, 100*time.Millisecond, func(context.Context) error { return p.unseen() })
	stopWatch()
	<-watched
	return p.report(context.WithoutCancel(ctx))
}

type probe struct {
	client  kubernetes.Interface
	run     string // prefix of the objects' names, and value of their label
	patient *sender
	once    *sender

	mutex   sync.Mutex
	written map[string]time.Time // acknowledged writes, by name, that the watch has not reported yet
	early   map[string]bool      // events that came before the response
	names   []string             // all acknowledged writes
	watches Watch
	last    errorList
}

// begin reads and writes once, and returns the version at which the watch begins.
func (p *probe) begin(ctx context.Context) (version string, err error) {
	err = poll.Within(ctx, startTimeout, time.Second, func(ctx context.Context) error {
		list, err := p.client.CoreV1().Secrets(Namespace).List(ctx, p.selector())
		if err == nil {
			version = list.ResourceVersion
			err = p.patient.read(ctx, 0)
		}
		return err
	})
	return version, err
}

func (p *probe) selector() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: label + "=" + p.run}
}

// sender sends the requests of one client.
type sender struct {
	probe         *probe
	kind          string // part of the names of its objects
	once          bool   // nothing is sent again
	reads, writes counter
}

// repeat sends a numbered request at each tick, whether or not earlier ones have been answered, until ctx ends, and
// waits for all answers.
func repeat(ctx context.Context, count *counter, request func(context.Context, int) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	count.begin()
	var open sync.WaitGroup
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			open.Wait()
			count.end()
			return
		case <-ticker.C:
		}
		open.Go(func() {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
			defer cancel()
			traced, stages := trace(limited)
			count.add(stages, request(traced, n))
		})
	}
}

// limit leaves a request the retries that client-go gives it, or none.
func (s *sender) limit(request *rest.Request) *rest.Request {
	if s.once {
		request.MaxRetries(0)
	}
	return request
}

// read reads a small object of every cluster from etcd, not from the API server's cache.
func (s *sender) read(ctx context.Context, _ int) error {
	request := s.limit(s.probe.client.CoreV1().RESTClient().Get())
	return request.Resource("namespaces").Name(Namespace).Do(ctx).Error()
}

// write creates an object. A write that is sent again after it has succeeded would fail.
func (s *sender) write(ctx context.Context, n int) error {
	p := s.probe
	name := fmt.Sprintf("%s-%s-%d", p.run, s.kind, n)
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: p.run}},
		Data:       map[string][]byte{"name": []byte(name)},
	}
	request := s.limit(p.client.CoreV1().RESTClient().Post()).Namespace(Namespace)
	err := request.Resource("secrets").Body(object).Do(ctx).Error()
	if err == nil {
		p.acknowledged(name)
	}
	return err
}

func (s *sender) result() Client { return Client{Reads: s.reads.result(), Writes: s.writes.result()} }

func (p *probe) acknowledged(name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.names = append(p.names, name)
	if p.early[name] {
		delete(p.early, name)
		return
	}
	p.written[name] = time.Now()
}

// unseen is an error while acknowledged writes have no event.
func (p *probe) unseen() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if n := len(p.written); n > 0 {
		return fmt.Errorf("%d writes have no event", n)
	}
	return nil
}

func (p *probe) report(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	list, err := p.client.CoreV1().Secrets(Namespace).List(ctx, p.selector())
	if err != nil {
		return Report{}, fmt.Errorf("looking for the written objects: %w", err)
	}
	exists := map[string]bool{}
	for _, object := range list.Items {
		exists[object.Name] = string(object.Data["name"]) == object.Name
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.watches.Missed, p.watches.Errors = len(p.written), p.last.list
	r := Report{Client: p.patient.result(), Watch: p.watches, Once: p.once.result()}
	for _, name := range p.names {
		if !exists[name] {
			r.Lost = append(r.Lost, name)
		}
	}
	return r, nil
}

// cleanUp deletes the objects; what remains does no harm.
func (p *probe) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	_ = p.client.CoreV1().Secrets(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, p.selector())
}

// JSON is the report for programs; Parse reads it.
func (r Report) JSON() ([]byte, error) { return json.Marshal(r) }

// Parse reads what JSON has written.
func Parse(text []byte) (Report, error) {
	var r Report
	err := json.Unmarshal(text, &r)
	return r, err
}
