package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/release/archive"
	"kubernetes-release/release/components"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/vm"
)

const (
	// DeployAim is the maximum time of a deploy, relative to a start by hand.
	DeployAim = 1.15
	// OtherAim is the maximum of all other ratios of a deploy and of a clone.
	OtherAim = 1.1

	upTimeout    = 15 * time.Minute
	downTimeout  = 5 * time.Minute
	readyTimeout = 5 * time.Minute
	readyPoll    = 100 * time.Millisecond
	// settleTime is the time between a deploy and the measurement of memory.
	settleTime = 15 * time.Second
)

//go:embed byhand.sh
var byHandScript []byte

// Deploys measures deploys in a lab of their own.
type Deploys struct {
	// Root is the repository; bin/lab, bin/bpm and the release tarball must have been built.
	Root string
	// Tarball is the release tarball, absolute.
	Tarball string
	// Runs is the number of measurements of each.
	Runs int
	Out  io.Writer

	// program and release are copies, so that a concurrent build does not change them.
	program, release string
	state            string
}

// Measure deploys and starts by hand in turn, each in a fresh VM, and returns the figures: time, and memory of the
// deployed processes (PSS and RSS). It always removes the lab.
func (d *Deploys) Measure(ctx context.Context) ([]Figure, error) {
	return d.inLab(ctx, d.measure)
}

// inLab prepares a lab, measures in it, and removes it again, also if the measurement fails.
func (d *Deploys) inLab(ctx context.Context, measure func(context.Context) ([]Figure, error)) (_ []Figure, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a lab requires root")
	}
	unlock, err := d.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	defer func() {
		if cleanup := d.lab(context.WithoutCancel(ctx), downTimeout, "down", "--all"); cleanup != nil {
			err = errors.Join(
				err,
				fmt.Errorf(
					"the lab in %s was not removed; run `bin/lab down --all --state %s`: %w", d.state, d.state, cleanup,
				),
			)
		}
	}()
	return measure(ctx)
}

// prepare creates the working folder, and removes the lab of an earlier run that was killed.
func (d *Deploys) prepare(ctx context.Context) (unlock func(), err error) {
	work := filepath.Join(d.Root, ".build", "bench")
	bin := filepath.Join(work, "bin")
	if unlock, err = components.Lock(ctx, work, d.Out); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	d.state = filepath.Join(work, "lab")
	d.program = filepath.Join(bin, "lab")
	d.release = filepath.Join(work, "kubernetes.tgz")
	for from, to := range map[string]string{
		filepath.Join(d.Root, "bin", "lab"): d.program,
		filepath.Join(d.Root, "bin", "bpm"): filepath.Join(bin, "bpm"),
		d.Tarball:                           d.release,
	} {
		if err := atomicfile.WriteFrom(
			to, 0o755, func(w io.Writer) error { return archive.CopyFile(w, from) },
		); err != nil {
			return nil, fmt.Errorf("%w; `make release lab` builds it", err)
		}
	}
	if _, err := os.Stat(d.state); err == nil {
		if err := d.lab(ctx, downTimeout, "down", "--all"); err != nil {
			return nil, err
		}
	}
	return unlock, nil
}

func (d *Deploys) measure(ctx context.Context) ([]Figure, error) {
	d.say("deploying once to compile packages; this is not measured")
	if err := d.up(ctx); err != nil {
		return nil, err
	}
	ready := Figure{
		Name:    "deploy",
		What:    "time until the node is Ready without taints and CoreDNS is Available",
		Unit:    Seconds,
		Aim:     DeployAim,
		Subject: "lab up, from nothing",
		Against: "the same programs and files started by hand",
		Busy:    busy(),
	}
	var deploys []map[string]time.Duration
	var processes []memory
	for run := range d.Runs {
		if err := d.lab(ctx, downTimeout, "down"); err != nil {
			return nil, err
		}
		took, parts, err := d.deploy(ctx)
		if err != nil {
			return nil, err
		}
		d.say("%d of %d: deployed in %.1f s", run+1, d.Runs, took.Seconds())
		ready.OursRuns, deploys = append(ready.OursRuns, took.Seconds()), append(deploys, parts)
		v, err := d.machine()
		if err != nil {
			return nil, err
		}
		if run == 0 {
			if processes, err = settled(ctx, v); err != nil {
				return nil, err
			}
		}
		if took, err = d.byHand(ctx, v); err != nil {
			return nil, err
		}
		d.say("%d of %d: started by hand in %.1f s", run+1, d.Runs, took.Seconds())
		ready.BaseRuns = append(ready.BaseRuns, took.Seconds())
	}
	ready.Ours, ready.Base, ready.Parts = median(ready.OursRuns), median(ready.BaseRuns), partsOf(deploys)
	ready.Note = deployNote(ready)
	return append([]Figure{ready}, memoryFigures(processes)...), nil
}

// deployNote describes what only the deploy does, and the ratio without the largest such part, and without all.
func deployNote(f Figure) string {
	const note = "A start by hand uses an existing VM, secrets and files; the time of the deploy includes creating " +
		"them. Without the generation of secrets the ratio is %.2f, and from the start of the jobs on, which both " +
		"do, it is %.2f."
	var variables, both float64
	for _, p := range f.Parts {
		switch p.Name {
		case phaseVariables:
			variables = p.Value
		case phaseStart, phasePostStart, phaseRest:
			both += p.Value
		}
	}
	return fmt.Sprintf(note, (f.Ours-variables)/f.Base, both/f.Base)
}

func (d *Deploys) say(format string, arguments ...any) {
	_, _ = fmt.Fprintf(d.Out, "deploy: "+format+"\n", arguments...)
}

// up deploys as make up does.
func (d *Deploys) up(ctx context.Context) error {
	return d.lab(ctx, upTimeout, "up", "--release", d.release,
		"-o", "ops-files/single-vm.yml", "-o", "ops-files/aws.yml", "-o", "ops-files/lab.yml", "-o",
		"ops-files/lab-aws.yml")
}

// lab runs the lab's program and shows its output only when it fails. The program gets SIGTERM when ctx ends, and no
// signals from the terminal, so that a second Ctrl-C does not interrupt the removal.
func (d *Deploys) lab(ctx context.Context, timeout time.Duration, name string, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := exec.CommandContext(ctx, d.program, append([]string{name, "--state", d.state}, arguments...)...)
	var output bytes.Buffer
	command.Dir, command.Stdout, command.Stderr = d.Root, &output, &output
	return runGroup(ctx, command, &output)
}

// runGroup runs a command in its own process group. When ctx ends, the group gets SIGTERM, and SIGKILL 30 seconds
// later.
func runGroup(ctx context.Context, command *exec.Cmd, output *bytes.Buffer) error {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 30 * time.Second
	err := command.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s was stopped: %w", strings.Join(command.Args, " "), context.Cause(ctx))
	default:
		return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, tail.Lines(output.String(), 40))
	}
}

// deploy measures one deploy and its phases.
func (d *Deploys) deploy(ctx context.Context) (time.Duration, map[string]time.Duration, error) {
	started := time.Now()
	if err := d.up(ctx); err != nil {
		return 0, nil, err
	}
	if err := d.awaitReady(ctx); err != nil {
		return 0, nil, err
	}
	end := time.Now()
	log, err := os.Open(filepath.Join(d.state, "log", "lab.log"))
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = log.Close() }()
	parts, err := deployPhases(log, started, end)
	return end.Sub(started), parts, err
}

// machine returns the lab's only VM.
func (d *Deploys) machine() (*vm.VM, error) {
	names, err := vm.List(d.state)
	if err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, fmt.Errorf("the lab in %s has the VMs %v; expected one", d.state, names)
	}
	return vm.Open(d.state, names[0])
}

// settled measures memory after settleTime.
func settled(ctx context.Context, v *vm.VM) ([]memory, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(settleTime):
	}
	return memoryOf(ctx, v)
}

// byHand replaces the VM with a new one that has the same name, address, files and packages and an empty disk. It
// measures how long a script takes there to start the processes of the old VM, with the same command lines,
// environments and users. No lifecycle script runs, and neither monit nor bpm is involved.
func (d *Deploys) byHand(ctx context.Context, v *vm.VM) (time.Duration, error) {
	commands, err := commandsOf(ctx, v)
	if err != nil {
		return 0, err
	}
	commands = append(commands, joinBefore(commands)...)
	known := map[string][]byte{}
	for _, path := range knownFiles {
		if known[path], err = os.ReadFile(v.HostPath(path)); err != nil {
			return 0, err
		}
	}
	fresh, err := recreate(ctx, v)
	if err != nil {
		return 0, err
	}
	for path, content := range known {
		if err := atomicfile.Write(fresh.HostPath(path), content, 0o644); err != nil {
			return 0, err
		}
	}
	const dir = "/root/by-hand"
	if err := writeScripts(fresh.HostPath(dir), commands); err != nil {
		return 0, err
	}
	if err := awaitNames(ctx, fresh); err != nil {
		return 0, err
	}
	running, stop := context.WithCancelCause(ctx)
	var output bytes.Buffer
	exited := make(chan struct{})
	started := time.Now()
	go func() {
		defer close(exited)
		err := fresh.Run(
			running, []string{dir + "/start"},
			vm.RunOptions{Stdin: strings.NewReader(""), Stdout: &output, Stderr: &output},
		)
		if err == nil {
			err = errors.New("all programs exited")
		}
		stop(fmt.Errorf("starting by hand: %w", err)) // waiting longer is pointless
	}()
	err = d.awaitReady(running)
	took := time.Since(started)
	stop(nil)
	<-exited
	if err != nil {
		return 0, fmt.Errorf("%w\n%s\n%s", err, tail.Lines(output.String(), 20), logTails(fresh.HostPath(dir)))
	}
	return took, nil
}

// recreate destroys a VM and its disk, and creates them again with the same jobs and packages.
func recreate(ctx context.Context, v *vm.VM) (*vm.VM, error) {
	text, err := os.ReadFile(v.HostPath(filepath.Join(string(bosh.DefaultRoot), "bosh/spec.json")))
	if err != nil {
		return nil, err
	}
	var applied agent.ApplySpec
	if err := json.Unmarshal(text, &applied); err != nil {
		return nil, fmt.Errorf("apply spec of VM %s: %w", v.Spec.Name, err)
	}
	if err := v.Destroy(ctx); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(v.Spec.PersistentDisk); err != nil {
		return nil, err
	}
	fresh, err := vm.Create(ctx, v.Spec)
	if err != nil {
		return nil, err
	}
	return fresh, agent.New(fresh).Apply(ctx, applied)
}

// knownFiles are what whoever starts by hand knows of the machines: what the job cloud-provider learns in pre-start,
// and the records of all instances, which the lab writes when a deploy publishes names.
var knownFiles = []string{
	bosh.DefaultRoot.Data("cloud-provider/node.json"), bosh.DefaultRoot.Path("instance/dns/records.json"),
}

func writeScripts(dir string, commands []command) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, c := range commands {
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(c.script()), 0o700); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "start"), byHandScript, 0o700)
}

// awaitNames waits until the lab's DNS has noticed that the VM is healthy and resolves the API's name again.
func awaitNames(ctx context.Context, v *vm.VM) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	const script = `host=$(sed -n 's|.*"api_server": "https://\([^:"]*\).*|\1|p' "$1")
until getent hosts "$host" >/dev/null; do sleep 0.1; done`
	_, err := inVM(ctx, v, script, bosh.DefaultRoot.Job("kubelet", "config/join.json"))
	return err
}

// logTails returns the last lines of the logs of a start by hand.
func logTails(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.log")) // fails for a bad pattern only
	var tails []string
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			tails = append(tails, filepath.Base(file)+":\n"+tail.Lines(string(text), 4))
		}
	}
	return strings.Join(tails, "\n")
}

// awaitReady waits until the cluster is ready. The error includes what was missing last.
func (d *Deploys) awaitReady(ctx context.Context) error {
	client, err := kubeconfig.ClientWithin(filepath.Join(d.state, "kubeconfig"), 5*time.Second)
	if err != nil {
		return err
	}
	err = poll.Within(ctx, readyTimeout, readyPoll, func(ctx context.Context) error { return ready(ctx, client) })
	if err != nil {
		return fmt.Errorf("waiting for the cluster to be ready: %w", err)
	}
	return nil
}

// ready returns what the cluster lacks to be ready, nil if nothing.
func ready(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	dns, err := client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return notReady(nodes.Items, dns)
}

// controlTaint is the one that the manifest gives control VMs.
const controlTaint = "node-role.kubernetes.io/control-plane"

// notReady returns what a cluster with these Nodes and this CoreDNS lacks to be ready, nil if nothing.
func notReady(nodes []corev1.Node, dns *appsv1.Deployment) error {
	if len(nodes) == 0 {
		return errors.New("no Node has registered")
	}
	for i := range nodes {
		if err := nodestatus.CheckReady(&nodes[i], true); err != nil {
			return err
		}
		for _, taint := range nodes[i].Spec.Taints {
			if taint.Key != controlTaint { // which control VMs keep
				return fmt.Errorf("Node %s has the taint %s", nodes[i].Name, taint.Key)
			}
		}
	}
	for _, c := range dns.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("CoreDNS is not Available")
}

// memoryFigures compares the memory of all processes with that of all but ours.
func memoryFigures(processes []memory) []Figure {
	var figures []Figure
	for _, kind := range []struct {
		name, what string
		of         func(memory) int64
	}{
		{"memory-pss", "resident memory of a deployed VM, shared pages divided by the number of processes that share " +
			"them (PSS)", func(m memory) int64 { return m.pss }},
		{
			"memory-rss", "resident memory of a deployed VM, shared pages counted for each process (RSS)",
			func(m memory) int64 { return m.rss },
		},
	} {
		sums := map[owner]int64{}
		for _, p := range processes {
			sums[ownerOf(p.program)] += kind.of(p)
		}
		base := sums[kubernetesOwner] + sums[upstreamOwner]
		figures = append(figures, Figure{
			Name:    kind.name,
			What:    kind.what,
			Unit:    Bytes,
			Aim:     OtherAim,
			Subject: "with our processes",
			Ours:    float64(base + sums[ownOwner]),
			Against: "Kubernetes and the other components alone",
			Base:    float64(base),
			Parts: []Part{
				{Name: "our processes (node-controller)", Value: float64(sums[ownOwner])},
				{Name: "Kubernetes", Value: float64(sums[kubernetesOwner])},
				{Name: "etcd, containerd, flannel, CoreDNS, pause", Value: float64(sums[upstreamOwner])},
			},
			Note: fmt.Sprintf(
				"Not counted: the lab's own processes in the VM (init, monit), %s.", components.Size(sums[labOwner]),
			),
		})
	}
	return figures
}
