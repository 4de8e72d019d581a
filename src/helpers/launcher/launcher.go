// Package launcher starts the processes of this release. A job renders what its process shall be, as data, to
// config/flags.json; the launcher turns it into a command line in one place, for all jobs alike:
//
//	check  judges everything before anything is stopped or started (pre-start): the configuration, the certificates,
//	       and, by asking the program itself, every flag's name and value
//	exec   waits for what the process needs, then becomes the process, with the same pid (bpm, and start)
//	start  runs exec as a daemon and returns when the process is ready (monit)
//	stop   ends that process, and only that: what it started lives on, as containers must when containerd restarts
//
// The operator's own flags are in extra_args.json beside the configuration. They add flags; they cannot replace those
// that the job sets.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Launcher holds what the commands need of the world.
type Launcher struct {
	// Self is the path of the launcher's own program, which start runs again.
	Self string
	// Now is the clock by which certificates are judged.
	Now func() time.Time
	// Stderr takes progress, as structured lines.
	Stderr io.Writer

	// poll is the pause between two looks at something that is waited for; progress how often a wait says that it goes on.
	poll, progress time.Duration
	// settle is how long start watches a process that has no ready command: one that dies at once is noticed.
	settle time.Duration
	// patience is how long a wait for a stale Node to go puts up with not being allowed to read Nodes.
	patience time.Duration
}

// New returns a Launcher for this machine; self is the path of the running program.
func New(self string, stderr io.Writer) *Launcher {
	return &Launcher{Self: self, Now: time.Now, Stderr: stderr, poll: 200 * time.Millisecond, progress: 10 * time.Second, settle: 100 * time.Millisecond, patience: time.Minute}
}

// logger writes RFC 3339 times in UTC, whatever the zone of the machine.
func logger(w io.Writer, process string) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
		}
		return a
	}})).With("process", process)
}

// Problems is a list of everything that keeps a process from being started.
type Problems struct {
	Process string
	List    []string
}

func (p *Problems) Error() string {
	if len(p.List) == 1 {
		return fmt.Sprintf("%s cannot run like this: %s", p.Process, p.List[0])
	}
	return fmt.Sprintf("%s cannot run like this, %d problems:\n  - %s", p.Process, len(p.List), strings.Join(p.List, "\n  - "))
}

// Check judges a configuration without starting or stopping anything. The error lists every problem found.
func (l *Launcher) Check(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	log := logger(l.Stderr, config.Process)
	problems := l.checkCertificates(config, log)
	problems = append(problems, missingFiles(config)...)
	problems = append(problems, missingPrograms(config)...)
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

func (l *Launcher) checkCertificates(config *Config, log *slog.Logger) []string {
	var problems []string
	for _, certificate := range config.Certificates {
		report := certificate.Check(l.Now())
		for _, warning := range report.Warnings {
			log.Warn(warning)
		}
		if len(report.Problems) == 0 {
			log.Info("certificate is good", "property", certificate.Property, "usage", certificate.Usage, "valid_until", report.NotAfter.UTC().Format(time.RFC3339))
		}
		for _, problem := range report.Problems {
			if !slices.Contains(problems, problem) { // the same CA may stand behind several certificates
				problems = append(problems, problem)
			}
		}
	}
	return problems
}

// missingFiles lists the files that wait_for names and that are not there.
func missingFiles(config *Config) []string {
	var problems []string
	for i, wait := range config.WaitFor {
		for key, path := range map[string]string{"ca": wait.CA, "certificate": wait.Certificate, "private_key": wait.PrivateKey, "token_file": wait.TokenFile} {
			if path == "" {
				continue
			}
			if info, err := os.Stat(path); err != nil {
				problems = append(problems, fmt.Sprintf("%s, wait_for[%d].%s: %v", config.path, i, key, err))
			} else if info.Size() == 0 {
				problems = append(problems, fmt.Sprintf("%s, wait_for[%d].%s: file %s is empty; the property that it is rendered from is not set", config.path, i, key, path))
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// missingPrograms lists the commands that the process would run and not find.
func missingPrograms(config *Config) []string {
	path := os.Getenv("PATH")
	if own, ok := config.Environment["PATH"]; ok {
		path = own.Text
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(config.Programs)) {
		found := func(dir string) bool { return executable(filepath.Join(dir, name)) == nil }
		if !slices.ContainsFunc(filepath.SplitList(path), found) {
			problems = append(problems, fmt.Sprintf("the VM has no command %s (looked for in %s), needed for %s", name, path, config.Programs[name]))
		}
	}
	return problems
}

func (l *Launcher) checkFlags(ctx context.Context, config *Config, log *slog.Logger) ([]string, error) {
	id, err := config.identityForCheck(log)
	if err != nil {
		return nil, err
	}
	flags := config.flags(id)
	if config.FlagCheck == "none" {
		log.Info("flags are not judged: flag_check is none", "flags", len(flags))
		return nil, executable(config.Executable)
	}
	begun := time.Now()
	verdict, err := judge{
		executable:  config.Executable,
		arguments:   config.Arguments,
		environment: config.environment(id, os.Environ()),
		timeout:     config.CheckTimeout.or(defaultCheckTimeout),
	}.run(ctx, flags)
	for _, warning := range verdict.warnings {
		log.Warn(warning)
	}
	if err == nil && len(verdict.problems) == 0 {
		log.Info("flags are good", "executable", config.Executable, "flags", len(flags), "took", time.Since(begun).Round(time.Millisecond))
	}
	return verdict.problems, err
}

// executable tells whether a file can be run.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("executable: %w; is its package among those of the job?", err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("executable: %s is not a program (mode %s)", path, info.Mode())
	}
	return nil
}

// Exec waits for what the configuration asks for, then becomes the process. It returns only with an error.
func (l *Launcher) Exec(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	log := logger(l.Stderr, config.Process)
	if err := executable(config.Executable); err != nil {
		return fmt.Errorf("%s: %w", config.Process, err)
	}
	id, err := config.identity()
	if err != nil {
		return fmt.Errorf("%s does not start: %w", config.Process, err)
	}
	for _, wait := range config.WaitFor {
		wait.machine = id
		if err := l.wait(ctx, wait, log); err != nil {
			return fmt.Errorf("%s does not start: %w", config.Process, err)
		}
	}
	line := config.commandLine(config.flags(id))
	environment := config.environment(id, os.Environ())
	signal.Reset(syscall.SIGTERM, syscall.SIGINT) // from here on they end the process at once, none is lost on the way
	if ctx.Err() != nil {
		return fmt.Errorf("%s does not start: interrupted", config.Process)
	}
	log.Info("starting", "command", quote(line))
	applyLimits(config.Limits, log)
	err = syscall.Exec(config.Executable, line, environment)
	if errors.Is(err, syscall.E2BIG) {
		return fmt.Errorf("%s: the command line with its environment is too long for the kernel (%d arguments): %w", config.Executable, len(line), err)
	}
	return fmt.Errorf("%s cannot be run: %w", config.Executable, err)
}
