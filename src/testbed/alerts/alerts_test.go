package alerts

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	file = "../../../config/prometheus/alerts.yml"
	// interval is the time between two scrapes, and two evaluations: Prometheus' default.
	interval = time.Minute
	// lookback is how long Prometheus uses a value that is not scraped again: its default.
	lookback   = 5 * time.Minute
	maxSamples = 10_000
	expiry     = "kubernetes_bosh_certificate_not_after_timestamp_seconds"
	deletions  = `csi_sidecar_operations_seconds_count{driver_name="ebs.csi.aws.com",` +
		`method_name="/csi.v1.Controller/DeleteVolume"`
)

// examples holds, by alert, when it must fire and when it must not.
var examples = map[string][]struct {
	name string
	// series are lines of promqltest's command load, with a value each minute from the epoch on.
	series string
	// after is how long nothing fires, of any rule.
	after time.Duration
	// want are the summaries of all alerts that fire then.
	want []string
}{
	"CertificateExpires": {
		{
			"less than 30 days for an hour",
			expiry + `{instance="a:9100",process="etcd",property="tls.server"} 2592000x62
			` + expiry + `{instance="a:9100",process="etcd",property="tls.server.ca"} 9992000x62`,
			61 * time.Minute,
			[]string{"tls.server of etcd on a:9100 expires in less than 30 days"},
		},
		{
			"renewed within the hour",
			expiry + `{instance="a:9100",process="etcd",property="tls.server"} 2592000x50 9992000x80`,
			2 * time.Hour, nil,
		},
		{
			"31 days",
			expiry + `{instance="a:9100",process="etcd",property="tls.server"} 2678400x120`,
			2 * time.Hour, nil,
		},
	},
	"EtcdSnapshotFails": {
		{
			"the first snapshot never succeeds",
			`kubernetes_bosh_etcd_snapshot_interval_seconds{instance="a:9100"} 3600x40
			kubernetes_bosh_etcd_snapshot_failed{instance="a:9100"} 1x40
			kubernetes_bosh_etcd_snapshot_failed{instance="b:9100"} 0x40`,
			30 * time.Minute,
			[]string{"Snapshots of etcd on a:9100 have failed for 30 minutes, or are not uploaded"},
		},
		{
			"attempts fail for 29 minutes, and then one succeeds",
			`kubernetes_bosh_etcd_snapshot_failed{instance="a:9100"} 1x29 0 1x29`,
			50 * time.Minute, nil,
		},
	},
	"EtcdSnapshotIsOld": {
		{
			"two are missing",
			`kubernetes_bosh_etcd_snapshot_interval_seconds{instance="a:9100"} 3600x150
			kubernetes_bosh_etcd_snapshot_timestamp_seconds{instance="a:9100"} 0x150
			kubernetes_bosh_etcd_snapshot_interval_seconds{instance="b:9100"} 86400x150
			kubernetes_bosh_etcd_snapshot_timestamp_seconds{instance="b:9100"} 0x150`,
			136 * time.Minute,
			[]string{"The newest snapshot of etcd on a:9100 is 2h 16m 0s old"},
		},
		{
			"one is missing, and the next one comes in time",
			`kubernetes_bosh_etcd_snapshot_interval_seconds{instance="a:9100"} 3600x200
			kubernetes_bosh_etcd_snapshot_timestamp_seconds{instance="a:9100"} 0x120 7200x80`,
			200 * time.Minute, nil,
		},
	},
	"EtcdHasNoLeader": {
		{
			"one member is cut off",
			`etcd_server_has_leader{instance="a:2381"} 0x10
			etcd_server_has_leader{instance="b:2381"} 1x10`,
			time.Minute,
			[]string{"etcd on a:2381 has had no leader for a minute"},
		},
		{
			"elections",
			`etcd_server_has_leader{instance="a:2381"} 0 1 0 1 1 0 1x9`,
			15 * time.Minute, nil,
		},
	},
	"EtcdSpaceNearlyUsed": {
		{
			"objects need 85%",
			`etcd_mvcc_db_total_size_in_bytes{instance="a:2381"} 85x40
			etcd_server_quota_backend_bytes{instance="a:2381"} 100x40`,
			30 * time.Minute,
			[]string{"The database of etcd on a:2381 has 85% of quota_backend_bytes"},
		},
		{
			"defragmented at the next look",
			`etcd_mvcc_db_total_size_in_bytes{instance="a:2381"} 85x12 40x40
			etcd_server_quota_backend_bytes{instance="a:2381"} 100x52`,
			52 * time.Minute, nil,
		},
		{
			"80%",
			`etcd_mvcc_db_total_size_in_bytes{instance="a:2381"} 80x52
			etcd_server_quota_backend_bytes{instance="a:2381"} 100x52`,
			52 * time.Minute, nil,
		},
	},
	"EtcdRefusesWrites": {
		{
			"alarm of another member",
			`etcd_debugging_server_alarms{instance="a:2381",server_id="b",alarm_type="NOSPACE"} 1x5
			etcd_debugging_server_alarms{instance="a:2381",server_id="c",alarm_type="NOSPACE"} 1x5
			etcd_mvcc_db_total_size_in_bytes{instance="a:2381"} 30x5
			etcd_server_quota_backend_bytes{instance="a:2381"} 100x5`,
			time.Minute,
			[]string{"etcd on a:2381 refuses writes: a database has reached quota_backend_bytes"},
		},
		{
			"restarted with the alarm",
			`etcd_mvcc_db_total_size_in_bytes{instance="a:2381"} 100x5
			etcd_server_quota_backend_bytes{instance="a:2381"} 100x5`,
			time.Minute,
			[]string{"etcd on a:2381 refuses writes: a database has reached quota_backend_bytes"},
		},
		{
			"cleared, also after a restart, and the alarm of a corrupt member",
			`etcd_debugging_server_alarms{instance="a:2381",server_id="a",alarm_type="NOSPACE"} 0x20
			etcd_debugging_server_alarms{instance="b:2381",server_id="a",alarm_type="NOSPACE"} -1x20
			etcd_debugging_server_alarms{instance="b:2381",server_id="b",alarm_type="CORRUPT"} 1x20
			etcd_mvcc_db_total_size_in_bytes{instance="a:2381"} 99x4 30x16
			etcd_server_quota_backend_bytes{instance="a:2381"} 100x20`,
			20 * time.Minute, nil,
		},
	},
	"VolumeDeletionFails": {
		{
			"a volume that nobody may delete, each 5 minutes",
			deletions + `,grpc_status_code="Internal"} 0x4 1x4 2x4 3x4 4x4 5x4 6x4 7x4 8x4 9x4 ` +
				`10x4 11x4 12x4 13x4 14x4 15x4 16x4 17x4 18x4 19x4 20x4 21x4 22x4 23x4`,
			80 * time.Minute,
			[]string{"ebs.csi.aws.com has failed to delete volumes for an hour"},
		},
		{
			"volumes that are detached after ten attempts each hour, and deletions that succeed",
			deletions + `,grpc_status_code="Internal"} 0+1x10 10x49 11+1x9 20x49 21+1x9 30x40
			` + deletions + `,grpc_status_code="OK"} 0+5x170`,
			170 * time.Minute, nil,
		},
	},
}

// TestAlertsFire evaluates all rules at each minute of each example.
func TestAlertsFire(t *testing.T) {
	for _, alert := range load(t, &rules.ManagerOptions{}).AlertingRules() {
		fires, silent := false, false
		for _, example := range examples[alert.Name()] {
			fires, silent = fires || len(example.want) > 0, silent || len(example.want) == 0
			t.Run(alert.Name()+"/"+example.name, func(t *testing.T) {
				group := with(t, example.series)
				for passed := time.Duration(0); passed <= example.after; passed += interval {
					group.Eval(t.Context(), time.Unix(0, 0).Add(passed))
					var want []string
					if passed == example.after {
						want = example.want
					}
					if got := firing(t, group); !slices.Equal(got, want) {
						t.Fatalf("after %v fire %q, want %q", passed, got, want)
					}
				}
			})
		}
		if !fires || !silent {
			t.Errorf("alert %s needs an example in which it fires, and one in which nothing does", alert.Name())
		}
	}
}

// with returns the rules over series.
func with(t *testing.T, lines string) *rules.Group {
	t.Helper()
	series := promqltest.LoadedStorage(t, "load "+interval.String()+"\n"+lines)
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{
		MaxSamples: maxSamples, Timeout: time.Minute, LookbackDelta: lookback,
	})
	return load(t, &rules.ManagerOptions{
		Context: t.Context(), Appendable: series, Queryable: series,
		QueryFunc:  rules.EngineQueryFunc(engine, series),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
}

// load reads the rules as Prometheus does, which refuses unknown fields, and errors of PromQL and templates.
func load(t *testing.T, options *rules.ManagerOptions) *rules.Group {
	t.Helper()
	groups, errs := rules.NewManager(options).LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if len(groups) != 1 {
		t.Fatalf("%s has %d groups of rules, want 1", file, len(groups))
	}
	for _, group := range groups {
		return group
	}
	panic("unreachable")
}

// firing returns the summaries of the alerts that fire, sorted.
func firing(t *testing.T, group *rules.Group) []string {
	t.Helper()
	var summaries []string
	for _, alert := range group.AlertingRules() {
		if err := alert.LastError(); err != nil {
			t.Errorf("%s: %v", alert.Name(), err)
		}
		for _, active := range alert.ActiveAlerts() {
			if active.State == rules.StateFiring {
				summaries = append(summaries, active.Annotations.Get("summary"))
			}
		}
	}
	slices.Sort(summaries)
	return summaries
}
