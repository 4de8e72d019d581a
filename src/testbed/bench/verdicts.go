package bench

import (
	"context"
	"fmt"
	"io"

	"kubernetes-release/testbed/accounts/verdicts"
)

// Verdicts measures how many of the preflight's verdicts about random accounts are right.
type Verdicts struct {
	Accounts int // defaults to 10,000
	Out      io.Writer
}

// Measure returns the figure. It prints each wrong verdict with the seed of its account.
func (v Verdicts) Measure(ctx context.Context) (Figure, error) {
	if v.Accounts == 0 {
		v.Accounts = randomAccounts
	}
	load := busy()
	score, err := verdicts.Try(ctx, 1, v.Accounts, func(seed uint64, why string) {
		_, _ = fmt.Fprintf(v.Out, "preflight: wrong verdict, seed %d: %s\n", seed, why)
	})
	if err != nil {
		return Figure{}, err
	}
	_, _ = fmt.Fprintf(v.Out, "preflight: %v\n", score)
	return Figure{
		Name:    "preflight-verdicts",
		What:    "random accounts, most of them broken in one to four ways, for each that the preflight judges right",
		Unit:    Count,
		Aim:     PreflightVerdictsAim,
		Busy:    load,
		Subject: "random accounts",
		Ours:    float64(score.Accounts),
		Against: "judged right",
		Base:    float64(score.Right),
		Note: fmt.Sprintf(
			"%v. Right is what the release requires, and what IAM and EC2, simulated, answer to the calls of the "+
				"cloud controller manager.",
			score,
		),
	}, nil
}
