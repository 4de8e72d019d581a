package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestLeave(t *testing.T) {
	deadline, broken := &DeadlineError{Left: errors.New("pod x")}, errors.New("broken")
	deleted := []string{"drain true", "stop", "delete"}
	for name, test := range map[string]struct {
		markers                []string
		drains, stops, deletes error
		canceled               string // the call during which it is
		calls                  []string
		logs                   []string
		left                   bool // kubelet must not start again
	}{
		"processes restart": {calls: []string{"drain false"}},
		"VM is deleted":     {markers: []string{"leaving"}, calls: deleted, left: true},
		"undeployed": {
			markers: []string{"leaving", "undeployed"}, logs: []string{"deployment is deleted"},
		},
		"deadline":                {markers: []string{"leaving"}, drains: deadline, calls: deleted[:1]},
		"deadline before restart": {drains: deadline, calls: []string{"drain false"}},
		"canceled": {
			markers: []string{"leaving"}, canceled: deleted[0], calls: []string{deleted[0], "restore"},
		},
		"canceled before restart": {
			canceled: "drain false", calls: []string{"drain false", "restore"},
		},
		"canceled while kubelet stops": {
			markers: []string{"leaving"}, canceled: "stop",
			calls: []string{deleted[0], "stop", "restore"},
		},
		"canceled while the Node is deleted": {
			markers: []string{"leaving"}, canceled: "delete", calls: append(slices.Clone(deleted), "restore"),
		},
		"steps fail": {
			markers: []string{"leaving"}, stops: broken, deletes: broken, calls: deleted,
			logs: []string{"kubelet is not stopped", "the Node is not deleted"}, left: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run, calls := t.TempDir(), []string(nil)
			for _, marker := range test.markers {
				if err := os.WriteFile(filepath.Join(run, marker), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			left := func() bool { return exists(filepath.Join(run, "left")) }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			step := func(call string, result error) error {
				if stops := call == "stop" || slices.Contains(calls, "stop"); left() != stops {
					t.Errorf("%s: kubelet can start: %t, want %t", call, !left(), !stops)
				}
				calls = append(calls, call)
				if call == test.canceled {
					cancel()
				}
				return result
			}
			var log bytes.Buffer
			err := Leave(ctx, run, Steps{
				Drain: func(_ context.Context, vmDeleted bool) error {
					return step(fmt.Sprintf("drain %t", vmDeleted), test.drains)
				},
				Restore:     func(ctx context.Context) error { return step("restore", ctx.Err()) },
				StopKubelet: func(context.Context) error { return step("stop", test.stops) },
				DeleteNode:  func(context.Context) error { return step("delete", test.deletes) },
			}, slog.New(slog.NewTextHandler(&log, nil)))
			want := test.drains
			if test.canceled != "" {
				want = errCanceled
			}
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("got %v, want %v", err, want)
			}
			if !reflect.DeepEqual(calls, test.calls) {
				t.Errorf("did %q, want %q", calls, test.calls)
			}
			if left() != test.left {
				t.Errorf("kubelet can start: %t, want %t", !left(), !test.left)
			}
			for _, want := range test.logs {
				if !strings.Contains(log.String(), want) {
					t.Errorf("logged %q, want %q", log.String(), want)
				}
			}
		})
	}
}

func TestLeaveWithoutADirectory(t *testing.T) {
	drained := false
	err := Leave(t.Context(), filepath.Join(t.TempDir(), "none"), Steps{
		Drain: func(_ context.Context, vmDeleted bool) error { drained = !vmDeleted; return nil },
	}, slog.New(slog.DiscardHandler))
	if err != nil || !drained {
		t.Errorf("got %v, drained: %t; a kubelet that was never started is drained, and its Node stays", err, drained)
	}
}
