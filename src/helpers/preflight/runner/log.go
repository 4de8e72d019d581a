package runner

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/logging"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/preflight"
)

// openLog returns a logger that writes progress to stderr and everything to the file, as JSON lines.
func (o Options) openLog() (*slog.Logger, func(), error) {
	if o.Log == "" {
		return logging.New(o.Stderr), func() {}, nil
	}
	if err := protectLogs(o.Log, o.Root); err != nil {
		return nil, nil, err
	}
	f, err := rootfile.Append(o.Log, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	file := slog.NewJSONHandler(f, logging.Options(slog.LevelDebug))
	return slog.New(slog.NewMultiHandler(logging.New(o.Stderr).Handler(), file)), func() { _ = f.Close() }, nil
}

// protectLogs takes from the group vcap the permission to write to the directory of a job's logs. The agent opens the
// logs of lifecycle scripts in it as root, and follows links (bosh-agent, agent/script/generic_script.go). Other
// directories are left alone.
func protectLogs(path string, root bosh.Root) error {
	dir := filepath.Dir(path)
	if filepath.Dir(dir) != root.Path("sys/log") {
		return nil
	}
	return rootfile.Protect(dir)
}

// logResults writes one line per check to the log file; findings go to standard error in full.
func logResults(log *slog.Logger, r *preflight.Report) {
	for _, result := range r.Results {
		args := []any{"check", result.Check, "status", result.Status, "note", result.Note}
		for _, f := range result.Findings {
			args = append(
				args, slog.Group("finding", "resource", f.Resource, "wanted", f.Wanted, "found", f.Found, "fix", f.Fix),
			)
		}
		log.Debug("result", args...)
	}
	log.Debug(
		"result", "result", r.Result, "failed", r.Count(preflight.Failed), "warned", r.Count(preflight.Warned),
		"duration_ms", r.Milliseconds,
	)
}
