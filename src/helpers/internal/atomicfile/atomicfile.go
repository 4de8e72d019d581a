// Package atomicfile replaces files as a whole: a reader, a crash or a full disk sees the old content or the new, never
// a part.
package atomicfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write replaces the file at path, synced to the disk, with exactly this mode whatever the umask is. It creates missing
// parent directories with mode 0755. On an error the old file stays and nothing is left behind.
func Write(path string, content []byte, mode fs.FileMode) error {
	return WriteFrom(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// WriteFrom is Write for content that is produced by a function. An error of write is returned as it is, wrapped, and
// the old file stays.
func WriteFrom(path string, mode fs.FileMode, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = file.Cleanup() }() // does nothing once the file is in its place
	if err := write(file); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
