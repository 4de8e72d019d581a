package apiprobe

import (
	"context"
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

// TestCountsFailures puts a proxy before a real API server: it refuses some writes, ends watches, and answers no read
// for a second.
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
	var writes, watches atomic.Int32
	var started, held atomic.Int64 // since when it measures, and until when reads wait
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && writes.Add(1)%5 == 0:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "shutting down", http.StatusTooManyRequests)
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
	if report.Writes.Failed == 0 || report.Writes.Failed != int(writes.Load())/5 ||
		!strings.Contains(report.Writes.Errors[0], "too many requests") {
		t.Errorf("%d of %d writes failed: %q", report.Writes.Failed, writes.Load(), report.Writes.Errors)
	}
	if report.Writes.Refused != report.Writes.Failed {
		t.Errorf("%d of %d failed writes were refused, want all", report.Writes.Refused, report.Writes.Failed)
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
		report.Watch.Events != report.Writes.Sent-report.Writes.Failed {
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
