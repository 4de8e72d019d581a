package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Step is one step of a plan, which may consist of parts. A step that is in no plan shows its parts, but no share of
// the whole. It may be used by several goroutines at once.
type Step struct {
	display *Display
	name    string
	started time.Time
	// owned is true if the display was opened for this step alone.
	owned bool

	mutex sync.Mutex
	// expected is how long the step takes.
	expected planned
	// weight is the sum of the parts' weights, and finished that of the finished parts; 0 if the parts have no weights.
	weight, finished float64
	total, done      int
	active           map[*Part]bool
	printed          time.Time
}

// Part is a part of a step that is under way.
type Part struct {
	step    *Step
	name    string
	started time.Time
	weight  float64
	remove  func()

	mutex  sync.Mutex
	status func() (text string, share float64)
}

// NewStep begins a step on out, with a display of its own that Finish closes.
func NewStep(out io.Writer, name string) *Step {
	s := Open(out).Begin(name)
	s.owned = true
	return s
}

// Begin begins a step of the display's plan. The one before it is over.
func (d *Display) Begin(name string) *Step {
	expected, _ := d.plan.find(name)
	s := &Step{display: d, name: name, started: d.now(), expected: expected, active: map[*Part]bool{}, printed: d.now()}
	d.step.Store(s)
	return s
}

// Parts says how many parts the step has, and how many of them need no work.
func (s *Step) Parts(total, done int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.total, s.done = total, done
}

// Expect sets the seconds that the parts which need work take together, the sum of their weights. measured is true if
// that is how long they took before on this machine; otherwise what the parts count tells how far they are.
func (s *Step) Expect(seconds float64, measured bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.weight, s.finished = seconds, 0
	s.expected.seconds, s.expected.measured = seconds, measured
}

// Part begins a part. Its weight is the seconds that it is expected to take; 0 where the step expects nothing of its
// parts.
func (s *Step) Part(name string, weight float64) *Part {
	p := &Part{step: s, name: name, started: s.display.now(), weight: weight}
	s.mutex.Lock()
	s.active[p] = true
	s.mutex.Unlock()
	p.remove = s.display.Show(p.line)
	return p
}

// Skip counts a part that needed no work.
func (s *Step) Skip() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.done++
}

// Record writes down how long the step took, for the estimates of the next run.
func (s *Step) Record() { s.display.plan.record(s.name, s.display.now().Sub(s.started)) }

// Finish records the step, closes it, and prints one line that says how long it took.
func (s *Step) Finish(format string, arguments ...any) {
	took := s.display.now().Sub(s.started)
	s.Record()
	s.Close()
	_, _ = fmt.Fprintf(s.display, "%s: %s (%s)\n", s.name, fmt.Sprintf(format, arguments...), Took(took))
}

// Close ends the step, finished or not, and removes what is still shown of it.
func (s *Step) Close() {
	s.mutex.Lock()
	active := s.active
	s.active = map[*Part]bool{}
	s.mutex.Unlock()
	for p := range active {
		p.remove()
	}
	if s.owned {
		s.display.Close()
	}
}

// label names the step and counts its parts: "components 3/9".
func (s *Step) label() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.total > 1 {
		return fmt.Sprintf("%s %d/%d", s.name, s.done, s.total)
	}
	return s.name
}

// progress returns what is expected of the step, and the share of it that is done after elapsed.
func (s *Step) progress(elapsed time.Duration) (planned, float64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.weight > 0 {
		done := s.finished
		for p := range s.active {
			done += p.weight * p.share(s.expected.measured)
		}
		return s.expected, unfinished(done / s.weight)
	}
	for p := range s.active {
		// The only part of a step is the step.
		if _, share := p.now(); share >= 0 && s.total == 0 && !s.expected.measured {
			return s.expected, unfinished(share)
		}
	}
	// A step that takes longer than expected counts as mostly done.
	expected := s.expected
	expected.seconds = max(expected.seconds, elapsed.Seconds()/mostly, 1)
	return expected, elapsed.Seconds() / expected.seconds
}

// mostly is the share of a step that counts as done once it has taken longer than expected.
const mostly = 0.8

// unfinished keeps an estimate below 1: what is not finished is not shown as finished.
func unfinished(share float64) float64 { return min(share, 0.97) }

// share returns the estimated share of the part that is done: by the time that it took before, or else by what it
// reports.
func (p *Part) share(measured bool) float64 {
	if _, share := p.now(); share >= 0 && !measured {
		return unfinished(share)
	}
	return unfinished(p.step.display.now().Sub(p.started).Seconds() / max(p.weight, 0.1))
}

// unknown is the share of a part that does not report one.
const unknown = -1

func (p *Part) now() (text string, share float64) {
	p.mutex.Lock()
	status := p.status
	p.mutex.Unlock()
	if status == nil {
		return "", unknown
	}
	return status()
}

// line is the part as it is shown while it is under way.
func (p *Part) line() string {
	text, _ := p.now()
	return p.step.label() + "  " + join(p.name, text) + ", " + Took(p.step.display.now().Sub(p.started))
}

func join(name, text string) string {
	if text == "" {
		return name
	}
	return name + ": " + text
}

// Say says what the part is doing now.
func (p *Part) Say(format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	p.Watch(func() (string, float64) { return text, unknown })
}

// Watch has status asked, whenever the part is shown, what it is doing now and which share of it is done, 0 to 1.
func (p *Part) Watch(status func() (text string, share float64)) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.status = status
}

// Note prints a line about the part that stays.
func (p *Part) Note(format string, arguments ...any) {
	p.step.print(join(p.name, fmt.Sprintf(format, arguments...)))
}

// Done ends the part and counts it. It prints a line that stays only if nothing was printed about the step for a while:
// parts that take a second are summarized when the step is finished.
func (p *Part) Done(format string, arguments ...any) {
	s := p.step
	p.remove()
	s.mutex.Lock()
	delete(s.active, p)
	s.finished += p.weight
	s.done++
	quiet := s.display.now().Sub(s.printed) < enough
	s.mutex.Unlock()
	if !quiet {
		s.print(join(p.name, fmt.Sprintf(format, arguments...)))
	}
}

// enough is how long a step is silent about parts that are finished.
const enough = 10 * time.Second

func (s *Step) print(text string) {
	line := s.label() + "  " + text
	s.mutex.Lock()
	s.printed = s.display.now()
	s.mutex.Unlock()
	_, _ = fmt.Fprintln(s.display, line)
}
