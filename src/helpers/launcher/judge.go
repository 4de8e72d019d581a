package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubernetes-release/internal/spelling"
)

const (
	// maxJudgeRuns bounds how often the program is asked: each run finds one offending flag, and takes some 0.1 s.
	maxJudgeRuns = 50
	// maxJudgeOutput bounds what is kept of the output of one run; kube-apiserver's help has 70 kB.
	maxJudgeOutput = 1 << 20
)

// judge lets the program itself tell which of its flags it does not take. A program that is run with its real flags and
// --help parses them all, says what it dislikes, and does nothing else. The list that --help prints would not do as a
// judge: programs hide flags from it.
//
// Known are the complaints of pflag (Kubernetes, cobra), Go's flag (etcd, flanneld, CoreDNS) and urfave/cli (containerd).
type judge struct {
	executable string
	arguments  []string
	// environment is what the program would run with; etcd and flanneld take flags from there too.
	environment []string
	timeout     time.Duration
}

// verdict is what the program thinks of its flags.
type verdict struct {
	// problems name the flag, where it was set, what is wrong and what to do.
	problems []string
	// warnings are the program's own notes on flags that it still takes, such as deprecated ones.
	warnings []string
}

// complaint is what one run of the program said first.
type complaint struct {
	// flag is the name without dashes; empty if the program ended with an error that names none.
	flag    string
	unknown bool
	// message is the program's own reason.
	message string
	// value and option are set when it is one option within the value of a flag that is unknown.
	option string
}

// run asks until the program has no complaint left. An error means that it could not be asked.
func (j judge) run(ctx context.Context, flags []flag) (verdict, error) {
	session := &judgement{judge: j, remaining: slices.Clone(flags)}
	if err := session.until(ctx, "--help"); err != nil {
		return session.verdict, err
	}
	// Some checks, such as that of Kubernetes' feature gates, come after parsing. Programs with a flag --version make
	// them too before they print it.
	if slices.Contains(knownFlags(session.help), "version") {
		if err := session.until(ctx, "--version"); err != nil {
			return session.verdict, err
		}
	}
	return session.verdict, nil
}

// judgement is the state of one judge's run.
type judgement struct {
	judge
	remaining []flag
	// help is the list that the program prints when it has no complaint.
	help    string
	verdict verdict
	runs    int
}

// until repeats the question with the flags that have not been complained of, until there is no complaint.
func (s *judgement) until(ctx context.Context, question string) error {
	for ; s.runs < maxJudgeRuns; s.runs++ {
		answer, err := s.ask(ctx, s.remaining, question)
		if err != nil {
			return err
		}
		c := answer.complaint(s.remaining)
		if s.help == "" {
			if s.help, err = s.helpAfter(ctx, answer, c); err != nil {
				return err
			}
		}
		switch {
		case c == nil:
			s.verdict.warnings = append(s.verdict.warnings, answer.deprecations(s.verdict.warnings)...)
			return nil
		case c.flag == strings.TrimLeft(question, "-"):
			return nil // it came last: all before it were taken
		case c.flag == "":
			s.verdict.problems = append(s.verdict.problems, fmt.Sprintf("%s refuses its arguments: %s; to see all it says: %s",
				s.executable, c.message, quote(slices.Concat([]string{s.executable}, s.line(s.remaining), []string{question}))))
			return nil
		}
		i := slices.IndexFunc(s.remaining, func(f flag) bool { return sameFlag(f.name) == sameFlag(c.flag) })
		s.verdict.problems = append(s.verdict.problems, s.describe(s.remaining[i], *c))
		s.remaining = slices.Delete(s.remaining, i, i+1)
	}
	s.verdict.problems = append(s.verdict.problems, fmt.Sprintf("there may be more: %s was asked %d times", s.executable, s.runs))
	return nil
}

// helpAfter gives the program's help, which after a complaint has to be asked for without flags.
func (s *judgement) helpAfter(ctx context.Context, given answer, c *complaint) (string, error) {
	if c != nil {
		var err error
		if given, err = s.ask(ctx, nil, "--help"); err != nil {
			return "", err
		}
	}
	return given.text, nil
}

func (s *judgement) describe(f flag, c complaint) string {
	where := fmt.Sprintf("%s (%s)", strings.Join(f.arguments, " "), f.source)
	switch {
	case c.unknown:
		if near := spelling.Nearest(f.name, knownFlags(s.help)); near != "" {
			return fmt.Sprintf("%s: %s has no flag --%s; the nearest that it has is --%s", where, s.executable, f.name, near)
		}
		return fmt.Sprintf("%s: %s has no flag --%s, nor one like it; see %s", where, s.executable, f.name, quote(append([]string{s.executable}, append(slices.Clone(s.arguments), "--help")...)))
	case c.option != "":
		if near := spelling.Nearest(c.option, featureGates(s.help)); near != "" {
			return fmt.Sprintf("%s: %s; the nearest that it has is %s", where, c.message, near)
		}
	}
	return fmt.Sprintf("%s: %s does not take this value: %s", where, s.executable, c.message)
}

func (j judge) line(flags []flag) []string {
	line := slices.Clone(j.arguments)
	for _, f := range flags {
		line = append(line, f.arguments...)
	}
	return line
}

// answer is the output of a run.
type answer struct {
	text string
	// failed is how the program ended, if not with status 0.
	failed error
}

// ask runs the program, with everything that it starts killed when the time is up.
func (j judge) ask(ctx context.Context, flags []flag, question string) (answer, error) {
	limited, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	command := exec.CommandContext(limited, j.executable, append(j.line(flags), question)...)
	output := &cappedBuffer{limit: maxJudgeOutput}
	command.Stdout, command.Stderr = output, output
	command.Env = j.environment
	command.Dir = "/"
	killGroup(command)
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return answer{text: output.String()}, nil
	case ctx.Err() != nil:
		return answer{}, ctx.Err()
	case limited.Err() != nil:
		return answer{}, fmt.Errorf("%s did not end within %s when run with %s, so its flags cannot be judged (is it a program that knows %s? if not, set flag_check to none; if the machine is only slow, set a longer check_timeout); it said: %s",
			j.executable, j.timeout, question, question, lastLine(output.String()))
	case errors.As(err, &exit):
		return answer{text: output.String(), failed: err}, nil
	default:
		return answer{}, fmt.Errorf("%s cannot be run: %w (is its package among those of the job, and compiled for this machine?)", j.executable, err)
	}
}

// killGroup makes the end of a command's context end everything that the command started.
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
	// helpFlag finds the flags at the beginning of a line of help: "-v, --v Level", "  -name string", "  --config value, -c value", "  --name 'default'".
	helpFlag = regexp.MustCompile(`(?m)^\s+(?:-[A-Za-z0-9], )?--?([A-Za-z0-9][A-Za-z0-9._-]*)`)
)

// complaint finds what the program disliked, nil if nothing. Not every program fails then: flanneld prints what is wrong,
// then its usage, and ends with 0.
func (a answer) complaint(flags []flag) *complaint {
	text := strings.ReplaceAll(a.text, `\"`, `"`) // structured logs quote the message
	asked := func(name string) bool {
		return name == "help" || name == "version" || slices.ContainsFunc(flags, func(f flag) bool { return sameFlag(f.name) == sameFlag(name) })
	}
	for _, pattern := range unknownFlag {
		if m := pattern.FindStringSubmatch(text); m != nil && asked(m[1]) {
			return &complaint{flag: m[1], unknown: true}
		}
	}
	for _, pattern := range badValue {
		if m := pattern.FindStringSubmatch(text); m != nil && asked(m[1]) {
			return withOption(&complaint{flag: m[1], message: strings.TrimSuffix(m[2], `"`)})
		}
	}
	if a.failed == nil || strings.Contains(text, "flag: help requested") {
		return nil
	}
	if m := unknownGate.FindString(text); m != "" && asked("feature-gates") {
		return withOption(&complaint{flag: "feature-gates", message: m})
	}
	return &complaint{message: fmt.Sprintf("%s (%v)", lastLine(text), a.failed)}
}

func withOption(c *complaint) *complaint {
	if m := unknownGate.FindStringSubmatch(c.message); m != nil {
		c.option = m[1]
	}
	return c
}

// deprecations returns the program's notes on deprecated flags that are not among those seen.
func (a answer) deprecations(seen []string) []string {
	var notes []string
	for _, m := range deprecated.FindAllStringSubmatch(a.text, -1) {
		note := fmt.Sprintf("flag --%s is deprecated: %s", m[1], m[2])
		if !slices.Contains(seen, note) && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}

// knownFlags reads the names of flags from help text; good for suggestions, not for judgement.
func knownFlags(help string) []string { return submatches(helpFlag, help) }

// featureGates reads the names that the help of --feature-gates lists.
func featureGates(help string) []string { return submatches(gateName, help) }

func submatches(pattern *regexp.Regexp, text string) []string {
	var names []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// lastLine is the last line of a text that says something.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return last
	}
	return "(it printed nothing)"
}

// cappedBuffer keeps the first bytes of what is written to it and takes the rest without keeping it.
type cappedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *cappedBuffer) Write(p []byte) (int, error) {
	room := max(0, b.limit-b.Len())
	_, _ = b.Buffer.Write(p[:min(room, len(p))])
	return len(p), nil
}
