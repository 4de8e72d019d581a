package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Task shows the progress of unpacking a tarball.
type Task interface {
	Step(format string, args ...any)
	End(err error)
}

// silent is a Task that shows nothing.
type silent struct{}

func (silent) Step(string, ...any) {}
func (silent) End(error)           {}

const mebibyte = 1 << 20

// gauge is a file that reports at every quarter how much of it has been read.
type gauge struct {
	file       *os.File
	size, read int64
	// step may be nil.
	step func(format string, args ...any)
}

// unpackInto unpacks a gzipped tar archive into dir, which must exist. step may be nil.
func unpackInto(ctx context.Context, path, dir string, step func(format string, args ...any)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	free, err := freeSpace(dir)
	if err != nil {
		return err
	}
	var output bytes.Buffer
	command := exec.CommandContext(ctx, "tar", "--no-same-owner", "-xz", "-C", dir)
	command.Env = append(os.Environ(), "LC_ALL=C")
	command.Stdin = &gauge{file: file, size: info.Size(), step: step}
	command.Stdout, command.Stderr = &output, &output
	err = command.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case reportsFullDisk(output.Bytes()):
		return fmt.Errorf(
			"%w: the disk of %s had %d MiB of free space, and %s alone has %d MiB; free some space there, or use "+
				"another directory with --state",
			syscall.ENOSPC, dir, free/mebibyte, path, info.Size()/mebibyte,
		)
	default:
		first, _, _ := strings.Cut(strings.TrimSpace(output.String()), "\n")
		return fmt.Errorf("%w: %s", err, first)
	}
}

// Read implements io.Reader.
func (g *gauge) Read(p []byte) (int, error) {
	n, err := g.file.Read(p)
	before := g.quarters()
	g.read += int64(n)
	if g.step != nil && g.quarters() > before {
		g.step("unpacked %d of %d MiB", g.read/mebibyte, g.size/mebibyte)
	}
	return n, err
}

func (g *gauge) quarters() int64 { return 4 * g.read / max(g.size, 1) }

// freeSpace returns the free space, in bytes, on the disk of a directory.
func freeSpace(dir string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, fmt.Errorf("checking the free space on %s: %w", dir, err)
	}
	return disk.Bavail * uint64(disk.Bsize), nil
}

// cutShort matches tar's error about a block that was written in part; tar does not retry, and so does not report the
// reason.
var cutShort = regexp.MustCompile(`Wrote only \d+ of \d+ bytes`)

// reportsFullDisk reports whether the output of a program contains an error about a full disk.
func reportsFullDisk(output []byte) bool {
	return bytes.Contains(bytes.ToLower(output), []byte(syscall.ENOSPC.Error())) || cutShort.Match(output)
}
