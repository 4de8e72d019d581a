package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/release/components"
)

// Unit is the unit of a figure's values.
type Unit string

// Units of figures.
const (
	Seconds Unit = "s"
	Bytes   Unit = "bytes"
	Calls   Unit = "calls"
	Count   Unit = "count"
)

func (u Unit) format(value float64) string {
	switch u {
	case Bytes:
		return components.Size(int64(value))
	case Calls:
		return fmt.Sprintf("%.2f calls", value)
	case Count:
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.1f s", value)
}

// Figure is a ratio of two values that were measured in the same run on the same machine.
type Figure struct {
	// Name is unique among figures; What describes what is measured.
	Name string `json:"name"`
	What string `json:"what"`
	Unit Unit   `json:"unit"`
	// Ours is the value of Subject, Base that of Against.
	Subject string  `json:"subject"`
	Ours    float64 `json:"ours"`
	Against string  `json:"against"`
	Base    float64 `json:"base"`
	// Ratio is Ours divided by Base; Aim is its maximum.
	Ratio float64 `json:"ratio"`
	Aim   float64 `json:"aim"`
	Met   bool    `json:"met"`
	// Ours and Base are the medians of OursRuns and BaseRuns, which are empty for a single measurement.
	OursRuns []float64 `json:"ours_runs,omitempty"`
	BaseRuns []float64 `json:"base_runs,omitempty"`
	// Parts break Ours down.
	Parts []Part `json:"parts,omitempty"`
	// Note explains the figure.
	Note string `json:"note,omitempty"`
	// Busy is the load average of the minute before the measurement, on a machine with Processors: what else it had to
	// do.
	Busy       float64   `json:"busy"`
	Processors int       `json:"processors"`
	Measured   time.Time `json:"measured"`
}

// Part is one part of a figure.
type Part struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Value is the median of Runs.
	Runs []float64 `json:"runs,omitempty"`
}

// Finish computes the ratios, and adds the time and the number of processors.
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

// Print prints the figure for people.
func (f Figure) Print(out io.Writer) {
	result := "met"
	if !f.Met {
		result = "MISSED"
	}
	_, _ = fmt.Fprintf(out, "\n%s: %s\n", f.Name, f.What)
	width := max(len(f.Subject), len(f.Against))
	_, _ = fmt.Fprintf(out, "  %-*s  %10s%s\n", width, f.Subject, f.Unit.format(f.Ours), runs(f.Unit, f.OursRuns))
	_, _ = fmt.Fprintf(out, "  %-*s  %10s%s\n", width, f.Against, f.Unit.format(f.Base), runs(f.Unit, f.BaseRuns))
	_, _ = fmt.Fprintf(out, "  %-*s  %10.2f  (aim: at most %.2f, %s)\n", width, "ratio", f.Ratio, f.Aim, result)
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
		_, _ = fmt.Fprintf(out, "  Load average of the minute before: %.1f, on %d processors.\n", f.Busy, f.Processors)
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

// Keep writes figures to the report at path, in place of those with the same names. It keeps the others.
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
	return atomicfile.Write(path, append(text, '\n'), 0o644)
}

// busy reads the load average of the last minute.
func busy() float64 {
	var average float64
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &average)
	}
	return average
}
