// Package alerts tests config/prometheus/alerts.yml with promtool, and that its metrics exist.
package alerts
