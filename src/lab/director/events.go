package director

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Progress writes task lines as `bosh deploy` does: time, stage, task, and how long it took. It may be used by several
// tasks at once.
type Progress struct {
	// Out receives the lines; Log the same, structured. Log may be nil.
	Out io.Writer
	Log *slog.Logger
	// Colour adds colours, for a terminal.
	Colour bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mutex sync.Mutex
}

// Task is one task of a stage that has begun.
type Task struct {
	progress *Progress
	label    string
	started  time.Time
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
	t := &Task{progress: p, label: label, started: p.now()}
	p.line(slog.LevelInfo, label, "")
	return t
}

// Step says what the task is doing now.
func (t *Task) Step(format string, args ...any) {
	t.progress.line(slog.LevelInfo, t.label, " L "+fmt.Sprintf(format, args...))
}

// End says how the task ended and how long it took.
func (t *Task) End(err error) {
	took := t.progress.now().Sub(t.started).Round(time.Second)
	text := fmt.Sprintf(" (%02d:%02d:%02d)", int(took.Hours()), int(took.Minutes())%60, int(took.Seconds())%60)
	if err != nil {
		t.progress.line(slog.LevelError, t.label, text+" FAILED")
		return
	}
	t.progress.line(slog.LevelInfo, t.label, text)
}

// Note writes one line that belongs to no task.
func (p *Progress) Note(format string, args ...any) {
	p.line(slog.LevelInfo, fmt.Sprintf(format, args...), "")
}

// Warn writes a line that deserves attention.
func (p *Progress) Warn(format string, args ...any) {
	p.line(slog.LevelWarn, "Warning: "+fmt.Sprintf(format, args...), "")
}

func (p *Progress) line(level slog.Level, label, suffix string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	text := label + suffix
	if p.Log != nil {
		p.Log.Log(context.Background(), level, strings.TrimSpace(text))
	}
	if p.Out == nil {
		return
	}
	if p.Colour {
		text = colour(level, label, suffix)
	}
	fmt.Fprintf(p.Out, "%s | %s\n", p.now().UTC().Format("15:04:05"), text)
}

func colour(level slog.Level, label, suffix string) string {
	const red, yellow, grey, plain = "\x1b[31m", "\x1b[33m", "\x1b[90m", "\x1b[0m"
	switch {
	case level >= slog.LevelError:
		return red + label + suffix + plain
	case level >= slog.LevelWarn:
		return yellow + label + suffix + plain
	case suffix != "":
		return label + grey + suffix + plain
	default:
		return label
	}
}
