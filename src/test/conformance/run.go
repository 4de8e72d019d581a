package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kubernetes-release/internal/progress"
)

const (
	logName   = "e2e.log"
	junitName = "junit_01.xml" // the name that the tests give it
	// label is that of all conformance tests.
	label = "Conformance"
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
	// Focus and Skip are regular expressions for names of conformance tests; empty ones select all, and skip none.
	Focus, Skip string
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
	url, stop, err := counter.serve(ctx)
	if err != nil {
		return Results{}, err
	}
	defer stop()
	runError := r.ginkgo(ctx, url)
	if ctx.Err() != nil {
		return Results{}, ctx.Err()
	}
	content, err := os.ReadFile(report)
	if err != nil {
		return Results{}, fmt.Errorf("the tests wrote no report, see %s: %w", filepath.Join(r.Output, logName), errors.Join(runError, err))
	}
	results, err := ParseJUnit(content)
	if err != nil {
		return Results{}, err
	}
	if runError != nil && len(results.Failed) == 0 {
		return Results{}, fmt.Errorf("ginkgo failed although no test did, see %s: %w", filepath.Join(r.Output, logName), runError)
	}
	return results, nil
}

// ginkgo runs the tests with their output in e2e.log.
func (r Run) ginkgo(ctx context.Context, progressURL string) (err error) {
	log, err := os.Create(filepath.Join(r.Output, logName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	absolute, err := filepath.Abs(r.Output)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(r.Programs, "ginkgo"),
		"--procs="+strconv.Itoa(r.Processes), "--no-color", "--timeout="+suiteTimeout, "--label-filter="+label, "--focus="+r.Focus, "--skip="+r.Skip,
		filepath.Join(r.Programs, "e2e.test"), "--",
		"--kubeconfig="+r.Kubeconfig, "--kubectl-path="+r.Kubectl, "--provider=skeleton", "--report-dir="+absolute,
		"--progress-report-url="+progressURL, "--disable-log-dump")
	command.Stdout, command.Stderr = log, log
	// A group of its own, so that an interrupt reaches ginkgo once, and nothing is left of it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = interruptDelay
	if err := command.Start(); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }()
	return command.Wait()
}

// counter counts tests by the updates that each process of the suite posts (test/e2e/reporters/progress.go of Kubernetes). Their
// counts are those of one process, so that only the total and the message are of use.
type counter struct {
	// report is told the name of each test that fails.
	report func(failed string)

	mutex                 sync.Mutex
	total, passed, failed int
}

func (c *counter) status() (text string, share float64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	done := c.passed + c.failed
	if c.total == 0 {
		return "the suite starts", 0
	}
	return fmt.Sprintf("%d of %d done, %d failed", done, c.total, c.failed), float64(done) / float64(c.total)
}

// serve takes updates at the URL until stop is called.
func (c *counter) serve(ctx context.Context) (url string, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String() + "/", func() { _ = server.Close() }, nil
}

func (c *counter) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var update struct {
		Message string `json:"msg"`
		Total   int    `json:"total"`
	}
	if err := json.NewDecoder(request.Body).Decode(&update); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name, failed := strings.CutPrefix(update.Message, "FAILED ")
	c.mutex.Lock()
	c.total = max(c.total, update.Total)
	switch {
	case failed:
		c.failed++
	case strings.HasPrefix(update.Message, "PASSED "):
		c.passed++
	}
	c.mutex.Unlock()
	if failed {
		c.report(name)
	}
}
