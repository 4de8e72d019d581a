package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/filelock"
	"kubernetes-release/internal/stopwatch"
)

// Problems lists everything that keeps a process from being started.
type Problems struct {
	Process string
	List    []string
}

func (p *Problems) Error() string {
	if len(p.List) == 1 {
		return fmt.Sprintf("%s cannot run like this: %s", p.Process, p.List[0])
	}
	return fmt.Sprintf(
		"%s cannot run like this, %d problems:\n  - %s", p.Process, len(p.List), strings.Join(p.List, "\n  - "),
	)
}

// Check checks a configuration without starting or stopping anything. The error lists every problem found.
func (l *Launcher) Check(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	if err := config.CheckDisk(); err != nil { // before the directories of the process are created on it
		return &Problems{Process: config.Process, List: []string{err.Error()}}
	}
	log := logger(l.Stderr, config.Process)
	problems := protectionProblems(config)
	problems = append(problems, l.checkCertificates(config, log)...)
	problems = append(problems, missingPrograms(config)...)
	problems = append(problems, unusablePrograms(ctx, config)...)
	problems = append(problems, l.missingModules(ctx, config, log)...)
	problems = append(problems, l.missingCgroup(config)...)
	if config.Pidfile != "" { // start starts it, not bpm
		if _, err := l.scoped(config.Process, nil); err != nil {
			problems = append(problems, err.Error())
		}
	}
	flagProblems, err := l.checkFlags(ctx, config, log)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("check of %s was interrupted: %w", config.Process, err)
		}
		flagProblems = append(flagProblems, err.Error())
	}
	if problems = append(problems, flagProblems...); len(problems) > 0 {
		return &Problems{Process: config.Process, List: problems}
	}
	return nil
}

// metricsName is the file of a job's configuration with the expiry of its certificates in Prometheus' text format, for
// the textfile collector of node_exporter, which reads all files *.prom of the directories that it is given. It
// disappears with the job. Sidecars, which have their configurations below, have one certificate: the last one's file
// stays, and not one of each, from which the check of the next would take the permission that everybody reads it.
const metricsName = "certificates.prom"

// writeMetrics writes when the certificates expire. Everybody can read it, like the certificates of the API's port.
func writeMetrics(config *Config, expiry map[string]time.Time) error {
	if len(expiry) == 0 {
		return nil
	}
	var text exposition.Text
	family := text.Gauge(
		"kubernetes_bosh_certificate_not_after_timestamp_seconds", "Time at which a certificate of a BOSH job expires.",
	)
	for _, property := range slices.Sorted(maps.Keys(expiry)) {
		family.Add(float64(expiry[property].Unix()), "process", config.Process, "property", property)
	}
	dir := cmp.Or(config.PrivateDir, filepath.Dir(config.path))
	return atomicfile.Write(filepath.Join(dir, metricsName), []byte(text.String()), 0o644)
}

// protectionProblems protects the files of a process that start starts, and opens its logs as start does, whose own
// errors monit discards. Of a process of bpm's it protects the files if they are another user's than vcap's.
func protectionProblems(config *Config) []string {
	if config.Pidfile == "" && config.UserID == 0 {
		return nil
	}
	err := config.protect()
	if err == nil && config.LogDir != "" {
		for _, stream := range []string{"stdout", "stderr"} {
			file, openErr := openLog(config.logFile(stream))
			if openErr == nil {
				openErr = file.Close()
			}
			err = errors.Join(err, openErr)
		}
	}
	if err == nil {
		return nil
	}
	return problemsOf(err)
}

func (l *Launcher) checkCertificates(config *Config, log *slog.Logger) []string {
	var problems []string
	expiry := map[string]time.Time{}
	for _, certificate := range config.Certificates {
		report := certificate.Check(l.Now())
		if !report.NotAfter.IsZero() {
			expiry[certificate.Property] = report.NotAfter
		}
		if !report.CANotAfter.IsZero() {
			expiry[certificate.Property+".ca"] = report.CANotAfter
		}
		for _, warning := range report.Warnings {
			log.Warn(warning)
		}
		if len(report.Problems) == 0 {
			log.Info(
				"certificate is valid", "property", certificate.Property, "usage", certificate.Usage, "valid_until",
				report.NotAfter.UTC().Format(time.RFC3339),
			)
		}
		for _, problem := range report.Problems {
			if !slices.Contains(problems, problem) { // several certificates can have the same CA
				problems = append(problems, problem)
			}
		}
	}
	if err := writeMetrics(config, expiry); err != nil {
		log.Warn("the expiry of certificates cannot be written for monitoring", "error", err)
	}
	return problems
}

// missingPrograms lists the commands that the process would run and not find.
func missingPrograms(config *Config) []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(config.Programs)) {
		if config.program(name) == "" {
			problems = append(
				problems,
				fmt.Sprintf(
					"the VM has no command %s (PATH is %s), required for %s", name, config.searchPath(),
					config.Programs[name],
				),
			)
		}
	}
	return problems
}

// searchPath is the PATH of the process.
func (c *Config) searchPath() string {
	if own, ok := c.Environment["PATH"]; ok {
		return own.text
	}
	return os.Getenv("PATH")
}

// program returns the path of a command that the process would run, or "".
func (c *Config) program(name string) string {
	for _, dir := range filepath.SplitList(c.searchPath()) {
		if path := filepath.Join(dir, name); executable(path) == nil {
			return path
		}
	}
	return ""
}

// programTimeout is how long a command may take to show that it works, also on a VM without processor time to spare.
const programTimeout = 5 * time.Minute

// programProbes are arguments with which a command shows that it works with this kernel, and changes nothing.
var programProbes = map[string][]string{"nft": {"list", "tables"}}

// unusablePrograms lists the commands that the VM has and that do not work.
func unusablePrograms(ctx context.Context, config *Config) []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(config.Programs)) {
		path, arguments := config.program(name), programProbes[name]
		if path == "" || arguments == nil {
			continue
		}
		if err := probe(ctx, path, arguments); err != nil {
			problems = append(
				problems,
				fmt.Sprintf(
					"the command %s %s does not work: %v; it is required for %s", path, strings.Join(arguments, " "),
					err, config.Programs[name],
				),
			)
		}
	}
	return problems
}

func probe(ctx context.Context, path string, arguments []string) error {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, path, arguments...)
	output := &cappedBuffer{limit: tailBytes}
	command.Stderr = output
	killGroup(command)
	err := command.Run()
	if ctx.Err() != nil {
		return fmt.Errorf("no result within %s", programTimeout)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastLine(strings.TrimSpace(output.String())))
	}
	return nil
}

// missingCgroup reports a VM without cgroup v2. The file exists in the root of its hierarchy only, which kubelet
// expects there (cgroups.Mode of opencontainers/cgroups, utils.go, asks for the type of the file system).
func (l *Launcher) missingCgroup(config *Config) []string {
	if config.CgroupV2 == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(l.root, "/sys/fs/cgroup/cgroup.controllers")); err == nil {
		return nil
	}
	return []string{
		"the VM has cgroup v1, but " + config.Process + " requires cgroup v2 at /sys/fs/cgroup: " + config.CgroupV2,
	}
}

func (l *Launcher) checkFlags(ctx context.Context, config *Config, log *slog.Logger) ([]string, error) {
	id, err := config.identityForCheck(log)
	if err != nil {
		return nil, err
	}
	flags, err := config.flags(id)
	if err != nil {
		return nil, err
	}
	if config.FlagCheck == "none" {
		log.Info("flags are not checked: flag_check is none", "flags", len(flags))
		return nil, executable(config.Executable)
	}
	done, err := l.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	took := stopwatch.Start()
	result, err := flagChecker{
		executable:  config.Executable,
		arguments:   config.Arguments,
		environment: config.environment(id, os.Environ()),
		timeout:     config.CheckTimeout.Std(),
	}.check(ctx, flags)
	for _, warning := range result.warnings {
		log.Warn(warning)
	}
	if err == nil && len(result.problems) == 0 {
		log.Info(
			"flags are valid", "executable", config.Executable, "flags", len(flags), "took",
			took().Round(time.Millisecond),
		)
	}
	return result.problems, err
}

// awaitTurn waits until fewer checks run their programs than the VM has processors: the pre-start scripts of all jobs
// run at the same time.
func (l *Launcher) awaitTurn(ctx context.Context) (done func(), err error) {
	turn := func(ctx context.Context, i int) (done func(), err error) {
		path := filepath.Join(l.root, "/run/kube-launcher", fmt.Sprintf("check-%d.lock", i))
		return filelock.Acquire(ctx, path, "", nil)
	}
	now, cancel := context.WithCancel(ctx) // an attempt does not wait
	cancel()
	var held *filelock.HeldError
	for i := range runtime.NumCPU() {
		if done, err = turn(now, i); !errors.As(err, &held) {
			return done, err
		}
	}
	return turn(ctx, os.Getpid()%runtime.NumCPU())
}
