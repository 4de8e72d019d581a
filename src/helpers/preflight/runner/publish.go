package runner

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"kubernetes-release/preflight"
)

// Output is where a report is published. Files without a path are not written.
type Output struct {
	// JSON writes the report to Stdout as JSON, not as text.
	JSON bool
	// Report is the path of the file for the report as JSON, Metrics that of the file for its metrics.
	Report, Metrics string
	// Stdout receives the report, Stderr the findings in full; the runner logs its progress to Stderr too.
	Stdout, Stderr io.Writer
}

// Publish writes the report: in the requested format to standard output, and the findings in full to the end of
// standard error.
func (o Output) Publish(report *preflight.Report) error {
	if o.Report != "" {
		if err := report.WriteFile(o.Report); err != nil {
			return err
		}
	}
	if o.Metrics != "" {
		if err := report.WriteMetrics(o.Metrics); err != nil {
			return err
		}
	}
	if o.JSON {
		if err := report.WriteJSON(o.Stdout); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	} else {
		preflight.Printer{Color: hasColor(o.Stdout), Short: isTerminal(o.Stdout)}.Table(o.Stdout, report)
	}
	preflight.Printer{Color: hasColor(o.Stderr)}.Findings(o.Stderr, report)
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

func hasColor(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }
