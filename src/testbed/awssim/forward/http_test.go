package forward

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestConditionsMatch(t *testing.T) {
	canary := Conditions{Headers: []Header{{"X-Canary", []string{"yes", "on?"}}}}
	both := Conditions{Queries: [][]Parameter{{{"color", "red"}}, {{"", "l*"}}}}
	for _, test := range []struct {
		conditions Conditions
		request    string
		header     string
		want       bool
	}{
		{Conditions{}, "GET http://a.example/", "", true},
		{Conditions{Hosts: [][]string{{"*.Example"}}}, "GET http://A.example/", "", true},
		{Conditions{Hosts: [][]string{{"*.example"}}}, "GET http://example/", "", false},
		{Conditions{Hosts: [][]string{{"a.example", "b.example"}}}, "GET http://b.example:8080/", "", true},
		{Conditions{Hosts: [][]string{{"a.example"}}}, "GET http://axexample/", "", false},
		{Conditions{Paths: [][]string{{"/api", "/api/*"}}}, "GET http://a.example/api/orders", "", true},
		{Conditions{Paths: [][]string{{"/api", "/api/*"}}}, "GET http://a.example/apis", "", false},
		{Conditions{Paths: [][]string{{"/v?"}}}, "GET http://a.example/v1", "", true},
		{Conditions{Paths: [][]string{{"/API"}}}, "GET http://a.example/api", "", false},
		{Conditions{Hosts: [][]string{{"a.example"}}, Paths: [][]string{{"/x"}}}, "GET http://a.example/", "", false},
		{Conditions{Methods: [][]string{{"GET", "PUT"}}}, "PUT http://a.example/", "", true},
		{Conditions{Methods: [][]string{{"GET", "PUT"}}}, "POST http://a.example/", "", false},
		{canary, "GET http://a.example/", "YES", true},
		{canary, "GET http://a.example/", "one", true},
		{canary, "GET http://a.example/", "no", false},
		{canary, "GET http://a.example/", "", false},
		{both, "GET http://a.example/?color=Red&size=large", "", true},
		{both, "GET http://a.example/?color=red", "", false},
		{both, "GET http://a.example/?size=large", "", false},
	} {
		var method, url string
		if _, err := fmt.Sscan(test.request, &method, &url); err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequest(method, url, http.NoBody)
		if test.header != "" {
			request.Header.Set("x-canary", test.header)
		}
		if got := test.conditions.match(request); got != test.want {
			t.Errorf("%v match %s with header %q: %t", test.conditions, test.request, test.header, got)
		}
	}
}

func TestChoose(t *testing.T) {
	got := map[string]int{}
	for n := range uint64(100) {
		got[choose([]Weighted{{"a", 70}, {"none", 0}, {"b", 30}}, n)]++
	}
	if got["none"] != 0 || got["a"] < 69 || got["a"] > 71 || got["b"] != 100-got["a"] {
		t.Errorf("100 requests: %v, want 70 for a and 30 for b", got)
	}
	for _, groups := range [][]Weighted{nil, {{"a", 0}}} {
		if got := choose(groups, 1); got != "" {
			t.Errorf("of %v, %q gets a request", groups, got)
		}
	}
}
