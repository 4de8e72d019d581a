package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// TestSoakLoadBalancers runs both controllers of load balancers with the generated policy of the control VMs: requests
// are routed by the host and path of an Ingress, a Service moves from one controller to the other and back by the
// commands of docs/load-balancers.md, and after their deletion the account is as before.
func TestSoakLoadBalancers(t *testing.T) {
	l := soak(t)
	l.deploy(t)
	l.cloud(t, http.MethodPut, "roles/kubernetes-control/policies/kubernetes",
		generatedPolicy(t, "control", "--load-balancer-controller"))
	l.ops = []string{"ops-files/enable-aws-load-balancer-controller.yml", "ops-files/enable-node-local-dns.yml"}
	l.deploy(t)
	l.cloud(t, http.MethodDelete, "calls", nil)
	before := l.balancing(t)

	manifest, err := os.ReadFile("testdata/ingress.yml")
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	l.mustKubectl(t, strings.ReplaceAll(string(manifest), "IMAGE", l.smokeImage(t)), "apply", "-f", "-")
	l.checkShop(t, l.shopHost(t, "ingress", "{.status.loadBalancer.ingress[0].hostname}"))
	t.Logf("the Ingress answers after %s; calls: %v", time.Since(started).Round(time.Second), l.callsByService(t))
	t.Logf("memory of the controller: %s", l.memoryOf(t, "aws-load-balancer-controller"))

	classic := l.answered(t, "shop", 2*time.Minute)
	network := l.moveService(t, false)
	again := l.moveService(t, true)
	t.Logf("the Service was at %s, %s and %s", classic, network, again)

	l.mustKubectl(t, "", "delete", "namespace", "shop", "--timeout=2m")
	deleted := time.Now()
	l.awaitBalancing(t, before)
	t.Logf("the account is as before %s after the namespace is gone", time.Since(deleted).Round(time.Second))
	l.checkNothingDenied(t)
}

// balancing is what load balancers leave in an account.
type balancing struct {
	Parts          int // of load balancers
	SecurityGroups []string
	Rules          int // of the nodes' security group
}

func (l *lab) balancing(t *testing.T) balancing {
	t.Helper()
	var w store.World
	if err := json.Unmarshal(l.cloud(t, http.MethodGet, "world", nil), &w); err != nil {
		t.Fatal(err)
	}
	b := balancing{Parts: len(w.ClassicLoadBalancers) + len(w.LoadBalancers) + len(w.TargetGroups) + len(w.Listeners) +
		len(w.ListenerRules)}
	for _, group := range w.SecurityGroups {
		b.SecurityGroups = append(b.SecurityGroups, group.Name)
		if group.ID == awssim.LabSecurityGroup {
			b.Rules = len(group.Ingress)
		}
	}
	return b
}

// awaitBalancing waits until the account has nothing of load balancers but what it had before.
func (l *lab) awaitBalancing(t *testing.T, before balancing) {
	t.Helper()
	waitFor(t, 3*time.Minute, "the account as before", func() error {
		if after := l.balancing(t); !reflect.DeepEqual(after, before) {
			return fmt.Errorf("it has\n%+v\nand had\n%+v", after, before)
		}
		return nil
	})
}

// shopHost waits for the host name of the load balancer in the status of the object shop.
func (l *lab) shopHost(t *testing.T, kind, path string) (host string) {
	t.Helper()
	waitFor(t, 3*time.Minute, "host name of the "+kind, func() error {
		var err error
		host, err = l.kubectl(t, "", "-n", "shop", "get", kind, "shop", "-o", "jsonpath="+path)
		if err == nil && host == "" {
			err = errors.New("none yet")
		}
		return err
	})
	return host
}

// checkShop waits until requests are routed by host and path as testdata/ingress.yml and testdata/gateway.yml say.
func (l *lab) checkShop(t *testing.T, balancer string) {
	t.Helper()
	for _, request := range []struct{ host, path, status, body string }{
		{"shop.example.com", "/", "200", "web-"},
		{"shop.example.com", "/api/orders", "200", "api-"},
		{"other.example.com", "/", "404", ""},
	} {
		waitFor(t, 2*time.Minute, "answer to "+request.host+request.path, func() error {
			status, body, err := l.getAs(request.host, "http://"+balancer+request.path)
			if err == nil && (status != request.status || !strings.HasPrefix(body, request.body)) {
				err = fmt.Errorf("%s %q, want %s from a pod %s…", status, body, request.status, request.body)
			}
			return err
		})
	}
}

// getAs requests a URL for a host from where clients are.
func (l *lab) getAs(host, url string) (status, body string, err error) {
	out, err := l.run(
		20*time.Second, "client", "curl", "-sS", "--max-time", "5", "-H", "Host: "+host, "-w", "\n%{http_code}", url,
	)
	if err != nil {
		return "", "", fmt.Errorf("%w: %s", err, out)
	}
	out = strings.TrimSpace(out)
	last := strings.LastIndex(out, "\n") + 1
	return out[last:], strings.TrimSpace(out[:last]), nil
}

// moveService runs the commands of docs/load-balancers.md that give the Service web to the other controller, or back,
// and returns the host name of its new load balancer.
func (l *lab) moveService(t *testing.T, back bool) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(repo, "docs/load-balancers.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "## Move a Service")
	_, block, _ = strings.Cut(block, "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	commands := strings.Split(strings.TrimSpace(block), "\n")
	if len(commands) != 3 {
		t.Fatalf("docs/load-balancers.md has the commands %q, want three", commands)
	}
	if back {
		commands[2] = strings.Replace(commands[2], `, "loadBalancerClass": "service.k8s.aws/nlb"`, "", 1)
	}
	previous := l.loadBalancerHost(t, "shop", time.Minute)
	started := time.Now()
	l.script(t, commands[0])
	waitFor(t, 3*time.Minute, "release of the Service", func() error {
		if out := l.script(t, commands[1]); out != "" {
			return errors.New(out)
		}
		return nil
	})
	released := time.Since(started)
	l.script(t, commands[2])
	host := l.answered(t, "shop", 3*time.Minute)
	if host == previous {
		t.Errorf("the Service has kept %s, which another controller has", host)
	}
	t.Logf("released after %s, answers after %s", released.Round(time.Second), time.Since(started).Round(time.Second))
	return host
}

// script runs a command of the documentation in the namespace shop.
func (l *lab) script(t *testing.T, command string) string {
	t.Helper()
	kubeconfig, err := os.ReadFile(filepath.Join(l.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(own, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "bash", "-euc",
		"kubectl config set-context --current --namespace=shop >/dev/null\n"+command)
	shell.Env = append(
		os.Environ(), "KUBECONFIG="+own, "PATH="+filepath.Join(l.state, "bin")+":"+os.Getenv("PATH"),
	)
	out, err := output(t.Context(), shell)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(out)
}

// callsByService counts the calls of the VMs since the record was last cleared.
func (l *lab) callsByService(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, c := range l.calls(t) {
		counts[c.Service]++
	}
	return counts
}

// memoryOf is what a process of control/0 has in memory; under bpm it is the child of the one in the pidfile.
func (l *lab) memoryOf(t *testing.T, process string) string {
	t.Helper()
	const rss = `grep VmRSS /proc/$(pgrep --oldest --parent "$0" || echo "$0")/status`
	status := l.ssh(t, "control/0", "bash", "-c", rss, l.pidsOf(t, "control/0")[process])
	return strings.TrimSpace(strings.TrimPrefix(status, "VmRSS:"))
}
