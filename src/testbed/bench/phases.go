package bench

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Phases of a deploy, in order.
const (
	phaseRead      = "read release and manifest"
	phaseVariables = "generate variables"
	phaseRender    = "render templates"
	phaseCompile   = "compile packages"
	phaseNetwork   = "network and cloud"
	phaseCreate    = "create VM"
	phaseInstall   = "install jobs and packages"
	phasePreStart  = "pre-start"
	phaseStart     = "start jobs"
	phasePostStart = "post-start"
	phaseRest      = "the rest"
)

var phases = []string{
	phaseRead, phaseVariables, phaseRender, phaseCompile, phaseNetwork, phaseCreate, phaseInstall, phasePreStart,
	phaseStart, phasePostStart, phaseRest,
}

// stages map the start of a log line of the lab to a phase, steps the start of what follows " L ".
var (
	stages = []struct{ prefix, phase string }{
		{"Generating variables", phaseVariables},
		{"Preparing deployment: Rendering", phaseRender},
		{"Compiling packages", phaseCompile},
		{"Preparing the lab", phaseNetwork},
		{"Creating missing vms", phaseCreate},
		{"Updating instance", phaseInstall},
	}
	steps = []struct{ prefix, phase string }{
		{"creating VM", phaseCreate},
		{"deleting VM", phaseCreate},
		{"setting VM metadata", phaseCreate},
		{"installing packages", phaseInstall},
		{"executing pre-start", phasePreStart},
		{"starting jobs", phaseStart},
		{"executing post-start", phasePostStart},
	}
	logLine  = regexp.MustCompile(`^time=(\S+) level=\S+ msg=("(?:[^"\\]|\\.)*"|\S+)`)
	finished = regexp.MustCompile(` \(\d\d:\d\d:\d\d\)( FAILED)?$`)
)

// stepMark separates a task from its current step.
const stepMark = " L "

// phaseOf returns the phase of a deploy after a log message that a task or step starts.
func phaseOf(message string) string {
	label, step, isStep := strings.Cut(message, stepMark)
	if isStep {
		for _, s := range steps {
			if strings.HasPrefix(step, s.prefix) {
				return s.phase
			}
		}
	}
	for _, s := range stages {
		if strings.HasPrefix(label, s.prefix) {
			return s.phase
		}
	}
	return phaseRest
}

// deployPhases reads the lab's log of a deploy of one VM that ran from started to end, and returns the duration of each
// phase that occurred. The time between two lines belongs to the phase that the first one names, or, if that one
// reports the end of a task, to the task that is still running.
func deployPhases(log io.Reader, started, end time.Time) (map[string]time.Duration, error) {
	took := map[string]time.Duration{}
	now, since := phaseRead, started
	var running []string // tasks that have started and not finished
	scanner := bufio.NewScanner(log)
	for scanner.Scan() {
		parts := logLine.FindStringSubmatch(scanner.Text())
		if parts == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, parts[1])
		if err != nil {
			return nil, fmt.Errorf("the lab's log has a line without a time: %q", scanner.Text())
		}
		if at.Before(started) {
			continue // of an earlier command
		}
		message := parts[2]
		if text, err := strconv.Unquote(message); err == nil {
			message = text
		}
		took[now] += at.Sub(since)
		since = at
		if end := finished.FindString(message); end != "" {
			task := strings.TrimSuffix(message, end)
			running = slices.DeleteFunc(running, func(other string) bool { return other == task })
			now = phaseRest
			if len(running) > 0 {
				now = phaseOf(running[len(running)-1])
			}
			continue
		}
		if !strings.Contains(message, stepMark) {
			running = append(running, message)
		}
		now = phaseOf(message)
	}
	if end.After(since) {
		took[now] += end.Sub(since)
	}
	return took, scanner.Err()
}

// partsOf returns the median of each phase over several deploys, in order.
func partsOf(deploys []map[string]time.Duration) []Part {
	var parts []Part
	for _, phase := range phases {
		var values []float64
		seen := false
		for _, deploy := range deploys {
			took, ok := deploy[phase]
			seen = seen || ok
			values = append(values, took.Seconds())
		}
		if seen {
			parts = append(parts, Part{Name: phase, Value: median(values), Runs: values})
		}
	}
	return parts
}
