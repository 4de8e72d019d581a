package faults

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestServicesMustRecover: a Service that works again has stray failures at most.
func TestServicesMustRecover(t *testing.T) {
	started := time.Now()
	refused := errors.New("refused")
	const late = "5 of 200 requests failed later than 1m0s"
	for name, test := range map[string]struct {
		failures []int // seconds after the fault
		gap      time.Duration
		want     string
	}{
		"before it must work again": {[]int{1, 2, 3, 50}, 4 * time.Second, ""},
		"a stray one after that":    {[]int{1, 70}, 2 * time.Second, ""},
		"several after that":        {[]int{70, 80, 90, 100, 110}, 2 * time.Second, late},
		"no success again":          {[]int{256, 257, 258, 259, 260}, time.Second, late},
	} {
		s := &service{name: "web", began: started}
		for second := range 261 {
			o := outcome{at: started.Add(time.Duration(second) * time.Second)}
			for _, failure := range test.failures {
				if second == failure {
					o.err = refused
				}
			}
			s.outcomes = append(s.outcomes, o)
		}
		part, err := s.examine(started, time.Minute)
		if test.want == "" && err != nil ||
			test.want != "" && (!errors.Is(err, refused) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if part.Took != test.gap {
			t.Errorf("%s: the longest gap is %s, want %s", name, part.Took, test.gap)
		}
	}
}
