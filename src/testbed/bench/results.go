package bench

import (
	"context"
	"fmt"
	"io"

	"kubernetes-release/testbed/accounts/results"
)

// Results measures how many of the preflight's results about random accounts are right.
type Results struct {
	Accounts int
	Out      io.Writer
}

// Measure returns the figure. It prints each wrong result with the seed of its account.
func (v Results) Measure(ctx context.Context) (Figure, error) {
	load := busy()
	score, err := results.Try(ctx, 1, v.Accounts, func(seed uint64, why string) {
		_, _ = fmt.Fprintf(v.Out, "preflight: wrong result, seed %d: %s\n", seed, why)
	})
	if err != nil {
		return Figure{}, err
	}
	_, _ = fmt.Fprintf(v.Out, "preflight: %v\n", score)
	return Figure{
		Name:    "preflight-results",
		What:    "random accounts, most of them broken in one to four ways, for each with the right result",
		Unit:    Count,
		Aim:     PreflightResultsAim,
		Busy:    load,
		Subject: "random accounts",
		Ours:    float64(score.Accounts),
		Against: "right result",
		Base:    float64(score.Right),
		Note: fmt.Sprintf(
			"%v. Right is what the release requires, and what IAM and EC2, simulated, answer to the calls of the "+
				"cloud controller manager.",
			score,
		),
	}, nil
}
