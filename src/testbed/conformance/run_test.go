package conformance

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/release/progress"
)

// fakeGinkgo prints what ginkgo does.
const fakeGinkgo = `#!/bin/bash
set -eu
for argument; do
  case $argument in
    --report-dir=*) reports=${argument#*=} ;;
  esac
done
echo "$@"
cat <<'END'
` + ginkgoOutput + `
END
`

const ginkgoOutput = `Random Seed: 1795325684 - will randomize all specs

Will run 5 of 3206 specs
Running in parallel across 4 processes
SSS•SSPSS
------------------------------
• [FAILED] [32.941 seconds]
[sig-node] Pods [It] e [Conformance] [sig-node, Conformance]
k8s.io/kubernetes/test/e2e/common/node/pods.go:367

  Timeline >>
  STEP: a step • that is no result
  << Timeline
------------------------------
S
------------------------------
• [SLOW TEST] [92.941 seconds]
[sig-node] Pods [It] d [Conformance]
------------------------------
SSSS•S`

func newRun(t *testing.T, ginkgo string) Run {
	t.Helper()
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "ginkgo"), []byte(ginkgo), 0o755); err != nil {
		t.Fatal(err)
	}
	return Run{
		Programs:   programs,
		Kubeconfig: "/admin.conf",
		Kubectl:    "/kubectl",
		Processes:  3,
		Labels:     ConformanceLabel,
		Focus:      "sig-node|DNS",
		Skip:       "slow ones",
		Driver:     "/driver.yml",
		Output:     filepath.Join(t.TempDir(), "results"),
	}
}

func TestRun(t *testing.T) {
	run := newRun(t, fakeGinkgo+"cat >$reports/junit_01.xml <<'END'\n"+junit+"\nEND\nexit 1\n")
	var out strings.Builder
	results, err := run.Do(t.Context(), progress.NewStep(&out, "conformance"))
	if err != nil {
		t.Fatal(err)
	}
	if len(results.Passed) != 2 || len(results.Failed) != 3 {
		t.Errorf("results %+v", results)
	}
	if strings.Count(out.String(), "failed: [sig-node] Pods e [Conformance]\n") != 1 {
		t.Errorf("printed %q, want the test that failed, once", out.String())
	}
	log, err := os.ReadFile(filepath.Join(run.Output, logName))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--procs=3 ", "--label-filter=Conformance ", "--focus=sig-node|DNS ", "--skip=slow ones ",
		"--kubeconfig=/admin.conf ", "--storage.testdriver=/driver.yml",
	} {
		if !strings.Contains(string(log), want) {
			t.Errorf("ginkgo got %s, want %s", log, want)
		}
	}
}

func TestRunWithoutReport(t *testing.T) {
	run := newRun(t, "#!/bin/sh\necho no such option\nexit 2\n")
	if err := os.MkdirAll(run.Output, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run.Output, junitName), []byte(junit), 0o600); err != nil {
		t.Fatal(err) // of an earlier run
	}
	_, err := run.Do(t.Context(), progress.NewStep(io.Discard, "conformance"))
	if err == nil || !strings.Contains(err.Error(), "no report") || !strings.Contains(err.Error(), logName) {
		t.Errorf("got %v, want an error that names the log", err)
	}
}

// TestGinkgoFailsWithoutATest: such a run, which for example an interrupt ended, is no success.
func TestGinkgoFailsWithoutATest(t *testing.T) {
	passed := strings.NewReplacer(`"failed"`, `"passed"`, `"timedout"`, `"passed"`).Replace(junit)
	run := newRun(t, fakeGinkgo+"cat >$reports/junit_01.xml <<'END'\n"+passed+"\nEND\nexit 197\n")
	if results, err := run.Do(t.Context(), progress.NewStep(io.Discard, "conformance")); err == nil ||
		!strings.Contains(err.Error(), "197") {
		t.Errorf("got %+v, %v", results, err)
	}
}

// TestInterrupt: ginkgo is told to end, so that tests remove what they created, and nothing that it started is left.
func TestInterrupt(t *testing.T) {
	run := newRun(
		t,
		"#!/bin/bash\ntrap 'echo interrupted; exit 1' INT\nsleep 1000 &\necho $! >"+filepath.Join(
			t.TempDir(), "pid",
		)+"\necho started\nwait\n",
	)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := run.Do(ctx, progress.NewStep(io.Discard, "conformance"))
		ended <- err
	}()
	log := filepath.Join(run.Output, logName)
	contains := func(want string) func() error {
		return func() error {
			content, err := os.ReadFile(log)
			if err == nil && !strings.Contains(string(content), want) {
				err = errors.New("it contains " + string(content))
			}
			return err
		}
	}
	eventually.Succeeds(t, 30*time.Second, "ginkgo starts", contains("started"))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := contains("interrupted")(); err != nil {
		t.Error(err)
	}
}

func TestStatus(t *testing.T) {
	for name, chunk := range map[string]int{"at once": len(ginkgoOutput), "byte by byte": 1} {
		t.Run(name, func(t *testing.T) {
			var failed []string
			c := &counter{report: func(name string) { failed = append(failed, name) }}
			if text, share := c.status(); text != "the suite starts" || share != 0 {
				t.Errorf("before: %s, %v", text, share)
			}
			for part := range slices.Chunk([]byte(ginkgoOutput), chunk) {
				if _, err := c.Write(part); err != nil {
					t.Fatal(err)
				}
			}
			if text, share := c.status(); text != "4 of 5 done, 1 failed" || share != 0.8 {
				t.Errorf("%s, %v", text, share)
			}
			if want := []string{"[sig-node] Pods e [Conformance]"}; !slices.Equal(failed, want) {
				t.Errorf("failed %q, want %q", failed, want)
			}
		})
	}
}
