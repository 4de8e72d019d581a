package bench

import (
	"strings"
	"testing"
	"time"

	"kubernetes-release/preflight"
)

func TestWorkerConfig(t *testing.T) {
	config, err := workerConfig("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if config.Mode != preflight.ModeEnforce || time.Duration(config.RetryWindow) != preflight.DefaultRetryWindow ||
		len(config.Checks) != 0 ||
		config.Role != preflight.Worker {
		t.Errorf("the job's defaults give %+v", config)
	}
}

// TestManyWorkers has more workers than the bucket has tokens.
func TestManyWorkers(t *testing.T) {
	config, err := workerConfig("../../..")
	if err != nil {
		t.Fatal(err)
	}
	c := fleet{workers: 12, burst: 4, rate: 20, config: config, timeout: time.Minute, span: 50 * time.Millisecond}
	if err := c.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.throttled == 0 || c.calls != 2*c.workers+c.throttled || c.attempts < 2 || c.slowest < c.took/2 {
		t.Errorf("%+v", c)
	}
	if line := c.line(); !strings.HasPrefix(line, "12 workers passed: ") ||
		!strings.Contains(line, "of the bucket's bound of 0.4 s") {
		t.Errorf("%s", line)
	}
}

func TestWorkersThatDoNotPassAreAnError(t *testing.T) {
	config, err := workerConfig("../../..")
	if err != nil {
		t.Fatal(err)
	}
	config.Cluster, config.RetryWindow = "other", 0
	c := fleet{workers: 2, burst: 100, rate: 20, config: config, timeout: time.Minute}
	if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), "worker 0 did not pass") ||
		!strings.Contains(err.Error(), "FAIL instance-cluster-tag") {
		t.Errorf("%v", err)
	}
}

func TestResultsFigure(t *testing.T) {
	var out strings.Builder
	figure, err := Results{Accounts: 8, Out: &out}.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	figure = Finish([]Figure{figure})[0]
	if !figure.Met || figure.Ours != 8 || figure.Base != 8 ||
		!strings.Contains(out.String(), "8 of 8 random accounts with the right result") {
		t.Errorf("%+v\n%s", figure, out.String())
	}
}
