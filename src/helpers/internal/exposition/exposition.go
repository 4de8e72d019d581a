// Package exposition writes metrics in Prometheus' text format, version 0.0.4, for the textfile collector of
// node_exporter and for an endpoint. The few metrics of our own need no registry and no dependency.
package exposition

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Text is a set of metrics, read at one time. The zero value is empty.
type Text struct{ text strings.Builder }

// Family is one metric of a Text. Without a value, it is absent.
type Family struct {
	text             *Text
	name, help, kind string
	started          bool
}

// Gauge begins a metric whose value can fall.
func (t *Text) Gauge(name, help string) *Family {
	return &Family{text: t, name: name, help: help, kind: "gauge"}
}

// Counter begins a metric whose value only grows while the process runs.
func (t *Text) Counter(name, help string) *Family {
	return &Family{text: t, name: name, help: help, kind: "counter"}
}

// Add adds a value, with names and values of its labels in turn. All values of a metric must be added before the next
// metric begins.
func (f *Family) Add(value float64, labels ...string) {
	out := &f.text.text
	if !f.started {
		f.started = true
		out.WriteString("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " " + f.kind + "\n")
	}
	out.WriteString(f.name)
	for n := 0; n+1 < len(labels); n += 2 {
		separator := ","
		if n == 0 {
			separator = "{"
		}
		out.WriteString(separator + labels[n] + `="` + escaper.Replace(labels[n+1]) + `"`)
	}
	if len(labels) > 0 {
		out.WriteString("}")
	}
	// Whole numbers, such as times in seconds, have no exponent, so that people can read them too.
	out.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
}

// escaper escapes values of labels as the format requires, and nothing else.
var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// String returns the metrics.
func (t *Text) String() string { return t.text.String() }

// Bool is the value of a metric that is 1 or 0.
func Bool(value bool) float64 {
	if value {
		return 1
	}
	return 0
}

const (
	// Path is where Serve serves the metrics.
	Path = "/metrics"
	// timeout limits one request.
	timeout = 10 * time.Second
)

// Serve answers with what the functions write, until ctx ends, which is no error.
func Serve(ctx context.Context, listener net.Listener, write ...func(*Text)) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		var text Text
		for _, function := range write {
			function(&text)
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte(text.String()))
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
