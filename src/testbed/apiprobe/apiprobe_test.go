package apiprobe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/kubetest"
)

// TestCountsFailures puts a proxy before a real API server: it refuses some writes, one of them as etcd does while its
// leadership moves and one as an API server that closes, ends watches, and answers no read for a second.
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
		case r.Method == http.MethodPost && writes.Load() == 8:
			refuseAsShuttingDown(w)
			return
		case r.Method == http.MethodPost && writes.Load() == 7:
			http.Error(w, "rpc error: code = Unknown desc = raft proposal dropped", http.StatusInternalServerError)
			return
		case r.Method == http.MethodPost && writes.Load() == 6:
			refuse(w, metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
				Message: "etcdserver: request timed out",
			})
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
	if report.Writes.Failed == 0 || report.Writes.Failed != int(writes.Load())/5+3 ||
		!strings.Contains(report.Writes.Errors[0], "too many requests") {
		t.Errorf("%d of %d writes failed: %q", report.Writes.Failed, writes.Load(), report.Writes.Errors)
	}
	if n := report.LeaderMoved(); n != 2 {
		t.Errorf("%d failed because the leadership moved, want 2: %q", n, report.Writes.Errors)
	}
	if n := report.ShuttingDown(); n != 1 {
		t.Errorf("%d failed because an API server closed, want 1: %q", n, report.Writes.Errors)
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

// refuseAsShuttingDown answers as waitGroupWriteRetryAfterToResponse in pkg/server/filters/waitgroup.go of
// k8s.io/apiserver does.
func refuseAsShuttingDown(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	refuse(w, apierrors.NewServiceUnavailable("apiserver is shutting down").Status())
}

func refuse(w http.ResponseWriter, status metav1.Status) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(int(status.Code))
	_, _ = fmt.Fprintln(w, runtime.EncodeOrDie(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), &status))
}

// TestClientsRepeatWhatAClosingAPIServerRefuses is why such refusals are counted apart: a client of client-go, such as
// kubectl, sends the write again and does not notice.
func TestClientsRepeatWhatAClosingAPIServerRefuses(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			refuseAsShuttingDown(w)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	created, err := client.CoreV1().ConfigMaps(Namespace).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil || created.Name != "a" || requests.Load() != 2 {
		t.Errorf("after %d requests: %v, %+v", requests.Load(), err, created)
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
