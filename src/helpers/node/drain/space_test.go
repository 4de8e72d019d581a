package drain

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/node/object"
)

// TestNothingWaitsForSpace: etcd refuses writes, so that no pod can be evicted, and the errand that makes space runs
// when the deploy has ended. What the scripts of kubelet wait for ends at once, and names the errand. They fail where
// the deploy must not go on.
func TestNothingWaitsForSpace(t *testing.T) {
	const promptly, timeout = 20 * time.Second, 10 * time.Minute // the default of drain.timeout
	w := newWorld(t, "--quota-backend-bytes=16777216")
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	w.pod("web", nil)
	w.must(retire(t.Context(), w.kubelet, "a", log)) // by an earlier deploy
	w.cluster.FillEtcd()
	for name, test := range map[string]struct {
		fails bool
		wait  func() error
	}{
		"drain of a VM that stays": {false, func() error { return w.drain(Options{Timeout: timeout}) }},
		"drain of a VM that is deleted": {true, func() error {
			return w.drain(Options{Timeout: timeout, VMDeleted: true})
		}},
		"drain of a node in service": {true, func() error {
			return Drain(t.Context(), w.admin, Options{Node: "b", VMDeleted: true, Timeout: timeout}, log)
		}},
		"deletion in spite of budgets": {true, func() error {
			return newDrain(w.kubelet, Options{Node: "a", Timeout: timeout}, log).force(t.Context())
		}},
		"post-start": {true, func() error {
			return Return(t.Context(), object.Options{
				Kubeconfig: w.cluster.Kubeconfig("system:node:a", "system:nodes"), Name: "a", Timeout: timeout,
			}, Files{Pending: filepath.Join(t.TempDir(), "pending")}, log)
		}},
	} {
		w.log.Reset()
		began := time.Now()
		err := test.wait()
		if took := time.Since(began); took > promptly {
			t.Errorf("%s: it took %s", name, took)
		}
		if test.fails != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if said := fmt.Sprint(err, &w.log); !strings.Contains(said, "run the errand etcd-defragment") {
			t.Errorf("%s: nothing says what to do:\n%s", name, said)
		}
		if text := w.log.String(); strings.Contains(text, "is in service") ||
			strings.Contains(text, `is out of service" node=b`) {
			t.Errorf("%s: the log has a change that etcd has refused:\n%s", name, text)
		}
	}
	if got := w.pods(); got != "web" {
		t.Errorf("left: %q", got)
	}
}
