package main

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"allowed": {
			"POST", "/validate", `{"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1"}}`, 200,
			`"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"uid":"1"}`,
		},
		"denied": {
			"POST", "/validate", `{"request": {"uid": "2", "object": {"metadata": {"labels": {"forbidden": ""}}}}}`,
			200, `"allowed":false`,
		},
		"not JSON":  {"POST", "/validate", `x`, 400, "invalid character"},
		"discovery": {"GET", "/apis/" + groupVersion, "", 200, `"name":"greetings"`},
		"object":    {"GET", "/apis/" + groupVersion + "/greetings/hello", "", 200, `"name":"hello"`},
		"unknown":   {"GET", "/apis/other", "", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			handler().ServeHTTP(recorder, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
			if recorder.Code != test.status || !strings.Contains(recorder.Body.String(), test.want) {
				t.Errorf("got %d %s, want %d and %q", recorder.Code, recorder.Body, test.status, test.want)
			}
		})
	}
}
