package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/testbed/apiprobe"
	"kubernetes-release/testbed/tarball"
)

// GapAim is the maximum time in seconds without a successful API request during an update.
const GapAim = 1

// productionShape are three control VMs and a worker.
var productionShape = []string{
	"-o", "ops-files/aws.yml", "-o", "ops-files/lab.yml", "-o", "ops-files/lab-aws.yml", "-o",
	"ops-files/scale-workers.yml", "-v",
	"worker_instances=1",
}

// Updates measures what clients of the API notice of updates, in a lab of their own.
type Updates struct{ Deploys }

// kind is one kind of update.
type kind struct {
	name, what string
	updates    [][]string // the arguments of the lab's program for each of them
	version    string     // of the API server afterwards
}

// Measure deploys three control VMs and a worker, updates them in several ways while a client reads, writes and
// watches, and returns two figures for each: the share of failed requests, and the longest time without a successful
// one. It always removes the lab.
func (u *Updates) Measure(ctx context.Context) ([]Figure, error) {
	return u.inLab(ctx, u.measure)
}

func (u *Updates) measure(ctx context.Context) (figures []Figure, err error) {
	up := func(release string, more ...string) []string {
		return slices.Concat([]string{"up", "--release", release}, productionShape, more)
	}
	previous := func(what string) (arguments []string, version string, err error) {
		to := filepath.Join(filepath.Dir(u.release), what+".tgz")
		version, err = tarball.PreviousKubernetes(ctx, u.Root, u.release, what, to)
		return up(to), version, err
	}
	minor, before, err := previous("minor")
	if err != nil {
		return nil, err
	}
	patch, back, err := previous("patch")
	if err != nil {
		return nil, err
	}
	u.say("updates: deploying three control VMs and a worker with Kubernetes %s; this is not measured", before)
	if err := u.lab(ctx, upTimeout, minor[0], minor[1:]...); err != nil {
		return nil, err
	}
	current := up(u.release)
	verbose := up(u.release, "-o", "src/testbed/acceptance/testdata/log-level.yml")
	version, err := tarball.PinnedKubernetes(ctx, u.Root, "kubernetes")
	if err != nil {
		return nil, err
	}
	upgrade := "upgrade of Kubernetes on all VMs from %s to " + version
	for _, k := range []kind{
		{"minor", fmt.Sprintf(upgrade, before), [][]string{current}, version},
		{"patch-back", "downgrade of Kubernetes on all VMs to " + back, [][]string{patch}, back},
		{"patch", fmt.Sprintf(upgrade, back), [][]string{current}, version},
		{"update-control", "rolling update of three control VMs", [][]string{verbose}, version},
		{"recreate", "new VM for each instance, as with a new stemcell", [][]string{{"recreate"}}, version},
		{
			"ten-updates", "series of ten rolling updates of three control VMs",
			slices.Repeat([][]string{current, verbose}, 5), version,
		},
	} {
		load := busy()
		report, err := u.probe(ctx, k.updates)
		if err != nil {
			return figures, err
		}
		if now, err := u.version(); err != nil || now != k.version {
			return figures, errors.Join(
				err, fmt.Errorf("after the %s the API server is %q, want %s", k.what, now, k.version),
			)
		}
		u.say("%s:\n%s", k.what, report)
		figures = append(figures, updateFigures(k, report, load)...)
	}
	return figures, nil
}

// version is that of the API server.
func (u *Updates) version() (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(u.state, "kubeconfig"))
	if err != nil {
		return "", err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion, nil
}

func updateFigures(k kind, r apiprobe.Report, load float64) []Figure {
	sent := r.Reads.Sent + r.Writes.Sent
	return []Figure{
		{
			Name:    k.name + "-failures",
			What:    "API requests of client-go that fail while there is a " + k.what,
			Unit:    Count,
			Aim:     0,
			Busy:    load,
			Subject: "failed",
			Ours:    float64(r.Failures()),
			Against: "sent",
			Base:    float64(sent),
			Parts: []Part{
				{Name: "reads", Value: float64(r.Reads.Failed)},
				{Name: "writes", Value: float64(r.Writes.Failed)},
				{
					Name:  "starts of a watch",
					Value: float64(r.Watch.Failed),
				},
				{Name: "missed events", Value: float64(r.Watch.Missed)},
				{Name: "lost objects", Value: float64(len(r.Lost))},
			},
			Note: fmt.Sprintf(
				"Of a client that retries nothing, %d of %d requests failed.", r.Once.Reads.Failed+r.Once.Writes.Failed,
				r.Once.Reads.Sent+r.Once.Writes.Sent,
			),
		},
		{
			Name:    k.name + "-gap",
			What:    "longest time without a successful API request while there is a " + k.what,
			Unit:    Seconds,
			Aim:     1,
			Busy:    load,
			Subject: "longest gap",
			Ours:    r.LongestGap().Seconds(),
			Against: "aim",
			Base:    GapAim,
			Note:    "All VMs share this machine's processors: an API server that starts slows the others down.",
		},
	}
}

// probe runs the lab's probe from this machine, because all VMs are updated, during the updates.
func (u *Updates) probe(ctx context.Context, updates [][]string) (apiprobe.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, upTimeout*time.Duration(len(updates)))
	defer cancel()
	command := exec.CommandContext(ctx, u.program, "probe", "--json", "--state", u.state)
	command.Dir, command.Stderr = filepath.Clean(u.Root), os.Stderr
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return apiprobe.Report{}, err
	}
	defer func() { cancel(); _ = command.Wait() }()
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "Probing") {
		return apiprobe.Report{}, errors.Join(err, fmt.Errorf("the probe printed %q", line))
	}
	for n, arguments := range updates {
		u.say("update %d of %d", n+1, len(updates))
		if err := u.lab(ctx, upTimeout, arguments[0], arguments[1:]...); err != nil {
			return apiprobe.Report{}, err
		}
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		return apiprobe.Report{}, err
	}
	text, err := io.ReadAll(lines)
	if err != nil {
		return apiprobe.Report{}, err
	}
	return apiprobe.Parse(text)
}
