package launcher

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubernetes-release/helpers/node"
)

var thisVM = node.Identity{Name: "ip-10-0-16-4.ec2.internal", Address: "10.0.16.4", ProviderID: "aws:///us-east-1a/i-new"}

func nodeOf(providerID string) string {
	return fmt.Sprintf(`{"kind": "Node", "metadata": {"name": %q}, "spec": {"providerID": %q}}`, thisVM.Name, providerID)
}

// answers starts an API server that gives one answer after the other, and repeats the last, to the one request that is allowed.
func answers(t *testing.T, list ...string) (wait Wait, calls *atomic.Int32) {
	calls = new(atomic.Int32)
	address, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/v1/nodes/"+thisVM.Name {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		answer := list[min(int(calls.Add(1)), len(list))-1]
		switch answer {
		case "gone":
			http.Error(w, `{"kind": "Status", "reason": "NotFound"}`, http.StatusNotFound)
		case "forbidden":
			http.Error(w, `{"kind": "Status", "message": "cannot get resource nodes"}`, http.StatusForbidden)
		case "down":
			http.Error(w, "etcd is not there", http.StatusInternalServerError)
		default:
			_, _ = io.WriteString(w, answer)
		}
	})
	return Wait{URL: address + "/readyz", CA: ca, StaleNode: true, Timeout: timeout(time.Minute)}, calls
}

func TestStaleNode(t *testing.T) {
	stale, own := nodeOf("aws:///us-east-1a/i-old"), nodeOf(thisVM.ProviderID)
	for name, test := range map[string]struct {
		answers []string
		calls   int32 // how many requests the wait takes
		log     []string
	}{
		"no Node yet costs one request": {[]string{"gone"}, 1, nil},
		"of this VM":                    {[]string{own}, 1, nil},
		"without a provider ID yet":     {[]string{nodeOf("")}, 1, nil},
		"of a previous VM": {[]string{stale, stale, stale, "gone"}, 4, []string{
			"msg=waiting", "Node " + thisVM.Name + " belongs to a previous VM, aws:///us-east-1a/i-old, and this VM is " + thisVM.ProviderID,
			"kubectl delete node " + thisVM.Name, "elapsed=", "timeout=", "no longer waiting", "waited=",
		}},
		"the server is not up yet":   {[]string{"down", stale, "gone"}, 3, []string{"etcd is not there"}},
		"the permission comes later": {[]string{"forbidden", "forbidden", stale, "gone"}, 4, []string{"no permission (yet) to read the Node"}},
		"not a Node":                 {[]string{`{"kind": "Status"}`, "gone"}, 2, []string{"is not a Node"}},
		"not JSON":                   {[]string{"not JSON", "gone"}, 2, []string{"is not a Node: not JSON"}},
	} {
		t.Run(name, func(t *testing.T) {
			wait, calls := answers(t, test.answers...)
			var lines strings.Builder
			if err := testLauncher().wait(t.Context(), wait, thisVM, logger(&lines, "kubelet")); err != nil {
				t.Fatal(err)
			}
			if got := calls.Load(); got != test.calls {
				t.Errorf("%d requests, want %d", got, test.calls)
			}
			contains(t, lines.String(), test.log...)
		})
	}
}

func TestStaleNodeThatStays(t *testing.T) {
	wait, _ := answers(t, nodeOf("aws:///us-east-1a/i-old"))
	wait.Timeout = timeout(100 * time.Millisecond)
	err := testLauncher().wait(t.Context(), wait, thisVM, logger(io.Discard, "kubelet"))
	if err == nil {
		t.Fatal("it succeeded with another VM's Node")
	}
	contains(t, err.Error(), "timed out after 100ms", "aws:///us-east-1a/i-old", thisVM.ProviderID, "kubectl delete node "+thisVM.Name)
}

// TestStaleNodeWithoutPermission is a cluster whose add-ons don't grant the permission.
func TestStaleNodeWithoutPermission(t *testing.T) {
	wait, calls := answers(t, "forbidden")
	l := testLauncher()
	l.permissionTimeout = 50 * time.Millisecond
	var lines strings.Builder
	if err := l.wait(t.Context(), wait, thisVM, logger(&lines, "kubelet")); err != nil || calls.Load() < 2 {
		t.Errorf("%v after %d requests", err, calls.Load())
	}
	contains(t, lines.String(), "level=WARN", "giving up the check for a stale Node", "cannot get resource nodes", "kubernetes-addons")
}

func TestStaleNodeWithoutCloudProvider(t *testing.T) {
	wait, calls := answers(t, nodeOf("aws:///us-east-1a/i-old"))
	id := thisVM
	id.ProviderID = ""
	if err := testLauncher().wait(t.Context(), wait, id, logger(io.Discard, "kubelet")); err != nil || calls.Load() != 0 {
		t.Errorf("%v after %d requests", err, calls.Load())
	}
}

// TestExecWaitsForTheNodeOfTheIdentityFile has an identity file, as on a VM.
func TestExecWaitsForTheNodeOfTheIdentityFile(t *testing.T) {
	wait, _ := answers(t, nodeOf("aws:///us-east-1a/i-old"))
	b := newBench(t)
	if err := node.Write(b.path("identity.json"), thisVM); err != nil {
		t.Fatal(err)
	}
	b.config("fake-daemon", map[string]any{
		"node":     b.node(b.path("identity.json")),
		"wait_for": []any{map[string]any{"url": wait.URL, "ca": wait.CA, "stale_node": true, "timeout": "500ms"}},
	})
	b.refuses("exec", "does not start", "kubectl delete node "+thisVM.Name)
}
