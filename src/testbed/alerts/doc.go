// Package alerts tests the alerts and the dashboard of config/prometheus with promtool, and that their metrics exist.
package alerts
