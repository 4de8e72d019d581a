package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
)

const (
	// promptly is how soon an interrupted command must exit.
	promptly = 10 * time.Second
	// reachTimeout limits how long an `up` may take to reach the stage at which it is interrupted.
	reachTimeout = 3 * time.Minute
	// outage is how long the cloud is unavailable.
	outage = time.Minute
	// diskSize is the size of the disk for a lab's directory, in bytes; a lab uses about 1 GiB.
	diskSize = 3 << 30
)

// pidsOf returns the pids of an instance's processes by name, in the instance's PID namespace.
func (l *lab) pidsOf(t *testing.T, instance string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for line := range strings.Lines(l.ssh(t, instance, "sh", "-c", "for f in /run/kubernetes-bosh/*/*.pid "+
		"/var/vcap/sys/run/bpm/*/*.pid; do echo $f $(cat $f); done")) {
		if fields := strings.Fields(line); len(fields) == 2 {
			files[strings.TrimSuffix(filepath.Base(fields[0]), ".pid")] = fields[1]
		}
	}
	if len(files) < 9 {
		t.Fatalf("too few pidfiles: %v", files)
	}
	return files
}

// nodeIsReady returns nil if the API responds and its node is Ready, with a lease renewed after since.
func (l *lab) nodeIsReady(t *testing.T, since time.Time) error {
	t.Helper()
	out, err := l.kubectl(
		t,
		"",
		"--request-timeout=5s",
		"get",
		"nodes",
		"-o",
		`jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`,
	)
	switch {
	case err != nil:
		return fmt.Errorf("get the node: %w: %s", err, out)
	case out != "True":
		return fmt.Errorf("the node's condition Ready is %q", out)
	}
	out, err = l.kubectl(
		t, "", "--request-timeout=5s", "-n", "kube-node-lease", "get", "leases", "-o",
		"jsonpath={.items[0].spec.renewTime}",
	)
	if err != nil {
		return fmt.Errorf("get the node's lease: %w: %s", err, out)
	}
	renewed, err := time.Parse(time.RFC3339Nano, out)
	switch {
	case err != nil:
		return fmt.Errorf("the node's lease: %w", err)
	case renewed.Before(since):
		return fmt.Errorf("the node's lease was renewed at %s, before %s", renewed, since)
	}
	return nil
}

// containersOf describes the containers of a namespace by what changes when one is restarted.
func (l *lab) containersOf(t *testing.T, namespace string) string {
	t.Helper()
	return l.mustKubectl(
		t,
		"",
		"-n",
		namespace,
		"get",
		"pods",
		"--sort-by=.metadata.name",
		"-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {range `+
			`.status.containerStatuses[*]}{.containerID} {.restartCount} {.state.running.startedAt}{end}{"\n"}{end}`,
	)
}

// served deploys two pods behind a load balancer and returns its host name.
func (l *lab) served(t *testing.T, name string) string {
	t.Helper()
	l.mustKubectl(t, loadBalancerManifest(name, "classic", l.smokeImage(t)), "apply", "-f", "-")
	t.Cleanup(func() { l.deleteServed(t, name) })
	l.mustKubectl(t, "", "-n", name, "rollout", "status", "deployment/web", "--timeout=90s")
	return l.answered(t, name, 2*time.Minute)
}

// answered waits until a namespace's load balancer responds, and returns its host name.
func (l *lab) answered(t *testing.T, name string, timeout time.Duration) string {
	t.Helper()
	started := time.Now()
	host := l.loadBalancerHost(t, name, timeout)
	t.Logf("load balancer of %s has its name after %s", name, time.Since(started).Round(100*time.Millisecond))
	waitFor(t, timeout, "HTTP through "+host, func() error {
		_, err := l.get(host)
		return err
	})
	return host
}

// onNodePort sends a request to the node port of a namespace's Service.
func (l *lab) onNodePort(t *testing.T, name string) error {
	t.Helper()
	port := l.mustKubectl(t, "", "-n", name, "get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
	address := fmt.Sprintf("http://10.%d.16.4:%s/", l.networkNumber(), port)
	if out, err := exec.Command("curl", "-sS", "--fail", "--max-time", "5", address).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", address, err, out)
	}
	return nil
}

// TestClusterSurvivesCloudOutage stops the cloud for a minute: its API, instance metadata, load balancers and the DNS
// of the VMs' network. The cluster keeps running, load balancers requested meanwhile are created afterwards, and no
// process is restarted.
func TestClusterSurvivesCloudOutage(t *testing.T) {
	l := deployed(t)
	host := l.served(t, "before-outage")
	pods, processes := l.containersOf(t, "before-outage"), l.pidsOf(t, "control/0")
	waitFor(
		t, time.Minute, "the node's first lease",
		func() error { return l.nodeIsReady(t, time.Now().Add(-40*time.Second)) },
	)
	var cloud struct{ PID int }
	text, err := os.ReadFile(filepath.Join(l.state, "cloud.json"))
	if err != nil || json.Unmarshal(text, &cloud) != nil || cloud.PID < 2 {
		t.Fatalf("cloud.json: %s %v", text, err)
	}
	if err := syscall.Kill(cloud.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	image := l.smokeImage(t)
	l.mustKubectl(t, loadBalancerManifest("in-outage", "classic", image), "apply", "-f", "-")
	t.Cleanup(func() { l.deleteServed(t, "in-outage") })
	l.mustKubectl(t, "", "-n", "in-outage", "rollout", "status", "deployment/web", "--timeout=50s")
	t.Cleanup(func() { // runs before the other cleanups, which require the cloud
		if out, err := l.up(); err != nil {
			t.Errorf("up: %v\n%s", err, tail.Lines(out, 30))
		}
	})
	waitFor(t, 20*time.Second, "a Service created in the outage", func() error { return l.onNodePort(t, "in-outage") })
	answers := 0
	for time.Since(gone) < outage {
		for _, namespace := range []string{"before-outage", "in-outage"} {
			if err := l.onNodePort(t, namespace); err != nil {
				t.Fatalf("%s into the outage: %v", time.Since(gone).Round(time.Second), err)
			}
			answers++
		}
		if err := l.nodeIsReady(t, time.Now().Add(-40*time.Second)); err != nil {
			t.Fatalf("%s into the outage: %v", time.Since(gone).Round(time.Second), err)
		}
		time.Sleep(2 * time.Second)
	}
	t.Logf("%d requests succeeded in the outage", answers)
	if out, err := l.up(); err != nil || !strings.Contains(out, "Nothing has changed") {
		t.Fatalf("up, which restarts the cloud: %v\n%s", err, tail.Lines(out, 30))
	}
	l.answered(t, "in-outage", 3*time.Minute)
	if again := l.answered(t, "before-outage", time.Minute); again != host {
		t.Errorf("the load balancer was %s and is %s", host, again)
	}
	if err := l.nodeIsReady(t, time.Now().Add(-40*time.Second)); err != nil {
		t.Error(err)
	}
	if after := l.containersOf(t, "before-outage"); after != pods {
		t.Errorf("containers were restarted; before:\n%s\nafter:\n%s", pods, after)
	}
	for name, pid := range l.pidsOf(t, "control/0") {
		if processes[name] != pid {
			t.Errorf("%s was restarted: pid %s is now %s", name, processes[name], pid)
		}
	}
}

// TestKilledProcessesAreRestarted kills processes of a VM: monit restarts them, and pods are not affected.
func TestKilledProcessesAreRestarted(t *testing.T) {
	l := deployed(t)
	l.served(t, "killed")
	pods := l.containersOf(t, "killed")
	for _, victims := range [][]string{
		{"kubelet"}, {"containerd"}, {"kube-apiserver"}, {"etcd"},
		{
			"kube-controller-manager", "kube-scheduler", "cloud-controller-manager", "node-controller",
			"kube-proxy", "flannel", "network-policy",
		},
	} {
		t.Run(strings.Join(victims, " "), func(t *testing.T) {
			before := l.pidsOf(t, "control/0")
			kill := []string{"kill", "-9"}
			for _, name := range victims {
				if before[name] == "" {
					t.Fatalf("no pidfile of %s: %v", name, before)
				}
				kill = append(kill, before[name])
			}
			killed := time.Now()
			l.ssh(t, "control/0", kill...)
			waitFor(t, time.Minute, "new processes", func() error {
				after := l.pidsOf(t, "control/0")
				for _, name := range victims {
					if after[name] == before[name] || after[name] == "" {
						return fmt.Errorf("%s: pid %q was %q", name, after[name], before[name])
					}
				}
				out, err := l.run(30*time.Second, "status")
				if err != nil {
					return fmt.Errorf("%w\n%s", err, out)
				}
				return nil
			})
			waitFor(t, time.Minute, "node Ready", func() error { return l.nodeIsReady(t, killed) })
			t.Logf("back after %s", time.Since(killed).Round(100*time.Millisecond))
			if err := l.onNodePort(t, "killed"); err != nil {
				t.Error(err)
			}
			if now := l.containersOf(t, "killed"); now != pods {
				t.Errorf("containers were restarted; before:\n%s\nafter:\n%s", pods, now)
			}
			for name, pid := range l.pidsOf(t, "control/0") {
				// kubelet depends on containerd, and monit restarts what depends on a process.
				if before[name] != pid && !slices.Contains(victims, name) &&
					!(name == "kubelet" && victims[0] == "containerd") {
					t.Errorf("%s was restarted too", name)
				}
			}
		})
	}
}
