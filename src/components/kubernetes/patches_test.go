package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestElements(t *testing.T) {
	for document, want := range map[string]int{
		``:                                       0,
		`{}`:                                     0,
		`[]`:                                     0,
		`[ ]`:                                    0,
		`{"a": [], "b": {"c": 1, "d": 2}}`:       0,
		`[1]`:                                    1,
		`["a,b"]`:                                1,
		`["a\",[", 2]`:                           2,
		`[[], []]`:                               2,
		`[ [1,2], {"a": [3, 4, 5]} ]`:            7,
		`{"a": [{"b": 1, "c": 2}, 3], "d": [4]}`: 3,
		`]}[1`:                                   1, // no JSON
	} {
		if got := elements([]byte(document)); got != want {
			t.Errorf("%s has %d elements, want %d", document, got, want)
		}
	}
}

// TestEndlessPatches is that patches with long lists are refused, if lists of their type are merged, and that all
// others arrive as they are.
func TestEndlessPatches(t *testing.T) {
	var received string
	server := limitPatches(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		received = string(body)
	}))
	of := func(n int) string { return `{"a": [` + strings.Repeat("1,", n-1) + `1]}` }
	const strategic, merge = string(types.StrategicMergePatchType), string(types.MergePatchType)
	for _, test := range []struct {
		what, method, kind, body string
		want                     int
	}{
		{"as long as it can be", http.MethodPatch, strategic, of(mostElements), http.StatusOK},
		{"with one more", http.MethodPatch, strategic, of(mostElements + 1), http.StatusRequestEntityTooLarge},
		{"in UTF-8", http.MethodPatch, strategic + "; charset=utf-8", of(mostElements + 1),
			http.StatusRequestEntityTooLarge},
		{"of another type", http.MethodPatch, merge, of(mostElements + 1), http.StatusOK},
		{"that is none", http.MethodPost, strategic, of(mostElements + 1), http.StatusOK},
		{"that is larger than the API server reads", http.MethodPatch, strategic,
			`{"a": "` + strings.Repeat("x", largestPatch+100) + `"}`, http.StatusOK},
	} {
		received = ""
		request := httptest.NewRequestWithContext(t.Context(), test.method, "/", strings.NewReader(test.body))
		request.Header.Set("Content-Type", test.kind)
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, request)
		if answer.Code != test.want {
			t.Errorf("a patch %s: %d, want %d: %s", test.what, answer.Code, test.want, answer.Body)
		}
		if passed := received == test.body; passed != (test.want == http.StatusOK) {
			t.Errorf("a patch %s arrives: %t", test.what, passed)
		}
		if test.want != http.StatusOK && !strings.Contains(answer.Body.String(), `"reason":"RequestEntityTooLarge"`) {
			t.Errorf("a patch %s: %s", test.what, answer.Body)
		}
	}
}
