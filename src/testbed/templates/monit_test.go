package templates

import (
	"regexp"
	"strconv"
	"testing"
)

var startTimeout = regexp.MustCompile(
	`check process (\S+)\n(?:  .*\n)*?  start program "[^"]*" with timeout (\d+) seconds`,
)

// TestStartTimeouts: the stemcell's monit 5.2.5 starts one process after the other, and waits each timeout out if the
// process does not run. Until it has tried all of them, it refuses the agent's unmonitor, so that the next deploy
// stands at "executing drain".
func TestStartTimeouts(t *testing.T) {
	const each, longest = 20, 60
	found := 0
	for _, job := range jobNames(t) {
		for _, m := range startTimeout.FindAllStringSubmatch(
			string(mustRender(t, job, inputFor(t, job))["monit"]), -1,
		) {
			found++
			limit := each
			if m[1] == "containerd" {
				limit = longest // it loads images before it is ready
			}
			if seconds, err := strconv.Atoi(m[2]); err != nil || seconds > limit {
				t.Errorf("monit waits %s s for %s of job %s, want at most %d", m[2], m[1], job, limit)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d processes found", found)
	}
}
