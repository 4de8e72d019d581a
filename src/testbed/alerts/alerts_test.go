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
}

// TestAlertsFire evaluates all rules at each minute of each example.
func TestAlertsFire(t *testing.T) {
	for _, alert := range load(t, &rules.ManagerOptions{}).AlertingRules() {
		fires, silent := false, false
		for _, example := range examples[alert.Name()] {
			fires, silent = fires || len(example.want) > 0, silent || len(example.want) == 0
			t.Run(alert.Name()+"/"+example.name, func(t *testing.T) {
				series := promqltest.LoadedStorage(t, "load "+interval.String()+"\n"+example.series)
				engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{
					MaxSamples: maxSamples, Timeout: time.Minute, LookbackDelta: lookback,
				})
				group := load(t, &rules.ManagerOptions{
					Context: t.Context(), Appendable: series, Queryable: series,
					QueryFunc:  rules.EngineQueryFunc(engine, series),
					NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
				})
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

// firing returns the summaries of the alerts that fire, in the order of the rules.
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
	return summaries
}
