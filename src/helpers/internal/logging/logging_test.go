package logging

import (
	"bytes"
	"regexp"
	"testing"
)

func TestLinesHaveTimesInUTC(t *testing.T) {
	t.Setenv("TZ", "Asia/Tokyo")
	var out bytes.Buffer
	New(&out).Info("started", "time", "mine", "pid", 7)
	want := regexp.MustCompile(`^time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=INFO msg=started time=mine pid=7\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("got %q, want %s", out.String(), want)
	}
}
