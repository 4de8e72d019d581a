package results

import (
	"flag"
	"strings"
	"testing"

	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
)

var (
	firstSeed = flag.Uint64("first", 1, "seed of the first random account")
	count     = flag.Int("accounts", 0, "random accounts; 0: 200, or 40 in short mode")
)

// TestResults: no result about a random account is wrong.
func TestResults(t *testing.T) {
	tried := *count
	if tried == 0 {
		tried = 200
		if testing.Short() {
			tried = 40
		}
	}
	score, err := Try(t.Context(), *firstSeed, tried, func(seed uint64, why string) {
		t.Errorf("to repeat: go test ./accounts/results -run TestResults -first %d -accounts 1\n%s", seed, why)
	})
	if err != nil {
		t.Fatal(err)
	}
	if score.Accounts > 10 && (score.Failed < score.Accounts/10 || score.Failed > score.Accounts*19/20) {
		t.Errorf("the accounts prove little: %v", score)
	}
	t.Log(score)
}

// TestWrongResultsAreFound: a result that does not fit the account is wrong.
func TestWrongResultsAreFound(t *testing.T) {
	report := func(result preflight.RunResult, warned ...string) *preflight.Report {
		var findings []preflight.Finding
		for _, action := range warned {
			findings = append(findings, preflight.Finding{Resource: action})
		}
		return &preflight.Report{Result: result, Results: []preflight.Result{{Findings: findings}}}
	}
	const passed, failed = preflight.RunPassed, preflight.RunFailed
	denied := accounts.Problem{Action: "ec2:CreateRoute", Text: "denied"}
	for name, test := range map[string]struct {
		report   *preflight.Report
		problems []accounts.Problem
		want     string
	}{
		"right pass":            {report(passed), nil, ""},
		"right failure":         {report(failed), []accounts.Problem{denied}, ""},
		"failure for nothing":   {report(failed), nil, "nothing is wrong"},
		"pass of a problem":     {report(passed), []accounts.Problem{{Text: "no tag"}}, "no tag"},
		"pass of a denied call": {report(passed), []accounts.Problem{denied}, "ec2:CreateRoute"},
		"pass with a warning":   {report(passed, "ec2:A, ec2:CreateRoute"), []accounts.Problem{denied}, ""},
		"pass with an unknown permission": {
			&preflight.Report{Result: passed, Results: []preflight.Result{{Findings: []preflight.Finding{
				{Resource: "role control", Why: "It is unknown whether the role may ec2:A, ec2:CreateRoute."},
			}}}},
			[]accounts.Problem{denied}, "",
		},
		"warning of another one": {report(passed, "ec2:DeleteRoute"), []accounts.Problem{denied}, "ec2:CreateRoute"},
	} {
		if got := Wrong(test.report, test.problems); got != "" && test.want == "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestBreaksCombine: each break is possible after each other one. Seed 5230 takes the public subnets' table away first.
func TestBreaksCombine(t *testing.T) {
	for _, seed := range []uint64{5230, 5231, 5233} {
		if _, err := Account(seed); err != nil {
			t.Errorf("%d: %v", seed, err)
		}
	}
}

// TestWrongResultsOfBefore repeats accounts that were answered wrongly once.
func TestWrongResultsOfBefore(t *testing.T) {
	check := func(account func(uint64) (*accounts.Account, error), seeds ...uint64) {
		for _, seed := range seeds {
			_, err := try(
				t.Context(), account, seed, 1, func(_ uint64, why string) { t.Errorf("seed %d: %s", seed, why) },
			)
			if err != nil {
				t.Error(err)
			}
		}
	}
	check(brokenOnly, 8163)                               // a worker with one group may not list groups
	check(brokenOnly, 2716, 3175, 4086, 4611, 4652, 5849) // pod routes, and a cluster tag with another value
	check(Account, 1997, 3655, 5227, 7355, 9411)          // a worker may list tags, but no subnets or groups
	check(Account, 4033, 4685, 6767, 7459, 8325, 9569)    // the same in the errand, or where rules of groups count
	check(Account, 6867)                                  // a warning names what IAM did not answer for
}
