package acceptance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
)

// TestPodsGetTheResolverForContainers: the VM's own resolver file names a loopback address, and BOSH's names as search
// domains.
func TestPodsGetTheResolverForContainers(t *testing.T) {
	l := deployed(t)
	if own := l.ssh(t, "control/0", "cat", "/etc/resolv.conf"); !strings.Contains(own, "nameserver 127.0.0.53") ||
		!strings.Contains(own, "search bosh ") {
		t.Fatalf("the VM's resolver file is not a stemcell's, so this test proves nothing:\n%s", own)
	}
	// Pods of kube-system have dnsPolicy Default (CoreDNS), the others ClusterFirst.
	l.served(t, "resolver")
	files := l.ssh(
		t, "control/0", "sh", "-c",
		"cd /var/vcap/data/containerd && find . -path '*/sandboxes/*/resolv.conf' -exec cat {} + | sort -u",
	)
	if strings.Contains(files, "127.0.0.53") || strings.Contains(files, "bosh") ||
		strings.Contains(files, ".internal") && !strings.Contains(files, "search resolver.svc") {
		t.Errorf("pods have\n%s", files)
	}
	for _, want := range []string{"nameserver 169.254.0.53", "nameserver 10.96.0.10", "search " +
		"resolver.svc.cluster.local svc.cluster.local cluster.local"} {
		if !slices.Contains(strings.Split(files, "\n"), want) {
			t.Errorf("no pod has %q:\n%s", want, files)
		}
	}
}

// checkRestartAndReboot expects pods to live on when the jobs of their node are restarted, which reloads monit, and the
// cluster to come back by itself after all VMs have lost power at the same time.
func (l *lab) checkRestartAndReboot(t *testing.T, instances []string) {
	const namespace = "every-node"
	l.mustKubectl(t, fmt.Sprintf(daemonManifest, namespace, l.smokeImage(t)), "apply", "-f", "-")
	l.mustKubectl(t, "", "-n", namespace, "rollout", "status", "daemonset/web", "--timeout=90s")
	machines, pods := l.machines(t, instances), l.containersOf(t, namespace)
	if out, err := l.run(deployTimeout, "restart", "worker/0"); err != nil {
		t.Fatalf("restart: %v\n%s", err, tail.Lines(out, 60))
	}
	if log := l.ssh(
		t, "worker/0", "cat", "/var/vcap/sys/log/kubelet/drain.stderr.log",
	); !strings.Contains(log, "node is drained") {
		t.Errorf("worker/0 was not drained:\n%s", log)
	}
	l.checkReplaced(t, machines, l.machines(t, instances)) // back in service, too: without the taint of a cordoned node
	if after := l.containersOf(t, namespace); after != pods {
		t.Errorf("restarting worker/0 restarted containers; before:\n%s\nafter:\n%s", pods, after)
	}

	started := time.Now()
	if out, err := l.run(2*time.Minute, "reboot"); err != nil {
		t.Fatalf("reboot: %v\n%s", err, out)
	}
	waitFor(t, 3*time.Minute, "every pod runs again", func() error {
		out, err := l.kubectl(
			t,
			"",
			"--request-timeout=5s",
			"get",
			"pods",
			"--all-namespaces",
			"-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} `+
				`{.status.containerStatuses[*].state.running.startedAt}{"\n"}{end}`,
		)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for line := range strings.Lines(strings.TrimSpace(out)) {
			fields := strings.Fields(line)
			if len(fields) != 3 || fields[1] != "True" {
				return errors.New(line)
			}
			// The API has the old states until kubelet reports.
			if running, err := time.Parse(time.RFC3339, fields[2]); err != nil ||
				running.Before(started.Truncate(time.Second)) {
				return errors.Join(err, fmt.Errorf("%s has not been restarted", line))
			}
		}
		return nil
	})
	t.Logf("all pods run %s after the reboot", time.Since(started).Round(100*time.Millisecond))
	l.checkReplaced(t, machines, l.machines(t, instances))
	l.mustKubectl(t, "", "delete", "namespace", namespace, "--timeout=90s")
	// DNS and Services, from every node to every node.
	if out, err := l.run(5*time.Minute, "errand", "smoke-tests"); err != nil {
		t.Errorf("errand after the reboot: %v\n%s", err, out)
	}
}
