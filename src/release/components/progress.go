package components

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress prints one line for each step: what, how far, how long it took. It is safe for use by several goroutines.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	step  string
	total int
	done  int
	said  bool
}

// NewProgress prints to out the progress of a step that has so many parts.
func NewProgress(out io.Writer, step string, total int) *Progress {
	return &Progress{out: out, step: step, total: total}
}

// Say prints a line about a part that is still under way.
func (p *Progress) Say(part, format string, arguments ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(part, fmt.Sprintf(format, arguments...))
}

// Done counts a part as finished and prints so.
func (p *Progress) Done(part, format string, arguments ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.print(part, fmt.Sprintf(format, arguments...))
}

// Skip counts a part that needed nothing, without a line.
func (p *Progress) Skip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

// Quiet says whether nothing was printed so far.
func (p *Progress) Quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.said
}

func (p *Progress) print(part, text string) {
	p.said = true
	_, _ = fmt.Fprintf(p.out, "%s %d/%d  %s: %s\n", p.step, p.done, p.total, part, text)
}

// Took gives a duration as progress lines show it: "0.4s", "12s", "3m05s".
func Took(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	default:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
}

// Size gives a number of bytes as megabytes.
func Size(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
