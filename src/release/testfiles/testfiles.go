// Package testfiles reads and writes files and archives in tests.
package testfiles

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Write writes a file with mode 0644, and creates its folder.
func Write(t testing.TB, file, content string) {
	t.Helper()
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644),
	); err != nil {
		t.Fatal(err)
	}
}

// Read returns the content of a file.
func Read(t testing.TB, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Unpack returns the files of a tar archive, compressed with gzip or xz, by name, without a leading "./".
func Unpack(t testing.TB, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	eachFile(t, archive, func(header *tar.Header, content []byte) {
		files[strings.TrimPrefix(header.Name, "./")] = content
	})
	return files
}

// Names returns the names of all entries of an archive, in order.
func Names(t testing.TB, archive []byte) []string {
	t.Helper()
	var names []string
	eachFile(t, archive, func(header *tar.Header, _ []byte) { names = append(names, header.Name) })
	return names
}

func eachFile(t testing.TB, archive []byte, f func(*tar.Header, []byte)) {
	t.Helper()
	for files := tar.NewReader(unpacked(t, archive)); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		f(header, content)
	}
}

func unpacked(t testing.TB, archive []byte) io.Reader {
	t.Helper()
	if bytes.HasPrefix(archive, []byte("\xfd7zXZ\x00")) {
		command := exec.CommandContext(t.Context(), "xz", "--decompress", "--stdout")
		command.Stdin = bytes.NewReader(archive)
		content, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(content)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return unzipped
}
