package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"kubernetes-release/release/progress"
)

const (
	logName   = "e2e.log"
	junitName = "junit_01.xml" // the name that the tests give it
	// ConformanceLabel is that of all conformance tests.
	ConformanceLabel = "Conformance"
	// suiteTimeout ends a run that hangs. It is ample: tests have deadlines of their own.
	suiteTimeout = "6h"
	// interruptDelay is how long tests may take to remove what they created when the run is interrupted.
	interruptDelay = time.Minute
)

// Run is a run of tests against a cluster.
type Run struct {
	// Programs is a folder with ginkgo and e2e.test.
	Programs            string
	Kubeconfig, Kubectl string
	// Labels is an expression of ginkgo for labels of tests, such as ConformanceLabel; an empty one selects all.
	Labels string
	// Focus and Skip are regular expressions for names of these tests; empty ones select all, and skip none.
	Focus, Skip string
	// Driver is a file that describes a CSI driver for the tests of external storage (test/e2e/storage/external of
	// k8s.io/kubernetes), and is beside the files to which it refers; empty for none.
	Driver string
	// Processes is how many tests run at the same time. Those marked [Serial] run alone, after the others.
	Processes int
	// Output is the folder for e2e.log and junit_01.xml.
	Output string
}

// Do runs the tests and shows how far they are. That tests fail is not an error.
func (r Run) Do(ctx context.Context, step *progress.Step) (Results, error) {
	if err := os.MkdirAll(r.Output, 0o755); err != nil {
		return Results{}, err
	}
	report := filepath.Join(r.Output, junitName)
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Results{}, err // that of an earlier run must not count
	}
	part := step.Part("tests", 0)
	counter := &counter{report: func(failed string) { part.Note("failed: %s", failed) }}
	part.Watch(counter.status)
	runError := r.ginkgo(ctx, counter)
	if ctx.Err() != nil {
		return Results{}, ctx.Err()
	}
	content, err := os.ReadFile(report)
	if err != nil {
		return Results{}, fmt.Errorf(
			"the tests wrote no report, see %s: %w", filepath.Join(r.Output, logName), errors.Join(runError, err),
		)
	}
	results, err := ParseJUnit(content)
	if err != nil {
		return Results{}, err
	}
	if runError != nil && len(results.Failed) == 0 {
		return Results{}, fmt.Errorf(
			"ginkgo failed although no test did, see %s: %w", filepath.Join(r.Output, logName), runError,
		)
	}
	return results, nil
}

// ginkgo runs the tests, with their output in e2e.log and to the counter.
func (r Run) ginkgo(ctx context.Context, counter *counter) (err error) {
	log, err := os.Create(filepath.Join(r.Output, logName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	absolute, err := filepath.Abs(r.Output)
	if err != nil {
		return err
	}
	command := exec.CommandContext(
		ctx, filepath.Join(r.Programs, "ginkgo"), "--procs="+strconv.Itoa(r.Processes), "--no-color",
		"--timeout="+suiteTimeout, "--label-filter="+r.Labels, "--focus="+r.Focus, "--skip="+r.Skip,
		filepath.Join(r.Programs, "e2e.test"), "--", "--kubeconfig="+r.Kubeconfig, "--kubectl-path="+r.Kubectl,
		"--provider=skeleton", "--report-dir="+absolute, "--disable-log-dump",
	)
	if r.Driver != "" {
		command.Args = append(command.Args, "--storage.testdriver="+r.Driver, "--repo-root="+filepath.Dir(r.Driver))
	}
	// A group of its own, so that an interrupt reaches ginkgo once, and nothing is left of it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = interruptDelay
	// A pipe of our own: Wait would go on until the last process that has it is gone, and that is ended only then.
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = writer, writer
	err = errors.Join(command.Start(), writer.Close())
	if err != nil {
		return errors.Join(err, reader.Close())
	}
	copied := make(chan error)
	go func() {
		_, err := io.Copy(io.MultiWriter(log, counter), reader)
		copied <- err
	}()
	err = command.Wait()
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	return errors.Join(err, <-copied, reader.Close())
}
