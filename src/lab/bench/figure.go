package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"kubernetes-release/release/components"
)

// Unit says what a figure's values count.
type Unit string

// Units of figures.
const (
	Seconds Unit = "s"
	Bytes   Unit = "bytes"
	Calls   Unit = "calls"
)

// format writes a value for people.
func (u Unit) format(value float64) string {
	switch u {
	case Bytes:
		return components.Size(int64(value))
	case Calls:
		return fmt.Sprintf("%.2f calls", value)
	}
	return fmt.Sprintf("%.1f s", value)
}

// Figure is one ratio, both of whose values were measured in the same run on the same machine.
type Figure struct {
	// Name is unique among figures; What says in words what the ratio is of.
	Name string `json:"name"`
	What string `json:"what"`
	Unit Unit   `json:"unit"`
	// Ours is the value of what Subject names, Base that of what Against names.
	Subject string  `json:"subject"`
	Ours    float64 `json:"ours"`
	Against string  `json:"against"`
	Base    float64 `json:"base"`
	// Ratio is Ours to Base; Aim is what it should at most be.
	Ratio float64 `json:"ratio"`
	Aim   float64 `json:"aim"`
	Met   bool    `json:"met"`
	// OursRuns and BaseRuns are the repetitions of which Ours and Base are the medians; empty where it was measured once.
	OursRuns []float64 `json:"ours_runs,omitempty"`
	BaseRuns []float64 `json:"base_runs,omitempty"`
	// Parts say what Ours is made of.
	Parts []Part `json:"parts,omitempty"`
	// Note is what has to be known to judge the figure.
	Note string `json:"note,omitempty"`
	// Busy is how many processes wanted a processor on average in the minute before it was measured, of which Processors
	// could have one: what else the machine had to do.
	Busy       float64   `json:"busy"`
	Processors int       `json:"processors"`
	Measured   time.Time `json:"measured"`
}

// Part is one part of a figure.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Runs are the repetitions of which Value is the median.
	Runs []float64 `json:"runs,omitempty"`
}

// Finish computes the ratios, and adds when they were measured and how busy the machine was.
func Finish(figures []Figure) []Figure {
	var finished []Figure
	for _, f := range figures {
		if f.Base > 0 {
			f.Ratio = f.Ours / f.Base
			f.Met = f.Ratio <= f.Aim
		}
		f.Measured, f.Processors = time.Now().UTC().Truncate(time.Second), runtime.NumCPU()
		finished = append(finished, f)
	}
	return finished
}

// Print writes the figure for people.
func (f Figure) Print(out io.Writer) {
	verdict := "met"
	if !f.Met {
		verdict = "MISSED"
	}
	_, _ = fmt.Fprintf(out, "\n%s: %s\n", f.Name, f.What)
	width := max(len(f.Subject), len(f.Against))
	_, _ = fmt.Fprintf(out, "  %-*s  %10s%s\n", width, f.Subject, f.Unit.format(f.Ours), runs(f.Unit, f.OursRuns))
	_, _ = fmt.Fprintf(out, "  %-*s  %10s%s\n", width, f.Against, f.Unit.format(f.Base), runs(f.Unit, f.BaseRuns))
	_, _ = fmt.Fprintf(out, "  %-*s  %10.2f  (aim: at most %.2f, %s)\n", width, "ratio", f.Ratio, f.Aim, verdict)
	if len(f.Parts) > 0 {
		_, _ = fmt.Fprintf(out, "  of %s:\n", f.Subject)
		partWidth := 0
		for _, p := range f.Parts {
			partWidth = max(partWidth, len(p.Name))
		}
		for _, p := range f.Parts {
			_, _ = fmt.Fprintf(out, "    %-*s  %10s\n", partWidth, p.Name, f.Unit.format(p.Value))
		}
	}
	if f.Note != "" {
		_, _ = fmt.Fprintf(out, "  %s\n", f.Note)
	}
	if f.Busy > 0 {
		_, _ = fmt.Fprintf(out, "  The minute before, %.1f processes wanted one of the machine's %d processors.\n", f.Busy, f.Processors)
	}
}

func runs(unit Unit, values []float64) string {
	if len(values) < 2 {
		return ""
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = unit.format(v)
	}
	return "  median of " + strings.Join(texts, ", ")
}

// median is the middle value, or the mean of the two middle ones; 0 of none.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	default:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
}

// Report is the file that keeps figures.
type Report struct {
	Figures []Figure `json:"figures"`
}

// Keep puts figures into the report in a file, in place of those with the same names; others in it stay.
func Keep(path string, figures []Figure) error {
	var report Report
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, &report); err != nil {
			return fmt.Errorf("%s is not a report of this program: %w; remove it", path, err)
		}
	}
	for _, f := range figures {
		same := func(old Figure) bool { return old.Name == f.Name }
		if i := slices.IndexFunc(report.Figures, same); i >= 0 {
			report.Figures[i] = f
		} else {
			report.Figures = append(report.Figures, f)
		}
	}
	if text, err = json.MarshalIndent(report, "", "  "); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// busy reads the average number of processes that wanted a processor in the last minute.
func busy() float64 {
	var average float64
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &average)
	}
	return average
}
