package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// queryRate is how many DNS queries a pod sends a second.
const queryRate = 200

// TestSoakNodeDNS kills what answers DNS queries while a pod sends them, without and with CoreDNS on the node. With it,
// the loss of the only CoreDNS pod is not noticed.
func TestSoakNodeDNS(t *testing.T) {
	l := soak(t)
	l.deploy(t)
	p := l.startProbe(t)
	p.report(t, "nothing happens, without the job", func() { time.Sleep(10 * time.Second) })
	p.throughput(t, "without the job")
	p.report(t, "the process of the CoreDNS pod is killed, without the job", func() { p.killCoreDNS(t) })
	l.rolloutOfCoreDNS(t)

	l.ops = []string{"ops-files/enable-node-local-dns.yml"}
	if r := p.report(t, "a deploy adds the job", func() { l.deploy(t) }); r.Lost > r.Sent/100 {
		t.Errorf("while a deploy added the job: %s", r)
	}
	p.throughput(t, "with the job")
	// The names are asked for all the time, so the node has them.
	if r := p.report(t, "the process of the CoreDNS pod is killed", func() { p.killCoreDNS(t) }); r.Lost > 0 {
		t.Errorf("while the CoreDNS pod was away: %s", r)
	}
	if r := p.report(t, "CoreDNS is rolled out", func() { l.rolloutOfCoreDNS(t) }); r.Lost > 0 {
		t.Errorf("during a rollout of CoreDNS: %s", r)
	}
	// Those until the node has noticed are lost, which takes the longer the busier the machine is.
	if r := p.report(t, "the node's own CoreDNS is killed", func() { p.killNodeDNS(t) }); r.Lost > queryRate {
		t.Errorf("after the node's own CoreDNS was killed: %s", r)
	}
	for _, process := range []string{"node-local-dns", "node-local-dns-interception"} {
		t.Logf("memory of %s: %s", process, l.memoryOf(t, process))
	}
	l.ops = nil
	if r := p.report(t, "a deploy removes the job", func() { l.deploy(t) }); r.Lost > r.Sent/100 {
		t.Errorf("while a deploy removed the job: %s", r)
	}
}

// dnsReport is Report of testbed/dnsprobe.
type dnsReport struct {
	Sent, Lost  int
	PerSecond   float64 `json:"per_second"`
	Slowest     float64 `json:"slowest_ms"`
	First, Last *struct {
		Time time.Time
		Text string
	}
}

func (r dnsReport) String() string {
	text := fmt.Sprintf("%d of %d queries were lost, the slowest answer took %.1f ms", r.Lost, r.Sent, r.Slowest)
	if r.First != nil {
		text += fmt.Sprintf(
			"; within %s, the first: %s, the last: %s", r.Last.Time.Sub(r.First.Time).Round(time.Millisecond),
			r.First.Text, r.Last.Text,
		)
	}
	return text
}

// dnsProbe is a pod that sends DNS queries.
type dnsProbe struct {
	*lab
	server string
	pid    string // of its process, on the VM
}

const dnsProbeProgram = "/var/vcap/data/dnsprobe/dnsprobe"

const dnsProbePod = `apiVersion: v1
kind: Namespace
metadata: {name: dnsprobe}
---
apiVersion: v1
kind: Pod
metadata: {name: dnsprobe, namespace: dnsprobe}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: IMAGE, imagePullPolicy: Never}]
`

func (l *lab) startProbe(t *testing.T) *dnsProbe {
	t.Helper()
	l.uploadProgram(t, "control/0", dnsProbeProgram, "kubernetes-release/testbed/dnsprobe")
	l.mustKubectl(t, strings.ReplaceAll(dnsProbePod, "IMAGE", l.smokeImage(t)), "apply", "-f", "-")
	l.mustKubectl(t, "", "-n", "dnsprobe", "wait", "pod/dnsprobe", "--for=condition=Ready", "--timeout=90s")
	address := l.mustKubectl(
		t, "", "-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}",
	)
	l.mustKubectl(t, "", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=2m")
	pid := l.ssh(t, "control/0", "pgrep", "-f", "^/smoke-server")
	return &dnsProbe{l, address + ":53", pid}
}

// ask sends queries while do runs, at a rate, or as many as are answered. The program runs in the network namespace of
// the pod, and not by kubectl exec, because deploys stop the API server.
func (p *dnsProbe) ask(t *testing.T, rate int, do func()) (r dnsReport) {
	t.Helper()
	command := p.command(
		t.Context(), "ssh", "control/0", "nsenter", "--net=/proc/"+p.pid+"/ns/net", dnsProbeProgram, p.server,
		fmt.Sprint(rate), "kubernetes.default.svc.cluster.local", "kube-dns.kube-system.svc.cluster.local",
	)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	func() {
		defer input.Close()
		do()
	}()
	if err := command.Wait(); err != nil {
		t.Fatalf("dnsprobe: %v\n%s", err, problems.String())
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Sent == 0 {
		t.Fatalf("dnsprobe printed %q: %v", out.String(), err)
	}
	return r
}

func (p *dnsProbe) report(t *testing.T, what string, do func()) dnsReport {
	t.Helper()
	r := p.ask(t, queryRate, do)
	t.Logf("%s: %s", what, r)
	return r
}

func (p *dnsProbe) throughput(t *testing.T, what string) {
	t.Helper()
	r := p.ask(t, 0, func() { time.Sleep(10 * time.Second) })
	t.Logf("%s: %.0f queries a second, %d of %d were lost", what, r.PerSecond, r.Lost, r.Sent)
}

// killCoreDNS kills the process of the only CoreDNS pod, and waits until the pod is Ready again.
func (p *dnsProbe) killCoreDNS(t *testing.T) {
	t.Helper()
	restarts := func() string {
		return p.mustKubectl(t, "", "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o",
			"jsonpath={.items[*].status.containerStatuses[0].restartCount}")
	}
	before, started := restarts(), time.Now()
	p.ssh(t, "control/0", "sh", "-c", "kill -9 $(pgrep -f '^/coredns -conf /etc/coredns/Corefile')")
	waitFor(t, 2*time.Minute, "restart of the CoreDNS pod", func() error {
		if now := restarts(); now == before {
			return fmt.Errorf("%s restarts, as before", now)
		}
		return nil
	})
	p.mustKubectl(t, "", "-n", "kube-system", "wait", "pods", "-l", "k8s-app=kube-dns", "--for=condition=Ready",
		"--timeout=2m")
	t.Logf("the CoreDNS pod is Ready again after %s", time.Since(started).Round(100*time.Millisecond))
}

// killNodeDNS kills the node's own CoreDNS, and waits until it answers pods again.
func (p *dnsProbe) killNodeDNS(t *testing.T) {
	t.Helper()
	pid := p.pidsOf(t, "control/0")["node-local-dns"]
	p.ssh(t, "control/0", "kill", "-9", pid)
	waitFor(t, 2*time.Minute, "the node's own CoreDNS", func() error {
		if now := p.pidsOf(t, "control/0")["node-local-dns"]; now == pid {
			return fmt.Errorf("its process is still %s", pid)
		}
		out, err := p.run(time.Minute, "ssh", "control/0", "nft", "list", "table", "ip", "node-local-dns")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// rolloutOfCoreDNS replaces the CoreDNS pods.
func (l *lab) rolloutOfCoreDNS(t *testing.T) {
	t.Helper()
	started := time.Now()
	l.mustKubectl(t, "", "-n", "kube-system", "rollout", "restart", "deployment/coredns")
	out, err := l.kubectl(t, "", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=100s")
	if err != nil {
		pods, _ := l.kubectl(t, "", "-n", "kube-system", "describe", "pods", "-l", "k8s-app=kube-dns")
		t.Fatalf("%v\n%s\n%s", err, out, pods)
	}
	t.Logf("CoreDNS is rolled out after %s", time.Since(started).Round(100*time.Millisecond))
}
