package preflight

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// minSecret is the length of the shortest secret, in bytes: replacing shorter text would garble everything around it.
const minSecret = 8

// Secrets are texts that must not appear in a report or a log. Text from outside is cleaned before it is shortened,
// because the beginning of a secret would not be found any more.
type Secrets struct {
	mu   sync.RWMutex
	list []string
}

// Add adds secrets.
func (s *Secrets) Add(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range secrets {
		for _, form := range []string{secret, url.QueryEscape(secret)} {
			if len(form) >= minSecret && !slices.Contains(s.list, form) {
				s.list = append(s.list, form)
			}
		}
	}
}

// List returns the secrets, in all forms in which they may appear.
func (s *Secrets) List() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.list)
}

// Clean replaces every occurrence of a secret.
func (s *Secrets) Clean(text string) string {
	for _, secret := range s.List() {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

// Logger returns a logger that cleans messages and values before it passes them on.
func (s *Secrets) Logger(log *slog.Logger) *slog.Logger {
	return slog.New(&cleaningHandler{log.Handler(), s})
}

type cleaningHandler struct {
	slog.Handler
	secrets *Secrets
}

// Handle implements slog.Handler.
func (h *cleaningHandler) Handle(ctx context.Context, record slog.Record) error {
	clean := slog.NewRecord(record.Time, record.Level, h.secrets.Clean(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.clean(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h *cleaningHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.clean(a)
	}
	return &cleaningHandler{h.Handler.WithAttrs(clean), h.secrets}
}

// WithGroup implements slog.Handler.
func (h *cleaningHandler) WithGroup(name string) slog.Handler {
	return &cleaningHandler{h.Handler.WithGroup(name), h.secrets}
}

func (h *cleaningHandler) clean(a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindString:
		return slog.String(a.Key, h.secrets.Clean(value.String()))
	case slog.KindAny: // such as errors
		text := fmt.Sprint(value.Any())
		if clean := h.secrets.Clean(text); clean != text {
			return slog.String(a.Key, clean)
		}
	case slog.KindGroup:
		group := slices.Clone(value.Group())
		for i := range group {
			group[i] = h.clean(group[i])
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
	}
	return a
}
