package vcenter

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/cloud/vsphere/checks"
	"kubernetes-release/internal/poll"
	"kubernetes-release/preflight"
)

// Runner runs the checks that ask vCenter. The zero value is ready for use; tests replace its parts.
type Runner struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Pause spaces repeated rounds; nil: one to eight seconds.
	Pause *preflight.Backoff
}

// Run asks once, and repeats what may still change by itself until no check fails, one fails that waiting cannot fix,
// or the retry window ends.
func (r Runner) Run(ctx context.Context, question vsphere.Question, log *slog.Logger) *cloud.Outcome {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	pause := r.Pause
	if pause == nil {
		pause = &preflight.Backoff{First: time.Second, Limit: 8 * time.Second}
	}
	secrets := &preflight.Secrets{}
	log = secrets.Logger(log)
	facts := &checks.Facts{Request: question.Config, Settings: question.Settings, Machine: question.Machine}
	if question.MachineError != "" {
		facts.MachineErr = errors.New(question.MachineError)
	}
	ReadConfig(question.File, facts)
	session := New(facts, log, secrets)
	out := &cloud.Outcome{}
	for deadline := now().Add(time.Duration(question.Config.RetryWindow)); ; {
		session.Gather(ctx, now)
		results, last := evaluate(facts)
		if ctx.Err() == nil || out.Results == nil { // a round that was interrupted says less than the one before it
			out.Results = results
		}
		left := deadline.Sub(now())
		if last == "" || left <= 0 {
			break
		}
		next := min(pause.Next(), left)
		log.Info(
			"waiting",
			"last",
			last,
			"next_attempt_in",
			next.Round(time.Millisecond),
			"window_left",
			left.Round(time.Second),
		)
		if poll.Sleep(ctx, next) != nil {
			break
		}
	}
	session.Close(ctx)
	out.Calls, out.Secrets = session.Calls(), secrets.List()
	return out
}

// evaluate runs the checks. Last is the first failure that may disappear by itself, if no other check fails.
func evaluate(facts *checks.Facts) (results []preflight.Result, last string) {
	final := false
	for _, c := range checks.All() {
		if c.Local || !c.AppliesTo(facts.Request.Role) {
			continue
		}
		outcome := c.Evaluate(facts)
		result, ok := facts.Request.Grade(c.Check, outcome)
		if !ok {
			continue
		}
		results = append(results, result)
		enforced := facts.Request // mode warn waits for the same changes
		enforced.Mode = preflight.ModeEnforce
		if graded, _ := enforced.Grade(c.Check, outcome); graded.Status != preflight.Failed {
			continue
		}
		for _, finding := range outcome.Findings {
			if !finding.Eventual {
				final = true
			} else if last == "" {
				last = c.ID + ": " + finding.Found
			}
		}
	}
	if final {
		last = ""
	}
	return results, last
}
