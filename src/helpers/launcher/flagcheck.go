package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"al.essio.dev/pkg/shellescape"
	"golang.org/x/sys/unix"

	"kubernetes-release/internal/spelling"
)

const (
	// maxRuns limits how often the program is run: each run finds one wrong flag, and takes about 0.1 s.
	maxRuns = 50
	// wallFactor is how much longer than its own time a run may take, on a VM without processor time to spare.
	wallFactor = 10
	// maxOutput limits how much of the output of one run is kept, in bytes; kube-apiserver's help has 70 kB.
	maxOutput = 1 << 20
)

// flagChecker finds the wrong flags of a program by running it. A program that is run with its real flags and --help
// parses them all, reports the first that it refuses, and does nothing else. The list that --help prints would not be
// enough: programs hide flags from it.
//
// The flag checker understands the errors of pflag (Kubernetes, cobra), Go's flag (etcd, flanneld, CoreDNS) and
// urfave/cli (containerd).
type flagChecker struct {
	executable string
	arguments  []string
	// environment is that of the process; etcd and flanneld read flags from it too.
	environment []string
	// timeout is the processor time that each run may use.
	timeout time.Duration
}

// result is what a flagChecker has found.
type result struct {
	// problems name the flag, where it was set, what is wrong and what to do.
	problems []string
	// warnings are the program's own notes on flags that it still accepts, such as deprecated ones.
	warnings []string
}

// flagError is the first error that one run of the program reported.
type flagError struct {
	// flag is the name without dashes; empty if the error names none.
	flag    string
	unknown bool
	// message is the program's own reason.
	message string
	// option is set if only one option within the flag's value is unknown.
	option string
}

// check runs the program until it reports no error. An error means that it cannot be run.
func (c flagChecker) check(ctx context.Context, flags []flag) (result, error) {
	s := &session{flagChecker: c, remaining: slices.Clone(flags)}
	if err := s.until(ctx, "--help"); err != nil {
		return s.result, err
	}
	// Some checks, such as that of Kubernetes' feature gates, follow the parsing. A program with the flag --version
	// does them before it prints its version.
	if slices.Contains(listedFlags(s.help), "version") {
		if err := s.until(ctx, "--version"); err != nil {
			return s.result, err
		}
	}
	return s.result, nil
}

// session is the state of one check.
type session struct {
	flagChecker
	// remaining are the flags that the program has not refused.
	remaining []flag
	// help is what the program prints when it reports no error.
	help   string
	result result
	runs   int
}

// until runs the program with the remaining flags and a last one, --help or --version, until it reports no error.
func (s *session) until(ctx context.Context, last string) error {
	for ; s.runs < maxRuns; s.runs++ {
		out, err := s.run(ctx, s.remaining, last)
		if err != nil {
			return err
		}
		found := out.flagError(s.remaining)
		if s.help == "" {
			if s.help, err = s.helpAfter(ctx, out, found); err != nil {
				return err
			}
		}
		switch {
		case found == nil:
			s.result.warnings = append(s.result.warnings, out.deprecations(s.result.warnings)...)
			return nil
		case found.flag == strings.TrimLeft(last, "-"):
			return nil // it came last: the program has accepted all flags before it
		case found.flag == "":
			s.result.problems = append(
				s.result.problems,
				fmt.Sprintf(
					"%s refuses its arguments: %s; to see its whole output: %s",
					s.executable,
					found.message,
					shellescape.QuoteCommand(
						slices.Concat([]string{s.executable}, s.line(s.remaining), []string{last}),
					),
				),
			)
			return nil
		}
		i := slices.IndexFunc(s.remaining, func(f flag) bool { return sameFlag(f.name) == sameFlag(found.flag) })
		s.result.problems = append(s.result.problems, s.describe(s.remaining[i], *found))
		s.remaining = slices.Delete(s.remaining, i, i+1)
	}
	s.result.problems = append(
		s.result.problems, fmt.Sprintf("there may be more: %s was run %d times", s.executable, s.runs),
	)
	return nil
}

// helpAfter returns the program's help. After an error this takes a run without flags.
func (s *session) helpAfter(ctx context.Context, out output, found *flagError) (string, error) {
	if found != nil {
		var err error
		if out, err = s.run(ctx, nil, "--help"); err != nil {
			return "", err
		}
	}
	return out.text, nil
}

func (s *session) describe(f flag, found flagError) string {
	where := fmt.Sprintf("%s (%s)", strings.Join(f.arguments, " "), f.source)
	switch {
	case found.unknown:
		if near := spelling.Nearest(f.name, listedFlags(s.help)); near != "" {
			return fmt.Sprintf("%s: %s has no flag --%s; the nearest is --%s", where, s.executable, f.name, near)
		}
		return fmt.Sprintf(
			"%s: %s has no flag --%s or similar; see %s", where, s.executable, f.name,
			shellescape.QuoteCommand(slices.Concat([]string{s.executable}, s.arguments, []string{"--help"})),
		)
	case found.option != "":
		if near := spelling.Nearest(found.option, featureGates(s.help)); near != "" {
			return fmt.Sprintf("%s: %s; the nearest is %s", where, found.message, near)
		}
	}
	return fmt.Sprintf("%s: %s refuses this value: %s", where, s.executable, found.message)
}

func (c flagChecker) line(flags []flag) []string {
	line := slices.Clone(c.arguments)
	for _, f := range flags {
		line = append(line, f.arguments...)
	}
	return line
}

// output is that of one run.
type output struct {
	text string
	// failed is how the program exited, if not with status 0.
	failed error
}

// run runs the program, and kills it and its children when it has used its processor time, or never exits.
func (c flagChecker) run(ctx context.Context, flags []flag, last string) (output, error) {
	limited, cancel := context.WithTimeout(ctx, wallFactor*c.timeout)
	defer cancel()
	command := exec.CommandContext(limited, c.executable, append(c.line(flags), last)...)
	buffer := &cappedBuffer{limit: maxOutput}
	command.Stdout, command.Stderr = buffer, buffer
	command.Env = c.environment
	command.Dir = "/"
	killGroup(command)
	err := command.Start()
	if err == nil {
		limitProcessorTime(command.Process.Pid, c.timeout)
		err = command.Wait()
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return output{text: buffer.String()}, nil
	case ctx.Err() != nil:
		return output{}, ctx.Err()
	case limited.Err() != nil:
		return output{}, c.endless(fmt.Sprintf("within %s", wallFactor*c.timeout), last, buffer)
	case !errors.As(err, &exit):
		return output{}, fmt.Errorf(
			"%s cannot be run: %w (does the job's spec list its package, and is it compiled for this machine?)",
			c.executable, err,
		)
	case killed(exit) && exit.UserTime()+exit.SystemTime() >= c.timeout*9/10: // the kernel counts in ticks
		return output{}, c.endless(fmt.Sprintf("within %s of processor time", c.timeout), last, buffer)
	}
	return output{text: buffer.String(), failed: err}, nil
}

func killed(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// endless is the error of a run that was killed.
func (c flagChecker) endless(limit, last string, buffer *cappedBuffer) error {
	return fmt.Errorf(
		"%s did not exit %s when run with %s, so its flags cannot be checked (does the program have the flag %s? If "+
			"not, set flag_check to none; if it needs longer, increase check_timeout); its last output: %s",
		c.executable, limit, last, last, lastLine(buffer.String()),
	)
}

// limitProcessorTime lets the kernel kill a process that has used more, in whole seconds. Time that it waits for a
// processor does not count.
func limitProcessorTime(pid int, limit time.Duration) {
	seconds := uint64(math.Ceil(limit.Seconds()))
	// It fails if the process has exited.
	_ = unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}, nil)
}

// killGroup makes a command whose context is done stop together with its children.
func killGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
}

var (
	unknownFlag = []*regexp.Regexp{
		regexp.MustCompile(`unknown flag: --([^\s"]+)`),
		regexp.MustCompile(`unknown shorthand flag: '.' in -([^\s"]+)`),
		regexp.MustCompile(`flag provided but not defined: --?([^\s"]+)`),
	}
	// badValue has the groups name and reason.
	badValue = []*regexp.Regexp{
		regexp.MustCompile(`(?s)invalid argument ".*?" for "(?:-., )?--([^\s"]+)" flag: ([^\n]*)`),
		regexp.MustCompile(`(?s)invalid (?:boolean )?value ".*?" for (?:flag )?--?([^\s:"]+): ([^\n]*)`),
	}
	unknownGate = regexp.MustCompile(`unrecognized feature gate: ([A-Za-z0-9_]+)`)
	gateName    = regexp.MustCompile(`(?m)^\s+(?:\w+:)?([A-Z]\w+)=true\|false`)
	deprecated  = regexp.MustCompile(`(?m)^Flag --(\S+) has been deprecated, (.*)$`)
	// helpFlag matches the flags at the beginning of a line of help: "-v, --v Level", " -name string", " --config
	// value, -c value", " --name 'default'".
	helpFlag = regexp.MustCompile(`(?m)^\s+(?:-[A-Za-z0-9], )?--?([A-Za-z0-9][A-Za-z0-9._-]*)`)
)

// flagError finds the first error in the output, nil if there is none. Not every program fails then: flanneld prints
// the error and its usage, and exits with 0.
func (o output) flagError(flags []flag) *flagError {
	text := strings.ReplaceAll(o.text, `\"`, `"`) // structured logs quote the message
	given := func(name string) bool {
		return name == "help" || name == "version" ||
			slices.ContainsFunc(flags, func(f flag) bool { return sameFlag(f.name) == sameFlag(name) })
	}
	for _, pattern := range unknownFlag {
		if m := pattern.FindStringSubmatch(text); m != nil && given(m[1]) {
			return &flagError{flag: m[1], unknown: true}
		}
	}
	for _, pattern := range badValue {
		if m := pattern.FindStringSubmatch(text); m != nil && given(m[1]) {
			return withOption(&flagError{flag: m[1], message: strings.TrimSuffix(m[2], `"`)})
		}
	}
	if o.failed == nil || strings.Contains(text, "flag: help requested") {
		return nil
	}
	if m := unknownGate.FindString(text); m != "" && given("feature-gates") {
		return withOption(&flagError{flag: "feature-gates", message: m})
	}
	return &flagError{message: fmt.Sprintf("%s (%v)", lastLine(text), o.failed)}
}

func withOption(e *flagError) *flagError {
	if m := unknownGate.FindStringSubmatch(e.message); m != nil {
		e.option = m[1]
	}
	return e
}

// deprecations returns the program's notes on deprecated flags, without those in seen.
func (o output) deprecations(seen []string) []string {
	var notes []string
	for _, m := range deprecated.FindAllStringSubmatch(o.text, -1) {
		note := fmt.Sprintf("flag --%s is deprecated: %s", m[1], m[2])
		if !slices.Contains(seen, note) && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// listedFlags returns the names of the flags in a help text; good enough for suggestions.
func listedFlags(help string) []string { return submatches(helpFlag, help) }

// featureGates returns the names in the help of --feature-gates.
func featureGates(help string) []string { return submatches(gateName, help) }

func submatches(pattern *regexp.Regexp, text string) []string {
	var names []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// lastLine returns the last line of a text that is not empty.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return last
	}
	return "(it printed nothing)"
}

// cappedBuffer keeps the first bytes that are written to it and discards the rest.
type cappedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *cappedBuffer) Write(p []byte) (int, error) {
	room := max(0, b.limit-b.Len())
	_, _ = b.Buffer.Write(p[:min(room, len(p))])
	return len(p), nil
}
