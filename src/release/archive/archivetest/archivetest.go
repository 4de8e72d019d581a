// Package archivetest reads archives in tests.
package archivetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// Files returns the files of a tar archive, compressed with gzip or xz, by name, without a leading "./".
func Files(t testing.TB, archive []byte) map[string][]byte {
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
