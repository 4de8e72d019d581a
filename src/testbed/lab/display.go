package lab

import (
	"kubernetes-release/release/progress"
	"kubernetes-release/testbed/lab/director"
)

// StartDisplay shows on Out, and on Err where that is a terminal, what a command is doing. stop must be called before
// anything else writes to the terminal.
func (l *Lab) StartDisplay() (stop func()) {
	out, stderr := l.Out, l.Err
	l.display = progress.Open(out)
	shown := &director.Progress{
		Out:     l.display,
		Log:     l.Log,
		Color:   l.display.Terminal(),
		Display: l.display,
		Verbose: l.Verbose,
	}
	l.shown, l.Out = shown, l.display
	if progress.IsTerminal(stderr) {
		l.Err = l.display
	}
	return func() {
		shown.Flush()
		l.display.Close()
		l.Out, l.Err, l.display = out, stderr, nil
	}
}

// Progress gives what tasks are shown on.
func (l *Lab) Progress() *director.Progress {
	if l.shown == nil {
		l.shown = &director.Progress{Out: l.Out, Log: l.Log}
	}
	return l.shown
}

// Step begins a step of the plan that the display shows. done records how long it took.
func (l *Lab) Step(name string) (done func()) {
	if l.display == nil {
		return func() {}
	}
	return l.display.Begin(name).Record
}
