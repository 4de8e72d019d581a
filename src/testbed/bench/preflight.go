package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

const (
	// PreflightTimeAim is the maximum time of a fleet of workers that start at once, relative to what EC2's token
	// bucket needs for it.
	PreflightTimeAim = 1.2
	// PreflightCallsAim is the maximum number of EC2 calls of a worker in a large fleet, relative to one in a small
	// fleet. As long as this is bounded, the calls of all grow linearly.
	PreflightCallsAim = 4
	// PreflightResultsAim is the maximum of accounts for each that has the right result: none is wrong.
	PreflightResultsAim = 1
)

// EC2's token bucket. Each action has one per account and region.
const (
	bucketBurst = 100
	bucketRate  = 20 // a second
)

// Preflights measures how the preflights of many workers that start at the same time get through EC2's token bucket.
//
// They are those of the program cloud-preflight, with the default settings of the job cloud-provider and the program's
// own timeout, and each has its own instance metadata. They run in one process, because a small machine cannot run
// 1,000 processes. Each calls EC2 only after all have read instance metadata, because that takes milliseconds on real
// machines, which do not share processors.
type Preflights struct {
	// Root is the repository, which holds the job's defaults.
	Root string
	// Runs is the number of measurements of the largest fleet.
	Runs int
	Out  io.Writer
}

// fleetSizes are the numbers of workers: the first is compared with the last.
var fleetSizes = []int{10, 100, 1000}

// Measure returns the figures. It is an error if a worker did not pass.
func (p Preflights) Measure(ctx context.Context) ([]Figure, error) {
	config, err := workerConfig(p.Root)
	if err != nil {
		return nil, err
	}
	load := busy()
	largest := fleetSizes[len(fleetSizes)-1]
	var times, calls, slowest []float64
	var parts []Part
	var totals []string
	attempts := 0
	var perWorker float64 // of the smallest fleet
	for _, workers := range fleetSizes {
		runs := 1
		if workers == largest {
			runs = p.Runs
		}
		for range runs {
			c := fleet{
				workers: workers,
				burst:   bucketBurst,
				rate:    bucketRate,
				config:  config,
				timeout: preflight.DefaultTimeout,
			}
			if err := c.run(ctx); err != nil {
				return nil, fmt.Errorf("preflight of %d workers: %w", workers, err)
			}
			_, _ = fmt.Fprintf(p.Out, "preflight: %s\n", c.line())
			each := float64(c.calls) / float64(workers)
			switch workers {
			case largest:
				times, calls = append(times, c.took.Seconds()), append(calls, each)
				slowest = append(slowest, c.slowest.Seconds())
				attempts = max(attempts, c.attempts)
			case fleetSizes[0]:
				perWorker = each
			}
			if len(parts) == 0 || parts[len(parts)-1].Name != c.name() {
				parts = append(parts, Part{Name: c.name(), Value: each})
				totals = append(totals, fmt.Sprintf("%d calls of %d workers", c.calls, workers))
			}
		}
	}
	parts[len(parts)-1] = Part{Name: parts[len(parts)-1].Name, Value: median(calls), Runs: calls}
	bound := float64(largest-bucketBurst) / bucketRate
	return []Figure{
		{
			Name:     "preflight-time",
			What:     "time until the last of many workers is through EC2's token bucket",
			Unit:     Seconds,
			Aim:      PreflightTimeAim,
			Busy:     load,
			Subject:  fmt.Sprintf("%d workers that start at once", largest),
			Ours:     median(times),
			OursRuns: times,
			Against:  fmt.Sprintf("the bucket's lower bound, %d calls and %d a second", bucketBurst, bucketRate),
			Base:     bound,
			Note: fmt.Sprintf(
				"All passed. No worker called an action more than %d times, which is not limited; the slowest "+
					"finished after %.0f s of at most %.0f s.",
				attempts, slices.Max(slowest), preflight.DefaultTimeout.Seconds(),
			),
		},
		{
			Name: "preflight-calls",
			What: "EC2 calls of each worker in a large fleet against a small one; while they are bounded, the " +
				"cost is linear",
			Unit:     Calls,
			Aim:      PreflightCallsAim,
			Busy:     load,
			Subject:  fmt.Sprintf("%d workers", largest),
			Ours:     median(calls),
			OursRuns: calls,
			Against:  fmt.Sprintf("%d workers", fleetSizes[0]),
			Base:     perWorker,
			Parts:    parts,
			Note: fmt.Sprintf(
				"In total %s. They include throttled calls, which take no token from the bucket.",
				strings.Join(totals, ", "),
			),
		},
	}, nil
}

// workerConfig is a worker's preflight.json as the job renders it with default properties.
func workerConfig(root string) (preflight.Config, error) {
	path := filepath.Join(root, "jobs", "cloud-provider", "spec")
	content, err := os.ReadFile(path)
	if err != nil {
		return preflight.Config{}, err
	}
	var spec struct {
		Properties map[string]struct{ Default any }
	}
	if err := yaml.Unmarshal(content, &spec); err != nil {
		return preflight.Config{}, fmt.Errorf("%s: %w", path, err)
	}
	rendered, err := json.Marshal(map[string]any{
		"provider":     "aws",
		"cluster":      fleetCluster,
		"role":         preflight.Worker,
		"mode":         spec.Properties["preflight.mode"].Default,
		"retry_window": spec.Properties["preflight.retry_window"].Default,
		"checks":       spec.Properties["preflight.checks"].Default,
	})
	if err != nil {
		return preflight.Config{}, err
	}
	config, err := preflight.ParseConfig(rendered)
	if err != nil {
		return preflight.Config{}, fmt.Errorf("defaults in %s: %w", path, err)
	}
	return config, nil
}

const fleetCluster = "bench"

// fleet is a number of workers whose preflights start at once, and the result.
type fleet struct {
	workers     int
	burst, rate float64
	config      preflight.Config
	timeout     time.Duration
	span        time.Duration // first back-off after throttling; 0 for the default

	calls, throttled int
	attempts         int           // maximum calls of one worker for one action
	took             time.Duration // from the first call of EC2 to the last
	slowest          time.Duration // worker, from the first call on
}

func (c *fleet) name() string { return fmt.Sprintf("calls each of %d workers", c.workers) }

func (c *fleet) line() string {
	text := fmt.Sprintf(
		"%d workers passed: %d EC2 calls, %.1f each, %d throttled, at most %d by one worker for one action; %.1f s",
		c.workers, c.calls, float64(c.calls)/float64(c.workers), c.throttled, c.attempts, c.took.Seconds(),
	)
	if bound := (float64(c.workers) - c.burst) / c.rate; bound > 0 {
		text += fmt.Sprintf(", %.2f of the bucket's bound of %.1f s", c.took.Seconds()/bound, bound)
	}
	return text
}

// readers is how many workers read instance metadata at a time, because they share the processors of one machine.
const readers = 16

// run runs the fleet. The error names the first worker that did not pass and its findings.
func (c *fleet) run(ctx context.Context) error {
	simulator, err := c.simulator()
	if err != nil {
		return err
	}
	defer func() { _ = simulator.Close() }()
	api := httptest.NewServer(simulator.Handler())
	defer api.Close()

	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	slots := make(chan struct{}, readers)
	var done, arrived sync.WaitGroup
	arrived.Add(c.workers)
	reports, errs := make([]*preflight.Report, c.workers), make([]error, c.workers)
	began := sync.OnceValue(time.Now) // the time of the first EC2 call
	for n := range c.workers {
		done.Go(func() {
			slots <- struct{}{}
			arrive := sync.OnceFunc(func() { <-slots; arrived.Done() })
			defer arrive() // also if it never calls EC2
			reports[n], errs[n] = c.worker(
				ctx, simulator, api.URL, n, func() { arrive(); arrived.Wait(); began() },
			)
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for n, r := range reports {
		if r.Result != preflight.RunPassed || r.Count(preflight.Warned) > 0 {
			var text bytes.Buffer
			preflight.Printer{Short: true}.Table(&text, r)
			preflight.Printer{}.Findings(&text, r)
			return fmt.Errorf("worker %d did not pass:\n%s", n, text.String())
		}
		for _, calls := range r.Calls {
			c.attempts = max(c.attempts, calls.Count)
		}
		c.slowest = max(c.slowest, r.Started.Add(time.Duration(r.Milliseconds)*time.Millisecond).Sub(began()))
	}
	record := simulator.Calls("ec2:*")
	c.calls, c.took = len(record), record[len(record)-1].Time.Sub(record[0].Time)
	for _, call := range record {
		if call.Code != "" {
			c.throttled++
		}
	}
	return nil
}

func workerID(n int) string { return fmt.Sprintf("i-%017x", n+1) }

func workerAddress(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(16 + (n+4)/256), byte((n + 4) % 256)})
}

// simulator simulates an AWS in which the workers pass, with the generated IAM policy.
func (c *fleet) simulator() (*awssim.Simulator, error) {
	world := awssim.NewLabWorld(
		awssim.LabOptions{Network: netip.MustParsePrefix("10.77.0.0/16"), Cluster: fleetCluster},
	)
	world.Settings.Throttle = []store.ThrottleRule{{Action: "ec2:*", Burst: c.burst, Rate: c.rate}}
	for n := range c.workers {
		world.Instances = append(world.Instances, store.Instance{
			ID:              workerID(n),
			Subnet:          awssim.LabNodeSubnet(1),
			Address:         workerAddress(n),
			SecurityGroups:  []string{awssim.LabSecurityGroup},
			InstanceProfile: "kubernetes-worker",
			Tags:            store.Tags{aws.TagPrefix + fleetCluster: "shared"},
		})
	}
	policy, err := aws.NewPolicy(aws.PolicyOptions{Role: preflight.Worker, Cluster: fleetCluster})
	if err != nil {
		return nil, err
	}
	document, err := policy.JSON()
	if err != nil {
		return nil, err
	}
	if err := world.SetPolicy("kubernetes-worker", document); err != nil {
		return nil, err
	}
	return awssim.New(world, awssim.Options{})
}

// worker runs the preflight of one worker.
func (c *fleet) worker(
	ctx context.Context, simulator *awssim.Simulator, api string, n int, beforeCalls func(),
) (*preflight.Report, error) {
	// The simulated instance metadata identifies machines by their source address.
	answer := simulator.MetadataServer().Handler
	source := netip.AddrPortFrom(workerAddress(n), 1024).String()
	metadata := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RemoteAddr = source
			answer.ServeHTTP(w, r)
		}),
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { _ = metadata.Serve(listener) }() // returns after Close
	defer func() { _ = metadata.Close() }()

	provider := &aws.Provider{
		MetadataEndpoint: "http://" + listener.Addr().String(), Endpoint: api,
		BeforeCalls: beforeCalls, ThrottleSpan: c.span,
		LocalAddresses: func() ([]netip.Addr, error) { return []netip.Addr{workerAddress(n)}, nil },
	}
	started := time.Now()
	out, err := provider.Preflight(ctx, cloud.Request{Config: c.config})
	if err != nil {
		return nil, err
	}
	report := preflight.NewReport(c.config, out.Results, started, time.Since(started))
	report.Machine, report.Calls = out.Machine, out.Calls
	return report, nil
}
