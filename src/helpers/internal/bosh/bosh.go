// Package bosh knows where BOSH puts things on a VM; see https://bosh.io/docs/vm-config/#jobs-and-packages and
// https://bosh.io/docs/job-lifecycle. It is the one place that spells /var/vcap.
package bosh

import "path/filepath"

// Root is the directory below which the agent keeps jobs, packages, data and logs. Tests use another.
type Root string

// DefaultRoot is the root on every VM.
const DefaultRoot Root = "/var/vcap"

// Path is a path below the root that belongs to no job or package, such as instance/id.
func (r Root) Path(parts ...string) string { return r.path("", parts) }

func (r Root) path(first string, rest []string) string {
	return filepath.Join(append([]string{string(r), first}, rest...)...)
}

// Job is a path below a job's rendered templates.
func (r Root) Job(job string, rest ...string) string {
	return r.path("jobs", append([]string{job}, rest...))
}

// Package is a path below a package's files.
func (r Root) Package(name string, rest ...string) string {
	return r.path("packages", append([]string{name}, rest...))
}

// Log is a path below a job's logs, which are kept on the ephemeral disk.
func (r Root) Log(job string, rest ...string) string {
	return r.path("sys/log", append([]string{job}, rest...))
}

// Run is a path below a job's run files, which are gone after a reboot.
func (r Root) Run(job string, rest ...string) string {
	return r.path("sys/run", append([]string{job}, rest...))
}

// Data is a path below a job's data on the ephemeral disk.
func (r Root) Data(job string, rest ...string) string {
	return r.path("data", append([]string{job}, rest...))
}

// Store is a path below a job's data on the persistent disk.
func (r Root) Store(job string, rest ...string) string {
	return r.path("store", append([]string{job}, rest...))
}
