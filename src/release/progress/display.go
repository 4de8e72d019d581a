// Package progress shows how far long work is. On a terminal there is a line for each task that is under way, redrawn
// in place, and below them one with the share of the whole that is done and the time left. Elsewhere a task that takes
// long prints a plain line now and then, and no control characters.
package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

const (
	// interval is how often a task prints a line where the output is no terminal.
	interval = 15 * time.Second
	// patience is how long a task runs before a terminal shows it, so that short ones do not flicker.
	patience = 300 * time.Millisecond
	// barScale is the number of parts of the bar.
	barScale = 1000
)

// Display is where progress is shown, and the writer for all other output of the program, which goes above the lines
// that are redrawn. It may be used by several goroutines at once. Close must be called at the end.
type Display struct {
	out      io.Writer
	plan     plan
	interval time.Duration
	now      func() time.Time

	terminal bool
	// step is the step of the plan that is under way. It needs no lock, as the library asks for it while the lock is
	// held.
	step atomic.Pointer[Step]

	mutex sync.Mutex
	// live draws on a terminal; nil elsewhere, and once the display is closed. bar is its line about the whole plan.
	live *mpb.Progress
	bar  *mpb.Bar
	// lines are those of the tasks.
	lines map[*mpb.Bar]bool
	// partial is output on a terminal that has no line feed yet.
	partial []byte
}

// IsTerminal reports whether a writer is a terminal that can redraw lines. One without a size, as some CI systems have,
// cannot.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return err == nil && width > 0 && height > 0
}

// Open returns a display on out, for the plan that the environment describes.
func Open(out io.Writer) *Display {
	d := &Display{out: out, plan: planFromEnvironment(), interval: interval, now: time.Now, lines: map[*mpb.Bar]bool{}}
	if IsTerminal(out) {
		d.terminal, d.live = true, mpb.New(mpb.WithOutput(out))
	}
	return d
}

// Terminal reports whether the output is a terminal, on which lines are redrawn.
func (d *Display) Terminal() bool { return d.terminal }

// Write prints text above the lines that are redrawn. A last line without a line feed is kept until its end, or Close.
func (d *Display) Write(text []byte) (int, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.live == nil {
		return d.out.Write(text)
	}
	d.partial = append(d.partial, text...)
	if end := bytes.LastIndexByte(d.partial, '\n') + 1; end > 0 {
		if _, err := d.live.Write(d.partial[:end]); err != nil {
			return 0, err
		}
		d.partial = bytes.Clone(d.partial[end:])
	}
	return len(text), nil
}

// Close removes the lines that are redrawn. What is written later goes to the output directly.
func (d *Display) Close() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.live == nil {
		return
	}
	if d.bar != nil {
		d.bar.Abort(true)
	}
	for line := range d.lines {
		line.Abort(true)
	}
	d.live.Wait()
	d.live = nil
	_, _ = d.out.Write(d.partial)
	d.partial = nil
}

// Show shows a task until remove is called: a terminal has a line for it meanwhile, elsewhere it is printed every 15
// seconds. text is asked for each time; it is one line.
func (d *Display) Show(text func() string) (remove func()) {
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		if d.terminal {
			d.draw(text, done)
		} else {
			d.repeat(text, done)
		}
	})
	return sync.OnceFunc(func() { close(done); wait.Wait() })
}

// draw has a line for a task once it has run for a moment, until done.
func (d *Display) draw(text func() string, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-time.After(patience):
	}
	line := d.addLine(text)
	<-done
	if line != nil {
		line.Abort(true)
		d.mutex.Lock()
		defer d.mutex.Unlock()
		delete(d.lines, line)
	}
}

// addLine adds a line, nil once the display is closed.
func (d *Display) addLine(text func() string) *mpb.Bar {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.live == nil {
		return nil
	}
	d.addBar()
	line := d.live.New(
		0, mpb.NopStyle(), mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return text() })),
	)
	d.lines[line] = true
	return line
}

// repeat prints a task now and then until done.
func (d *Display) repeat(text func() string, done <-chan struct{}) {
	ticker := time.NewTicker(d.interval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			line := text()
			if summary := d.summary(); summary != "" {
				line += "; " + summary
			}
			_, _ = fmt.Fprintln(d, line)
		}
	}
}

// addBar adds the line about the whole plan below the others. The mutex is held.
func (d *Display) addBar() {
	if d.bar != nil || len(d.plan.steps) == 0 {
		return
	}
	style := mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]")
	bar := d.live.New(barScale, style, mpb.BarPriority(barScale), mpb.BarWidth(40), // below the tasks
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + d.summary() })))
	d.bar = bar
	go func() {
		for ticker := time.NewTicker(patience); bar.IsRunning(); <-ticker.C {
			if share, _, ok := d.estimate(); ok {
				bar.SetCurrent(min(int64(share*barScale), barScale-1))
			}
		}
	}()
}

// estimate returns the share of the plan that is done, and the time left.
func (d *Display) estimate() (float64, time.Duration, bool) {
	step := d.step.Load()
	if step == nil {
		return 0, 0, false
	}
	elapsed := d.now().Sub(step.started)
	expected, done := step.progress(elapsed)
	return d.plan.estimate(step.name, expected, elapsed, done)
}

// summary words the estimate; empty without a plan.
func (d *Display) summary() string {
	share, left, ok := d.estimate()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f%% done, %s left", 100*share, Left(left))
}

// Left words how much time is left: "less than a minute", "about 12 minutes".
func Left(d time.Duration) string {
	minutes := int(d.Round(time.Minute).Minutes())
	switch {
	case d < 45*time.Second:
		return "less than a minute"
	case minutes <= 1:
		return "about 1 minute"
	default:
		return fmt.Sprintf("about %d minutes", minutes)
	}
}

// Took words a duration: "0.4s", "12s", "3m05s".
func Took(d time.Duration) string {
	switch {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 59500*time.Millisecond:
		return fmt.Sprintf("%.0fs", d.Seconds())
	default:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
}
