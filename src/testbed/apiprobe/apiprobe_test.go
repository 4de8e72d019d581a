package apiprobe

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"kubernetes-release/internal/kubetest"
)

// TestCountsFailures puts a proxy before a real API server: it refuses some writes, breaks some others, ends watches,
// and answers no read for a second.
func TestCountsFailures(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	upstream := cluster.AdminConfig()
	target, err := url.Parse(upstream.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(upstream)
	if err != nil {
		t.Fatal(err)
	}
	var watches atomic.Int32
	var faults writeFaults
	var started, held atomic.Int64 // since when it measures, and until when reads wait
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && faults.answer(w, r):
			return
		case r.URL.Query().Get("watch") != "":
			if watches.Add(1) == 2 {
				http.Error(w, "no watches", http.StatusServiceUnavailable)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), 700*time.Millisecond)
			defer cancel()
			r = r.WithContext(ctx)
		case r.Method == http.MethodGet && started.Load() != 0:
			if now := time.Now().UnixMilli(); now-started.Load() > 1000 {
				held.CompareAndSwap(0, now+1000)
				time.Sleep(time.Until(time.UnixMilli(held.Load())))
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report, err := Run(ctx, &rest.Config{Host: server.URL}, func() {
		started.Store(time.Now().UnixMilli())
		time.AfterFunc(3*time.Second, cancel)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	if want := int(faults.broken.Load()); want == 0 || report.Writes.Failed != want ||
		!strings.Contains(report.Writes.Errors[0], "broken") {
		t.Errorf("%d writes failed, want %d: %q", report.Writes.Failed, want, report.Writes.Errors)
	}
	once := report.Once.Writes
	if want := int(faults.failedOnce.Load()); once.Failed != want ||
		!strings.Contains(strings.Join(once.Errors, "\n"), "too many requests") {
		t.Errorf("%d writes without retries failed, want %d: %q", once.Failed, want, once.Errors)
	}
	if report.Reads.Failed != 0 || time.Duration(report.Reads.Slowest) < time.Second || report.Reads.LongestGap == 0 {
		t.Errorf(
			"%d reads failed, the slowest took %s, longest gap %s; want 0 and at least a second", report.Reads.Failed,
			text(report.Reads.Slowest), text(report.Reads.LongestGap),
		)
	}
	if len(report.Reads.Slow) == 0 || !strings.Contains(report.Reads.Slow[0], "request sent, ") ||
		!strings.Contains(report.Reads.Slow[0], "response begins") {
		t.Errorf("the slow reads are %q", report.Reads.Slow)
	}
	if report.Watch.Failed != 1 || report.Watch.Ended < 2 || report.Watch.Missed != 0 ||
		report.Watch.Events != report.Writes.Sent-report.Writes.Failed+once.Sent-once.Failed {
		t.Errorf("watch %+v of %d writes", report.Watch, report.Writes.Sent)
	}
	if len(report.Lost) != 0 {
		t.Errorf("lost %q", report.Lost)
	}
	if parsed, err := report.JSON(); err != nil {
		t.Error(err)
	} else if again, err := Parse(parsed); err != nil || again.Failures() != report.Failures() {
		t.Errorf("%v: %s", err, parsed)
	}
}

// writeFaults refuses some writes, which client-go repeats, and breaks some.
type writeFaults struct{ writes, broken, failedOnce atomic.Int32 } // failedOnce are refused or broken

// answer reports whether it has answered a write, which the API server does not see then.
func (f *writeFaults) answer(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return true
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	once := bytes.Contains(body, []byte("-once-"))
	n := f.writes.Add(1)
	switch {
	case n%5 == 0:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "shutting down", http.StatusTooManyRequests)
	case n%7 == 0:
		http.Error(w, "broken", http.StatusInternalServerError)
		if !once {
			f.broken.Add(1)
		}
	default:
		return false
	}
	if once {
		f.failedOnce.Add(1)
	}
	return true
}

func TestTheSlowestRequestsAreKept(t *testing.T) {
	var l slowList
	for n := range 2 * maxSlow {
		l.add(&stages{}, time.Duration(n+1)*time.Second)
	}
	l.add(&stages{}, slow)
	texts := l.texts()
	if len(texts) != maxSlow || !strings.Contains(texts[0], "(after 11s)") ||
		!strings.Contains(texts[maxSlow-1], "(after 20s)") {
		t.Errorf("kept %q", texts)
	}
}
