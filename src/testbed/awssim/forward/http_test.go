package forward

import "testing"

func TestRuleMatches(t *testing.T) {
	for _, test := range []struct {
		rule       Rule
		host, path string
		want       bool
	}{
		{Rule{}, "a.example", "/", true},
		{Rule{Hosts: [][]string{{"*.Example"}}}, "A.example", "/", true},
		{Rule{Hosts: [][]string{{"*.example"}}}, "example", "/", false},
		{Rule{Hosts: [][]string{{"a.example", "b.example"}}}, "b.example", "/", true},
		{Rule{Hosts: [][]string{{"a.example"}}}, "axexample", "/", false},
		{Rule{Paths: [][]string{{"/api", "/api/*"}}}, "a.example", "/api/orders", true},
		{Rule{Paths: [][]string{{"/api", "/api/*"}}}, "a.example", "/apis", false},
		{Rule{Paths: [][]string{{"/v?"}}}, "a.example", "/v1", true},
		{Rule{Paths: [][]string{{"/API"}}}, "a.example", "/api", false},
		{Rule{Hosts: [][]string{{"a.example"}}, Paths: [][]string{{"/x"}}}, "a.example", "/", false},
	} {
		if got := test.rule.matches(test.host, test.path); got != test.want {
			t.Errorf("%v matches http://%s%s: %t", test.rule, test.host, test.path, got)
		}
	}
}
