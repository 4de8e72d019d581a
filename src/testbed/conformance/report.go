package conformance

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubernetes-release/release/progress"
)

// Report runs the tests, prints their summary and, if all that conformance requires have passed, writes an archive for
// a submission. module is the folder of the module k8s.io/kubernetes, release the version of the BOSH release. Tests
// that failed are an error.
func (r Run) Report(ctx context.Context, out io.Writer, module, release string) error {
	list, err := os.ReadFile(filepath.Join(module, "test/conformance/testdata/conformance.yaml"))
	if err != nil {
		return err
	}
	required, err := ParseRequired(list)
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, filepath.Join(r.Programs, "e2e.test"), "--version").Output()
	if err != nil {
		return fmt.Errorf("version of e2e.test: %w", err)
	}
	step := progress.NewStep(out, "conformance")
	defer step.Close()
	results, err := r.Do(ctx, step)
	if err != nil {
		return err
	}
	missing := results.Missing(required)
	if len(missing) == 0 {
		step.Record() // only a whole run says how long the next takes
	}
	step.Close()
	fmt.Fprint(out, results.Summary(required))
	if len(results.Failed) > 0 {
		return fmt.Errorf("%d tests failed; %s has their output", len(results.Failed), r.Output)
	}
	if len(missing) > 0 {
		fmt.Fprintln(out, "Not all conformance tests were selected: there is no archive for a submission")
		return nil
	}
	archive, err := Submission{Kubernetes: strings.TrimSpace(string(version)), Release: release}.Write(r.Output)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "Archive for a submission to the CNCF:", archive)
	return nil
}
