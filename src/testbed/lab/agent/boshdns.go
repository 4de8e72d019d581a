package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-release/testbed/lab/vm"
)

// linksFile is where the Director puts what a job provides (bosh, director/core/templates/job_template_renderer.rb).
const linksFile = ".bosh/links.json"

// healthScript is a job's own answer to whether it is healthy (bosh-dns-release, jobs/bosh-dns/spec,
// health.executable_path).
const healthScript = "bin/dns/healthy"

// dnsJob is a job as bosh-dns knows it.
type dnsJob struct {
	name   string
	script string // its health script; empty if it has none
}

// CheckDNS implements Agent.
func (h *host) CheckDNS(context.Context) error {
	_, err := h.dnsJobs()
	return err
}

// dnsJobs reads the jobs with the permissions of bosh-dns.
func (h *host) dnsJobs() (jobs []dnsJob, err error) {
	if err := h.vm.DoAsVcap(func() (err error) {
		jobs, err = parseDNSJobs(jobsDir)
		return err
	}); err != nil {
		return nil, fmt.Errorf("bosh-dns cannot start on VM %s: it runs as vcap and reads every job: %w; "+
			"JOB, JOB/bin, JOB/.bosh and %s must be readable for the group vcap", h.vm.Name(), err, linksFile)
	}
	return jobs, nil
}

// parseDNSJobs does what bosh-dns and its health checker do when they start (bosh-dns-release,
// src/bosh-dns/healthconfig/jobs_parser.go, ParseJobs): for them too, every error ends it but that of a file that does
// not exist.
func parseDNSJobs(dir string) ([]dnsJob, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var jobs []dnsJob
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			continue
		}
		if err := parseLinks(filepath.Join(path, linksFile)); err != nil {
			return nil, err
		}
		job := dnsJob{name: entry.Name()}
		script := filepath.Join(path, healthScript)
		if _, err := os.Stat(script); err == nil {
			job.script = script
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

func parseLinks(path string) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Group, Name, Type string }
	if err := json.Unmarshal(content, &links); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// JobHealth implements Agent. bosh-dns runs the scripts as vcap too (jobs/bosh-dns/templates/bosh_dns_health_ctl.erb).
func (h *host) JobHealth(ctx context.Context) (map[string]RunState, error) {
	jobs, err := h.dnsJobs()
	if err != nil {
		return nil, err
	}
	states := map[string]RunState{}
	for _, job := range jobs {
		if job.script == "" {
			continue
		}
		argv := []string{"setpriv", "--reuid=vcap", "--regid=vcap", "--clear-groups", job.script}
		err := h.vm.Run(ctx, argv, vm.RunOptions{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
		var failed *vm.ExitError
		switch {
		case err == nil:
			states[job.name] = Running
		case errors.As(err, &failed):
			states[job.name] = Failing
		default:
			return nil, err
		}
	}
	return states, nil
}
