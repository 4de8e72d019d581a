// Package alerts tests config/prometheus/alerts.yml with Prometheus' own code: its loader, its evaluation of rules and
// its templates of annotations.
package alerts
