package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/release/testfiles"
)

func TestArchiveIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "in", "b"), "content")
	testfiles.Write(t, filepath.Join(dir, "in", "sub", "a"), "more")
	if err := errors.Join(
		os.Chmod(filepath.Join(dir, "in", "b"), 0o711), os.Symlink("b", filepath.Join(dir, "in", "link")),
	); err != nil {
		t.Fatal(err)
	}
	trees := []Tree{{Dir: filepath.Join(dir, "in"), Prefix: "bin"}}
	write := func(name string) []byte {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := WriteXZ(t.Context(), file, trees...); err != nil {
			t.Fatal(err)
		}
		return testfiles.Read(t, file)
	}
	first := write("first.tar.xz")
	digest, err := Digest(trees)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "in", "b"), time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, write("second.tar.xz")) {
		t.Error("the archive depends on the time of a file")
	}
	want := []string{"bin/", "bin/b", "bin/link", "bin/sub/", "bin/sub/a"}
	if names := testfiles.Names(t, first); !slices.Equal(names, want) {
		t.Errorf("the archive holds %v, want %v", names, want)
	}
	if err := os.Chmod(filepath.Join(dir, "in", "b"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, err := Digest(trees); err != nil || changed == digest {
		t.Errorf("the digest does not depend on modes: %v", err)
	}
}

func TestDigestDependsOnTheCompression(t *testing.T) {
	trees := []Tree{{Dir: t.TempDir()}}
	before, err := Digest(trees)
	if err != nil {
		t.Fatal(err)
	}
	defer func(arguments []string) { xzArguments = arguments }(xzArguments)
	xzArguments = append(slices.Clone(xzArguments), "--extreme")
	if after, err := Digest(trees); err != nil || after == before {
		t.Errorf("the digest is the same with other arguments of xz: %v", err)
	}
}

func TestSameNameTwiceIsAnError(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	testfiles.Write(t, filepath.Join(one, "same"), "1")
	testfiles.Write(t, filepath.Join(two, "same"), "2")
	err := WriteXZ(
		t.Context(), filepath.Join(t.TempDir(), "x.tar.xz"), Tree{Dir: one, Prefix: "bin"},
		Tree{Dir: two, Prefix: "bin"},
	)
	if err == nil || !strings.Contains(err.Error(), "would both be bin/same") {
		t.Errorf("got %v", err)
	}
}
