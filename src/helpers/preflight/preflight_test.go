package preflight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGrade(t *testing.T) {
	binding, advisory := Finding{Resource: "x"}, Finding{Resource: "x", Advisory: true}
	tests := map[string]struct {
		severity Severity
		override Severity
		mode     Mode
		outcome  Outcome
		want     Status // "" if the check is off
	}{
		"nothing found":              {Fail, "", ModeEnforce, Outcome{Note: "seen"}, Passed},
		"skipped":                    {Fail, "", ModeEnforce, Outcome{Skip: "why"}, Skipped},
		"found":                      {Fail, "", ModeEnforce, Outcome{Findings: []Finding{binding}}, Failed},
		"found, a warning":           {Warn, "", ModeEnforce, Outcome{Findings: []Finding{binding}}, Warned},
		"advisory":                   {Fail, "", ModeEnforce, Outcome{Findings: []Finding{advisory}}, Warned},
		"one of two is binding":      {Fail, "", ModeEnforce, Outcome{Findings: []Finding{advisory, binding}}, Failed},
		"advisory, overridden":       {Fail, Fail, ModeEnforce, Outcome{Findings: []Finding{advisory}}, Failed},
		"warning overridden by fail": {Warn, Fail, ModeEnforce, Outcome{Findings: []Finding{binding}}, Failed},
		"failure overridden by warn": {Fail, Warn, ModeEnforce, Outcome{Findings: []Finding{binding}}, Warned},
		"off":                        {Fail, Off, ModeEnforce, Outcome{Findings: []Finding{binding}}, ""},
		"mode warn":                  {Fail, "", ModeWarn, Outcome{Findings: []Finding{binding}}, Warned},
		"mode warn, overridden":      {Fail, Fail, ModeWarn, Outcome{Findings: []Finding{binding}}, Warned},
		"off by default, turned on":  {Off, Warn, ModeEnforce, Outcome{Findings: []Finding{binding}}, Warned},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := Config{Mode: test.mode, Checks: map[string]Severity{}}
			if test.override != "" {
				c.Checks["id"] = test.override
			}
			got, ok := c.Grade(Check{ID: "id", Severity: test.severity}, test.outcome)
			if got.Status != test.want || ok != (test.want != "") {
				t.Errorf("%q %v, want %q", got.Status, ok, test.want)
			}
		})
	}
}

func TestReportOrder(t *testing.T) {
	results := []Result{
		{Check: "a", Status: Passed},
		{Check: "b", Status: Warned},
		{Check: "c", Status: Failed},
		{Check: "d", Status: Skipped},
		{Check: "e", Status: Failed},
	}
	r := NewReport(Config{}, results, time.Now(), time.Second)
	var order []string
	for _, result := range r.Results {
		order = append(order, result.Check)
	}
	if want := []string{"c", "e", "b", "d", "a"}; !slices.Equal(order, want) || r.Result != RunFailed {
		t.Errorf("%v %s", order, r.Result)
	}
	if results[0].Check != "a" {
		t.Errorf("NewReport sorted the caller's slice")
	}
}

func TestJSONSchema(t *testing.T) {
	r := NewReport(
		Config{Provider: "aws", Cluster: "prod", Role: Worker, Mode: ModeEnforce},
		[]Result{
			{
				Check:  "id",
				Title:  "t",
				Status: Failed,
				Findings: []Finding{
					{Resource: "r", Wanted: "w", Found: "f", Why: "y", Fix: []Fix{{"t", []string{"a && b <c>"}}}},
				},
			},
		},
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)),
		1500*time.Millisecond,
	)
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(
		[]byte(
			`{"schema_version": 4, "provider": "aws", "cluster": "prod", "role": "worker", "mode": "enforce",
		"result": "failed",
		"started": "2026-01-02T02:04:05Z", "duration_ms": 1500,
		"results": [{"check": "id", "title": "t", "status": "fail",
		"findings": [{"resource": "r", "wanted": "w", "found": "f", "why": "y",
		"fix": [{"text": "t", "commands": ["a && b <c>"]}]}]}]}`,
		),
		&want,
	)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", b.String())
	}
	if !strings.Contains(b.String(), "a && b <c>") {
		t.Errorf("commands are escaped: %s", b.String())
	}
}

func TestTextGolden(t *testing.T) {
	r := NewReport(Config{Provider: "aws", Cluster: "prod", Role: Worker, Mode: ModeEnforce}, []Result{
		{Check: "first", Title: "all is well", Status: Passed, Note: "seen"},
		{
			Check:  "second-check",
			Title:  "it is tagged",
			Status: Failed,
			Findings: []Finding{
				{
					Resource: "i-1",
					Wanted:   "w",
					Found:    "f",
					Why:      "y.",
					Fix:      []Fix{{"run", []string{"aws fix"}}, {Text: "or set it"}},
				},
			},
		},
	}, time.Now(), 1200*time.Millisecond)
	r.Machine = "i-1"
	var b bytes.Buffer
	Printer{}.Table(&b, r)
	Printer{}.Findings(&b, r)
	want := `cloud-preflight: aws, cluster "prod", worker i-1
  fail  second-check  it is tagged: i-1
  pass  first         all is well: seen
FAILED: 1 check failed, 0 warnings, 0 skipped, 1 passed in 1.2 s
cloud-preflight: 1 check failed for cluster "prod" on worker i-1:
FAIL second-check: i-1
  wanted: w
  found:  f
  why:    y.
  fix:    run
          aws fix
          or set it
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	r.Machine = "" // instance metadata does not answer
	Printer{}.Findings(&b, r)
	if !strings.HasPrefix(b.String(), "cloud-preflight: 1 check failed for cluster \"prod\" on worker:\n") {
		t.Errorf("machine with an unknown id: %s", b.String())
	}
	r.Results = append(
		r.Results,
		Result{Check: "third", Title: "t", Status: Skipped, Note: strings.Repeat("é", 200)},
		Result{
			Check:    "fourth",
			Title:    "t",
			Status:   Warned,
			Findings: []Finding{{Resource: "i-2", Found: "two", Fix: []Fix{{Text: "x"}}}},
		},
	)
	b.Reset()
	Printer{Short: true}.Table(&b, r)
	if out := b.String(); strings.Contains(out, "first") || !strings.Contains(out, "  pass  1 check\n") ||
		!strings.Contains(out, "é…\n") {
		t.Errorf("the short table:\n%s", out)
	}
	b.Reset()
	Printer{}.Findings(&b, r)
	if out := b.String(); !strings.HasPrefix(
		out, "WARN fourth: i-2 (found: two; details are in the report)\ncloud-preflight: 1 check failed",
	) {
		t.Errorf("the warning is not brief:\n%s", out)
	}
	b.Reset()
	Printer{Color: true}.Table(&b, r)
	if !strings.Contains(b.String(), red+"fail"+reset) {
		t.Errorf("no color: %q", b.String())
	}
}

func TestReportIsClean(t *testing.T) {
	r := NewReport(
		Config{},
		[]Result{
			{
				Note: "the secret-key-123",
				Findings: []Finding{
					{Found: "secret-key-123!", Fix: []Fix{{"secret-key-123", []string{"secret-key-123"}}}},
				},
			},
		},
		time.Now(),
		0,
	)
	r.Explanations = []Explanation{{Lines: []string{"secret-key-123", "subnet \x1b[2J\r"}}}
	r.Clean("secret-key-123", "", "e")
	if got := r.Explanations[0].Lines[1]; got != `subnet \x1b[2J\r` {
		t.Errorf("a terminal would obey %q", got)
	}
	var b bytes.Buffer
	_ = r.WriteJSON(&b)
	if strings.Contains(b.String(), "secret-key") || strings.Count(b.String(), "[redacted]") != 5 ||
		!strings.Contains(b.String(), "the [redacted]") {
		t.Errorf("%s", b.String())
	}
}

// TestLoggerRedacts: in messages, texts, errors and groups, and in what a logger has been given for all lines.
func TestLoggerRedacts(t *testing.T) {
	secrets := &Secrets{}
	secrets.Add("secret/key+123")
	const secret, escaped = "secret/key+123", "secret%2Fkey%2B123"
	var b bytes.Buffer
	secrets.Logger(slog.New(slog.NewJSONHandler(&b, nil))).
		With("with", secret).WithGroup("all").
		Info("message "+secret, "text", escaped, "err", errors.New("bad "+secret), "n", 3,
			slog.Group("group", "inner", secret))
	if strings.Contains(b.String(), "key") || strings.Count(b.String(), "[redacted]") != 5 ||
		!strings.Contains(b.String(), `"n":3`) {
		t.Errorf("%s", b.String())
	}
}

func TestConfigDefaults(t *testing.T) {
	c, err := ParseConfig([]byte(`{"provider": "aws", "cluster": "prod", "role": "worker"}`))
	if err != nil || c.Mode != ModeEnforce || time.Duration(c.RetryWindow) != DefaultRetryWindow {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConfigErrors(t *testing.T) {
	for content, want := range map[string]string{
		"":                          "empty",
		"{":                         "not JSON",
		"[]":                        "want a map",
		`{"role": "worker"} {}`:     "not JSON",
		`{"role": "worker", "x":1}`: `unknown field "x"`,
		`{"provider": "aws", "role": "x", "mode": "y"}`: `mode "y" is not one of enforce, warn, off; ` +
			`role "x" is not one of control, worker; cluster is empty`,
		`{"role": "worker", "retry_window": 60}`:    "is not a duration",
		`{"role": "worker", "retry_window": "-1s"}`: "retry_window -1s is negative",
	} {
		if _, err := ParseConfig([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

// Each provider decodes the section cloud by itself, and as strictly as the rest of the file.
func TestDecodeCloud(t *testing.T) {
	path := filepath.Join(t.TempDir(), "preflight.json")
	if err := os.WriteFile(path, []byte(`{"role": "worker", "cloud": {"zones": ["a"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ReadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	var known struct {
		Zones []string `json:"zones"`
	}
	if err := c.DecodeCloud(&known); err != nil || !slices.Equal(known.Zones, []string{"a"}) {
		t.Errorf("%v, %v", known, err)
	}
	if err := c.DecodeCloud(&struct{}{}); err == nil ||
		!strings.Contains(err.Error(), "configuration "+path+`: cloud: unknown field "zones"`) {
		t.Errorf("unknown key: %v", err)
	}
	if err := (Config{}).DecodeCloud(&struct{}{}); err != nil {
		t.Errorf("without the section: %v", err)
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Limit: time.Second}
	for i := range 100 {
		length := min(100*time.Millisecond<<min(i, 10), time.Second)
		if d := b.Next(); d < length/2 || d > length*3/2 {
			t.Errorf("pause %d is %v, want around %v", i, d, length)
		}
	}
}

func TestSpread(t *testing.T) {
	s := Spread{First: 10 * time.Second, Growth: 1.5}
	first := s.Next(0)
	if first < 0 || first > 10*time.Second {
		t.Fatalf("the first pause is %v, want at most 10 s", first)
	}
	place := float64(first) / float64(10*time.Second)
	at := func(begin, length time.Duration) time.Duration { return begin + time.Duration(place*float64(length)) }
	for _, c := range []struct{ elapsed, want time.Duration }{
		{first, at(10*time.Second, 5*time.Second) - first},
		{14999 * time.Millisecond, at(15*time.Second, 7500*time.Millisecond) - 14999*time.Millisecond},
		// spans that have passed are left out
		{100 * time.Second, max(0, at(75937500*time.Microsecond, 37968750*time.Microsecond)-100*time.Second)},
	} {
		if d := s.Next(c.elapsed); (d - c.want).Abs() > time.Microsecond {
			t.Errorf("after %v the pause is %v, want %v", c.elapsed, d, c.want)
		}
	}
}

// spreadCalls simulates machines that ask a token bucket until each has been served. It returns when the last one was
// served and the total number of attempts.
func spreadCalls(machines int, burst, rate float64, spread Spread) (last time.Duration, asked int) {
	type attempt struct {
		at      time.Duration
		machine *Spread
	}
	waiting := make([]attempt, machines)
	for i := range waiting {
		s := spread
		waiting[i].machine = &s
	}
	tokens, filled := burst, time.Duration(0)
	for len(waiting) > 0 {
		slices.SortFunc(waiting, func(a, b attempt) int { return cmp.Compare(a.at, b.at) })
		now := waiting[0].at
		tokens, filled = min(burst, tokens+(now-filled).Seconds()*rate), now
		asked++
		if tokens < 1 {
			waiting[0].at += max(waiting[0].machine.Next(now), 1)
			continue
		}
		tokens--
		last, waiting = now, waiting[1:]
	}
	return last, asked
}

// TestManyMachines compares the time that machines need with the minimum that EC2's token bucket requires.
func TestManyMachines(t *testing.T) {
	const burst, rate = 100, 20
	for _, machines := range []int{600, 1000} {
		bound := time.Duration(float64(machines-burst) / rate * float64(time.Second))
		last, asked := spreadCalls(machines, burst, rate, Spread{First: 20 * time.Second, Growth: 1.15})
		t.Logf(
			"%d machines: %.2f of the bound of %v, %.1f calls each", machines, last.Seconds()/bound.Seconds(), bound,
			float64(asked)/float64(machines),
		)
		if last > bound*115/100 { // the length of one span
			t.Errorf("%d machines need %v, the bucket %v", machines, last, bound)
		}
		if asked > 10*machines {
			t.Errorf("%d machines ask %d times", machines, asked)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(
		[]byte(
			`{"provider": "aws", "cluster": "prod", "role": "worker", "mode": "warn",
				"retry_window": "1m", "checks": {"a": "off"}}`,
		),
	)
	f.Add([]byte(`{"retry_window": "9999999h"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if c, err := ParseConfig(content); err == nil && (c.RetryWindow < 0 || c.Role != Control && c.Role != Worker) {
			t.Errorf("accepted %+v", c)
		}
	})
}
