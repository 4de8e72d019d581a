package members

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// full fills the quota of three members with old revisions until etcd refuses writes.
func full(t *testing.T, quota int64) *deployment {
	t.Helper()
	d := newDeployment(t)
	d.quota = quota
	d.deploy(0, 1, 2)
	d.put(0, "acknowledged")
	fails(t, d.fill(0, 1000), "database space exceeded")
	return d
}

// updateQuota updates an instance to a manifest with another quota, up to its post-start. The health check of etcd
// fails with the alarm, so that bin/ready of the job reads, as this does.
func (d *deployment) updateQuota(n int, quota int64, log *slog.Logger) error {
	d.t.Helper()
	d.running[n].stop()
	d.quota = quota
	passes(d.t, d.configs[n].Prepare(d.t.Context(), quiet()))
	passes(d.t, d.start(n))
	d.serves(n)
	passes(d.t, d.configs[n].Settle(d.t.Context(), quiet()))
	return d.configs[n].CheckSpace(d.t.Context(), log)
}

// TestADeployEndsWhileWritesAreRefused deploys another change than that of the quota: the first post-start fails, and
// the errand repairs what it names. Each member is back before, because the errand needs all of them.
func TestADeployEndsWhileWritesAreRefused(t *testing.T) {
	const quota = 16 << 20
	d := full(t, quota)
	want := []string{
		"etcd refuses writes", "bosh run-errand etcd-defragment", "quota_backend_bytes, which are 16.0 MiB",
		"no pod is scheduled", "control/id-0: 1", "control/id-1: 1", "control/id-2: 1",
	}
	fails(t, d.updateQuota(1, quota, quiet()), want...)
	fails(t, d.configs[0].CheckSpace(t.Context(), quiet()), want...) // post-deploy of a VM that was not updated
	fails(t, d.fill(0, 1), "database space exceeded")
	passes(t, d.configs[0].MakeSpace(t.Context(), quiet()))
	var log bytes.Buffer
	passes(t, d.updateQuota(1, quota, slog.New(slog.NewTextHandler(&log, nil))))
	if log.Len() > 0 {
		t.Errorf("something is said of a cluster with space: %s", &log)
	}
	d.has(1, "acknowledged")
}

// TestADeployWithALargerQuotaGoesOn: writes are refused until the last member has it, and are accepted then.
func TestADeployWithALargerQuotaGoesOn(t *testing.T) {
	const larger = 32 << 20
	d := full(t, 16<<20)
	var log bytes.Buffer
	for n := range 3 {
		fails(t, d.fill(0, 1), "database space exceeded")
		log.Reset()
		passes(t, d.updateQuota(n, larger, slog.New(slog.NewTextHandler(&log, nil))))
		cleared := strings.Contains(log.String(), "etcd accepts writes")
		warned := strings.Contains(log.String(), "etcd still refuses writes, until all members have room")
		if last := n == 2; cleared != last || warned == last {
			t.Errorf("after member %d: %s", n, &log)
		}
	}
	d.put(0, "written after")
	d.has(2, "acknowledged", "written after")
}

// TestALargerQuotaThatIsTooSmall leaves no room for a request.
func TestALargerQuotaThatIsTooSmall(t *testing.T) {
	d := full(t, 16<<20)
	fails(t, d.updateQuota(0, 17<<20, quiet()), "etcd refuses writes", "17.0 MiB")
}
