package status

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/director"
)

// kubeconfigFor writes a kubeconfig for a server without certificates.
func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		`{apiVersion: v1, kind: Config, current-context: lab, clusters: [{name: lab, cluster: {server: %q}}],
users: [{name: admin, user: {}}], contexts: [{name: lab, context: {cluster: lab, user: admin}}]}`,
		url,
	)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// squeezed is text with each run of blanks as one.
func squeezed(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestStatusShowsNodes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "NodeList", "apiVersion": "v1", "items": [
			{"metadata": {"name": "a"}, "spec": {"providerID": "aws:///us-east-1a/i-1"},
			 "status": {"nodeInfo": {"kubeletVersion": "v1.37.0"},
				"conditions": [{"type": "Ready", "status": "True"}],
				"addresses": [{"type": "InternalIP", "address": "10.77.16.4"}]}},
			{"metadata": {"name": "b"}, "spec": {"unschedulable": true},
			 "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}]}`)
	}))
	defer server.Close()
	var out bytes.Buffer
	c := readCluster(t.Context(), kubeconfigFor(t, server.URL))
	c.printAccess(&out)
	c.printNodes(&out)
	for _, want := range []string{
		"API " + server.URL + "\n", "Kubeconfig " + c.kubeconfig + "\n", "\na ready v1.37.0 10.77.16.4 i-1\n",
		"\nb not ready (NodeStatusUnknown), cordoned",
	} {
		if !strings.Contains(squeezed(out.String())+"\n", want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestStatusOfClusterThatDoesNotAnswer(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	started := time.Now()
	var out bytes.Buffer
	readCluster(t.Context(), kubeconfigFor(t, server.URL)).printNodes(&out)
	if took := time.Since(started); took > 5*clusterTimeout {
		t.Errorf("it took %s", took)
	}
	if text := strings.TrimSpace(
		out.String(),
	); !strings.HasPrefix(text, "Nodes: unknown; the cluster does not answer: ") ||
		strings.Contains(text, "\n") {
		t.Errorf("printed %q", text)
	}
}

func TestStatusWithoutKubeconfig(t *testing.T) {
	var out bytes.Buffer
	c := readCluster(t.Context(), filepath.Join(t.TempDir(), "kubeconfig"))
	c.printAccess(&out)
	c.printNodes(&out)
	if !strings.Contains(out.String(), "no kubeconfig") {
		t.Errorf("printed %q", out.String())
	}
}

func TestStatusShowsLoadBalancersAndVolumes(t *testing.T) {
	for name, c := range map[string]struct{ world, want string }{
		"some": {`{"region": "us-east-1", "classic_load_balancers": [{"name": "c", "dns_name": "c.elb",
			"tags": {"kubernetes.io/service-name": "default/web"}}],
			"load_balancers": [{"name": "n", "dns_name": "n.elb"}], "volumes": [{"id": "vol-1"}, {"id": "vol-2"}]}`,
			"\nLoad balancer of Kind Host name\ndefault/web classic c.elb\n- network n.elb\n\nVolumes: vol-1, vol-2"},
		"none": {`{}`, "\nLoad balancers: none\nVolumes: none"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.world) }),
			)
			defer server.Close()
			var out bytes.Buffer
			readCloud(t.Context(), server.URL).print(&out)
			if got := squeezed(out.String()); got != c.want {
				t.Errorf("printed\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	var out bytes.Buffer
	readCloud(t.Context(), "http://127.0.0.1:1").print(&out)
	if text := strings.TrimSpace(out.String()); !strings.Contains(text, "the simulated cloud does not answer: ") ||
		strings.Contains(text, "\n") {
		t.Errorf("printed %q", text)
	}
}

func TestStatusIsFalseForAnInstanceThatIsNotRunning(t *testing.T) {
	instances := []*director.Instance{
		{
			ID:           "0a",
			Group:        "control",
			Address:      netip.MustParseAddr("10.77.16.4"),
			DesiredState: director.Started,
			VM:           &director.VM{CID: "i-1"},
		},
		{
			ID:           "0b",
			Group:        "worker",
			Index:        1,
			Address:      netip.MustParseAddr("10.77.16.5"),
			DesiredState: director.Stopped,
		},
	}
	for state, want := range map[agent.RunState]bool{agent.Running: true, agent.Failing: false} {
		var out bytes.Buffer
		seen := []observed{
			{string(state), []agent.Process{{Name: "etcd", State: "running", Message: "slow"}}},
			{"stopped", nil},
		}
		if got := printInstances(&out, instances, seen); got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
		if text := squeezed(
			out.String(),
		); !strings.Contains(
			text,
			"control/0a (0) - "+string(state)+" 10.77.16.4 i-1\n~ etcd running (slow)\n"+
				"worker/0b (1) - stopped 10.77.16.5 -",
		) {
			t.Errorf("printed\n%s", text)
		}
	}
}
