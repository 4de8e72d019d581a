package acceptance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
)

const (
	// rollingUpdates is how often TestSoakRollingUpdates updates all control VMs.
	rollingUpdates = 10
	// quietGap is maxGap for a machine that does nothing else.
	quietGap = time.Second
)

// TestSoakRollingUpdates updates three control VMs ten times. A client with the defaults of client-go must not notice:
// no request fails, and each is answered within a second. It reports what a client loses that sends each request once.
func TestSoakRollingUpdates(t *testing.T) {
	l := soak(t)
	l.base, l.ops, l.vars = onAWS, workerOps, []string{"worker_instances=1"}
	l.deploy(t)
	plain, changed := l.ops, append(slices.Clone(l.ops), "src/testbed/acceptance/testdata/log-level.yml")
	var sent, failed, onceSent, onceFailed int
	var gap time.Duration
	for n := range rollingUpdates {
		if l.ops = changed; n%2 > 0 {
			l.ops = plain
		}
		report := l.probe(t, func() {
			out := l.mustUp(t)
			if updated := strings.Count(out, "changed: job kube-apiserver"); updated != 3 {
				t.Errorf("%d VMs were updated, want 3:\n%s", updated, tail.Lines(out, 60))
			}
		})
		sent += report.Reads.Sent + report.Writes.Sent
		failed += report.Failures()
		onceSent += report.Once.Reads.Sent + report.Once.Writes.Sent
		onceFailed += report.Once.Reads.Failed + report.Once.Writes.Failed
		gap = max(gap, report.LongestGap())
		l.checkMembers(t, 3)
	}
	t.Logf("%d rolling updates: of client-go %d failures in %d requests, longest gap %s; of a client that retries "+
		"nothing %d failures in %d requests", rollingUpdates, failed, sent, gap, onceFailed, onceSent)
	if failed > 0 {
		t.Errorf("client-go has noticed %d failures, want none", failed)
	}
	if gap > quietGap {
		t.Errorf("client-go has waited for %s, want at most %s", gap, quietGap)
	}
}
