// Package tail takes the last lines of a text or a log, which is what an error repeats of it.
package tail

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Lines returns the last n lines of a text, without blank space at its start and end.
func Lines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// File returns the last n lines of what a file holds after the offset from, which must fit into its last maxBytes
// bytes. An offset behind the end counts as 0: the file was truncated since.
func File(path string, from, maxBytes int64, n int) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if from > info.Size() {
		from = 0
	}
	from = max(from, info.Size()-maxBytes)
	content, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return Lines(string(content), n), nil
}

// Indent puts a prefix before each line.
func Indent(text, prefix string) string {
	return prefix + strings.ReplaceAll(text, "\n", "\n"+prefix)
}
