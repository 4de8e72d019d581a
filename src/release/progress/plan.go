package progress

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/internal/atomicfile"
)

// Several programs that run one after another, as those of `make up`, share one plan through these environment
// variables.
const (
	// StepsVariable names the steps in order, separated by blanks, each with the seconds that it usually takes:
	// "tools:30 lab:60".
	StepsVariable = "PROGRESS_STEPS"
	// TimesVariable is the path of the file that keeps how long each step took in the last run.
	TimesVariable = "PROGRESS_TIMES"
)

// plan is a sequence of steps and what is expected of them. The zero value has no steps.
type plan struct {
	steps []planned
	file  string
}

// planned is one step of a plan.
type planned struct {
	name    string
	seconds float64
	// measured is true if seconds is what the last run took, and false if it is only the usual time.
	measured bool
}

// planFromEnvironment reads the plan of the sequence that this program is a part of. Progress never stops the work:
// what cannot be read is left out.
func planFromEnvironment() plan {
	p := plan{file: os.Getenv(TimesVariable)}
	last := readTimes(p.file)
	for _, field := range strings.Fields(os.Getenv(StepsVariable)) {
		name, usual, _ := strings.Cut(field, ":")
		step := planned{name: name, seconds: 10}
		if seconds, err := strconv.ParseFloat(usual, 64); err == nil {
			step.seconds = seconds
		}
		if seconds, ok := last[name]; ok {
			step.seconds, step.measured = seconds, true
		}
		p.steps = append(p.steps, step)
	}
	return p
}

// readTimes reads lines of the form "STEP SECONDS". A missing or damaged file counts as empty.
func readTimes(file string) map[string]float64 {
	times := map[string]float64{}
	text, err := os.ReadFile(file)
	if err != nil {
		return times
	}
	for scanner := bufio.NewScanner(bytes.NewReader(text)); scanner.Scan(); {
		name, value, _ := strings.Cut(scanner.Text(), " ")
		if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 {
			times[name] = seconds
		}
	}
	return times
}

func (p plan) find(name string) (planned, bool) {
	for _, step := range p.steps {
		if step.name == name {
			return step, true
		}
	}
	return planned{}, false
}

// record writes down how long a step of the plan took.
func (p plan) record(name string, took time.Duration) {
	if _, ok := p.find(name); !ok || p.file == "" {
		return
	}
	times := readTimes(p.file)
	times[name] = took.Seconds()
	var text bytes.Buffer
	for _, step := range p.steps {
		if seconds, ok := times[step.name]; ok {
			fmt.Fprintf(&text, "%s %.1f\n", step.name, seconds)
		}
	}
	_ = atomicfile.Write(p.file, text.Bytes(), 0o644) // the next run then expects the usual times
}

// estimate returns which share of the whole plan is done, 0 to 1, and how much time is left, while the named step is
// under way: it has run for so long, this share of it is done, and it takes as long as expected says. ok is false for a
// step that is not in the plan.
func (p plan) estimate(
	name string, expected planned, elapsed time.Duration, done float64,
) (share float64, left time.Duration, ok bool) {
	var before, after float64
	for _, step := range p.steps {
		switch {
		case step.name == name:
			ok = true
		case ok:
			after += step.seconds
		default:
			before += step.seconds
		}
	}
	total := before + expected.seconds + after
	if !ok || total <= 0 {
		return 0, 0, false
	}
	rest := expected.seconds * (1 - done)
	if !expected.measured && done >= trustworthy {
		rest = elapsed.Seconds() * (1 - done) / done
	}
	return (before + expected.seconds*done) / total, time.Duration((rest + after) * float64(time.Second)), true
}

// trustworthy is the share of a step that has to be done before its pace says more than its usual time.
const trustworthy = 0.05
