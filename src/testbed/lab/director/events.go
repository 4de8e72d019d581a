package director

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"kubernetes-release/release/progress"
)

// Progress writes task lines as `bosh deploy` does: time, stage, task, and how long it took. It may be used by several
// tasks at the same time.
type Progress struct {
	// Out receives the lines; Log the same and more, structured. Both may be nil.
	Out io.Writer
	Log *slog.Logger
	// Color adds colors, for a terminal.
	Color bool
	// Display shows the tasks that are under way; may be nil. Where it redraws lines on a terminal, only the ends of
	// tasks get lines that stay.
	Display *progress.Display
	// Verbose writes all lines: the beginning and each step of every task, and each variable and package.
	Verbose bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mutex sync.Mutex
	// summary is the stage with one line for all its tasks that is under way, if any.
	summary *summary
}

// summarized are the stages whose tasks are written as one line, with what they count.
var summarized = map[string]string{"Generating variables": "variable", "Compiling packages": "package"}

// summary is a stage whose tasks are counted.
type summary struct {
	stage         string
	started       time.Time
	running, done int
}

// Task is one task of a stage that has started.
type Task struct {
	progress *Progress
	label    string
	started  time.Time
	// summary is the stage that counts the task; nil for a task with lines of its own.
	summary *summary
	// hide removes the task from the display.
	hide func()

	mutex sync.Mutex
	step  string
}

func (p *Progress) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// Begin announces a task. The name may be empty for a stage of one task.
func (p *Progress) Begin(stage, name string) *Task {
	label := stage
	if name != "" {
		label += ": " + name
	}
	t := &Task{progress: p, label: label, started: p.now(), hide: func() {}}
	p.mutex.Lock()
	t.summary = p.summarize(stage, t.started)
	p.line(slog.LevelInfo, label, "", t.summary == nil && p.detailed())
	p.mutex.Unlock()
	if p.Display != nil {
		t.hide = p.Display.Show(t.status)
	}
	return t
}

// summarize gives the summary that a task of the stage belongs to, nil if it has lines of its own. The mutex is held.
func (p *Progress) summarize(stage string, now time.Time) *summary {
	if p.summary != nil && p.summary.stage != stage {
		p.flush()
	}
	if summarized[stage] == "" || p.Verbose {
		return nil
	}
	if p.summary == nil {
		p.summary = &summary{stage: stage, started: now}
	}
	p.summary.running++
	return p.summary
}

// Flush writes the summary of the last stage, if one is left. It must be called when a command has no more tasks.
func (p *Progress) Flush() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.flush()
}

// flush is Flush with the mutex held. A stage with tasks under way keeps its summary.
func (p *Progress) flush() {
	s := p.summary
	if s == nil || s.running > 0 {
		return
	}
	p.summary = nil
	if s.done > 0 {
		unit := summarized[s.stage]
		if s.done != 1 {
			unit += "s"
		}
		p.print(slog.LevelInfo, fmt.Sprintf("%s: %d %s", s.stage, s.done, unit), duration(p.now().Sub(s.started)))
	}
}

// detailed reports whether beginnings and steps of tasks are written. A terminal shows them while they last.
func (p *Progress) detailed() bool { return p.Verbose || p.Display == nil || !p.Display.Terminal() }

// Step says what the task is doing now.
func (t *Task) Step(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.mutex.Lock()
	t.step = text
	t.mutex.Unlock()
	t.progress.mutex.Lock()
	defer t.progress.mutex.Unlock()
	t.progress.line(slog.LevelInfo, t.label, " L "+text, t.summary == nil && t.progress.detailed())
}

// The ids of instances, followed by their index, and the fingerprints of packages make lines long.
var (
	instanceID  = regexp.MustCompile(`/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} \((\d+)\)`)
	fingerprint = regexp.MustCompile(`/[0-9a-f]{40,}`)
)

// status words what the display shows of the task.
func (t *Task) status() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	text := fingerprint.ReplaceAllString(instanceID.ReplaceAllString(t.label, "/$1"), "")
	if t.step != "" {
		text += ": " + t.step
	}
	return text + ", " + progress.Took(t.progress.now().Sub(t.started))
}

// End says how the task ended and how long it took.
func (t *Task) End(err error) {
	t.hide()
	p := t.progress
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if t.summary != nil {
		t.summary.running--
		if err == nil {
			t.summary.done++
		}
	}
	took := duration(p.now().Sub(t.started))
	if err != nil {
		p.line(slog.LevelError, t.label, took+" FAILED", true)
		return
	}
	p.line(slog.LevelInfo, t.label, took, t.summary == nil)
}

// duration words how long a task took, as the BOSH CLI does.
func duration(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf(" (%02d:%02d:%02d)", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}

// Note writes one line that belongs to no task.
func (p *Progress) Note(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.line(slog.LevelInfo, fmt.Sprintf(format, args...), "", true)
}

// Warn writes a line that deserves attention.
func (p *Progress) Warn(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.line(slog.LevelWarn, "Warning: "+fmt.Sprintf(format, args...), "", true)
}

// line logs a line, and writes it if it is shown. The mutex is held.
func (p *Progress) line(level slog.Level, label, suffix string, shown bool) {
	if p.Log != nil {
		p.Log.Log(context.Background(), level, strings.TrimSpace(label+suffix))
	}
	if shown {
		p.print(level, label, suffix)
	}
}

// print writes a line. The mutex is held.
func (p *Progress) print(level slog.Level, label, suffix string) {
	if p.Out == nil {
		return
	}
	text := label + suffix
	if p.Color {
		text = color(level, label, suffix)
	}
	fmt.Fprintf(p.Out, "%s | %s\n", p.now().UTC().Format("15:04:05"), text)
}

func color(level slog.Level, label, suffix string) string {
	const red, yellow, gray, plain = "\x1b[31m", "\x1b[33m", "\x1b[90m", "\x1b[0m"
	switch {
	case level >= slog.LevelError:
		return red + label + suffix + plain
	case level >= slog.LevelWarn:
		return yellow + label + suffix + plain
	case suffix != "":
		return label + gray + suffix + plain
	default:
		return label
	}
}
