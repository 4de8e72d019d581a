package bench

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// RotationAim is the share of lines that may be lost.
const RotationAim = 0.001

const (
	linesPerSecond = 10_000
	lineLength     = 150 // bytes, with the end of the line
	// rotations is how often the file reaches the size at which a stemcell rotates it.
	rotations    = 3
	rotationSize = 50 << 20
)

// logrotateConfig is what a stemcell configures for logs, as docs/logs-and-metrics.md says.
const logrotateConfig = `%s {
  missingok
  rotate 7
  compress
  copytruncate
  size 50M
}
`

// Rotation measures what a stemcell's logrotate loses of a log that a process writes meanwhile.
type Rotation struct{ Out io.Writer }

// Measure writes 10,000 lines a second, has them rotated each time the file has reached 50 MiB, and counts the lines
// that are in none of the files. It requires the program logrotate.
func (r Rotation) Measure(ctx context.Context) (_ Figure, err error) {
	dir, err := os.MkdirTemp("", "bench-rotation-")
	if err != nil {
		return Figure{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	load := busy()
	path := filepath.Join(dir, "process.log")
	config := filepath.Join(dir, "logrotate.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, logrotateConfig, path), 0o600); err != nil {
		return Figure{}, err
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	type outcome struct {
		lines int
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		lines, err := writeLines(writing, path)
		ended <- outcome{lines, err}
	}()
	longest, err := r.rotate(ctx, path, config)
	stop()
	written := <-ended
	if err := errors.Join(err, written.err); err != nil {
		return Figure{}, err
	}
	kept, err := countLines(dir)
	if err != nil {
		return Figure{}, err
	}
	return Figure{
		Name: "rotation",
		What: "lines lost while logrotate copies and truncates a log of 50 MiB, to which 10,000 a second are written",
		Unit: Count, Aim: RotationAim, Busy: load,
		Subject: "lost", Ours: float64(written.lines - kept), Against: "written", Base: float64(written.lines),
		Note: fmt.Sprintf("%d rotations; the longest took %.1f s.", rotations, longest.Seconds()),
	}, nil
}

// rotate runs logrotate each time that the file is large enough, and returns how long that took at most.
func (r Rotation) rotate(ctx context.Context, path, config string) (longest time.Duration, err error) {
	for n := range rotations {
		for {
			info, err := os.Stat(path)
			if err == nil && info.Size() > rotationSize {
				break
			}
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Second):
			}
		}
		_, _ = fmt.Fprintf(r.Out, "rotation: logrotate runs, %d of %d\n", n+1, rotations)
		started := time.Now()
		command := exec.CommandContext(ctx, "logrotate", "--state", config+".state", config)
		if output, err := command.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("logrotate: %w: %s", err, output)
		}
		longest = max(longest, time.Since(started))
	}
	return longest, nil
}

// writeLines appends lines that begin with their number, a hundredth of a second's at once, until ctx ends.
func writeLines(ctx context.Context, path string) (lines int, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	filler := strings.Repeat("x", lineLength)
	started := time.Now()
	for ctx.Err() == nil {
		for due := int(time.Since(started).Seconds() * linesPerSecond); lines < due; lines++ {
			line := strconv.Itoa(lines) + " " + filler
			if _, err := io.WriteString(file, line[:lineLength-1]+"\n"); err != nil {
				return lines, err
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return lines, nil
}

// countLines counts the different lines in the log and all that was rotated, by their numbers.
func countLines(dir string) (int, error) {
	files, err := filepath.Glob(filepath.Join(dir, "process.log*"))
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, path := range files {
		if err := readNumbers(path, seen); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return len(seen), nil
}

func readNumbers(path string, seen map[string]bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	var content io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if content, err = gzip.NewReader(file); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(content)
	for lines.Scan() {
		if number, _, ok := strings.Cut(lines.Text(), " "); ok && len(lines.Text()) == lineLength-1 {
			seen[number] = true
		}
	}
	return lines.Err()
}
