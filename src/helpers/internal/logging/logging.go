// Package logging has the one form of the release's own logs.
package logging

import (
	"io"
	"log/slog"
	"time"
)

// TimeLayout is RFC 3339 in UTC with milliseconds, which sorts as text.
const TimeLayout = "2006-01-02T15:04:05.000Z07:00"

// Time formats a time in UTC by TimeLayout.
func Time(t time.Time) string { return t.UTC().Format(TimeLayout) }

// New returns a logger that writes key=value lines with times in UTC.
func New(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, Options(slog.LevelInfo)))
}

// Options are the options of a handler that writes times in UTC by TimeLayout and omits messages below the level.
func Options(level slog.Level) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			a.Value = slog.StringValue(Time(a.Value.Time()))
		}
		return a
	}}
}
