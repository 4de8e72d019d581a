// Package archive writes tar archives that are the same bytes for the same content: files are sorted, and owners and
// times are left out.
package archive

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-release/internal/atomicfile"
)

// epoch is the time of all files in an archive.
var epoch = time.Unix(0, 0).UTC()

// Tree is a folder whose content goes into an archive below a prefix.
type Tree struct {
	// Dir is the folder on this machine.
	Dir string
	// Prefix is its path in the archive; empty for the top.
	Prefix string
}

// entry is a file, folder or symbolic link of an archive.
type entry struct {
	name   string // path in the archive, with slashes
	source string // file on this machine
	mode   fs.FileMode
	link   string // target, for symbolic links
	size   int64
}

// entries lists the content of trees, sorted by name. Modes are 0755 if the owner can execute the file, else 0644.
func entries(trees []Tree) ([]entry, error) {
	var all []entry
	for _, tree := range trees {
		err := filepath.WalkDir(tree.Dir, func(file string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(tree.Dir, file)
			if err != nil {
				return err
			}
			name := path.Join(tree.Prefix, filepath.ToSlash(relative))
			if name == "." {
				return nil
			}
			e, err := newEntry(name, file)
			if err == nil {
				all = append(all, e)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	all = slices.CompactFunc(all, func(a, b entry) bool { return a.name == b.name && a.mode.IsDir() && b.mode.IsDir() })
	for i := 1; i < len(all); i++ {
		if all[i].name == all[i-1].name {
			return nil, fmt.Errorf(
				"%s and %s would both be %s in the archive", all[i-1].source, all[i].source, all[i].name,
			)
		}
	}
	return all, nil
}

func newEntry(name, file string) (entry, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return entry{}, err
	}
	e := entry{name: name, source: file, mode: 0o644}
	switch {
	case info.IsDir():
		e.mode = fs.ModeDir | 0o755
	case info.Mode()&fs.ModeSymlink != 0:
		e.mode = fs.ModeSymlink | 0o777
		e.link, err = os.Readlink(file)
	case info.Mode().IsRegular():
		e.size = info.Size()
		if info.Mode()&0o100 != 0 {
			e.mode = 0o755
		}
	default:
		err = fmt.Errorf("%s is not a file, folder or symbolic link; an archive cannot hold it", file)
	}
	return e, err
}

// Digest is the hexadecimal SHA-256 of all that determines what WriteXZ writes of trees: names, modes and contents, and
// how they are compressed.
func Digest(trees []Tree) (string, error) {
	all, err := entries(trees)
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	_, _ = fmt.Fprintf(digest, "%q\n", xzArguments)
	for _, e := range all {
		_, _ = fmt.Fprintf(digest, "%q %v %q %d\n", e.name, e.mode, e.link, e.size)
		if e.mode.IsRegular() {
			if err := CopyFile(digest, e.source); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// WriteXZ atomically writes a tar archive of trees to file, compressed with xz.
func WriteXZ(ctx context.Context, file string, trees ...Tree) error {
	all, err := entries(trees)
	if err != nil {
		return err
	}
	return atomicfile.WriteFrom(file, 0o644, func(w io.Writer) error { return writeTarXZ(ctx, w, all) })
}

// xzArguments: for Go programs, xz's fastest preset takes less time than gzip's best, and the result is a quarter
// smaller; with the filter for addresses of x86 and a larger dictionary, which needs 8 MiB to unpack, it takes a fifth
// more time and the result is 6% smaller again. Several threads would split the content into blocks.
var xzArguments = []string{"--compress", "--stdout", "--x86", "--lzma2=preset=1,dict=8MiB", "--threads=1"}

// writeTarXZ compresses with the program xz. Stemcells can unpack the result: they have dpkg-dev, which depends on
// xz-utils.
func writeTarXZ(ctx context.Context, w io.Writer, all []entry) error {
	command := exec.CommandContext(ctx, "xz", xzArguments...)
	var stderr strings.Builder
	command.Stdout, command.Stderr = w, &stderr
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w; make setup installs it (xz-utils)", err)
	}
	err = errors.Join(writeTar(input, all), input.Close())
	if failed := command.Wait(); failed != nil {
		err = errors.Join(err, fmt.Errorf("xz: %w: %s", failed, strings.TrimSpace(stderr.String())))
	}
	return err
}

// WriteGzip writes a tar archive of files below dir, compressed with gzip at its fastest. Folders include their
// content; "." is all of dir. The archive has the files in the given order.
func WriteGzip(w io.Writer, dir string, files ...string) error {
	var all []entry
	for _, file := range files {
		some, err := entriesOf(dir, file)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, all), compressed.Close())
}

// entriesOf lists a file, or a folder and its content, by its path below dir; "." is dir itself.
func entriesOf(dir, file string) ([]entry, error) {
	full := filepath.Join(dir, file)
	info, err := os.Lstat(full)
	if err != nil {
		return nil, err
	}
	if file == "." {
		return entries([]Tree{{Dir: full}})
	}
	if info.IsDir() {
		return entries([]Tree{{Dir: full, Prefix: filepath.ToSlash(file)}}) // includes the folder itself
	}
	only, err := newEntry(filepath.ToSlash(file), full)
	return []entry{only}, err
}

func writeTar(w io.Writer, all []entry) error {
	archive := tar.NewWriter(w)
	for _, e := range all {
		if err := writeEntry(archive, e); err != nil {
			return err
		}
	}
	return archive.Close()
}

func writeEntry(archive *tar.Writer, e entry) error {
	header := &tar.Header{
		Name:     e.name,
		Mode:     int64(e.mode.Perm()),
		Size:     e.size,
		ModTime:  epoch,
		Linkname: e.link,
		Format:   tar.FormatUSTAR,
	}
	switch {
	case e.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, e.name+"/"
	case e.mode&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
	default:
		header.Typeflag = tar.TypeReg
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	return CopyFile(archive, e.source)
}

// CopyFile copies the content of a file to w.
func CopyFile(w io.Writer, file string) error {
	source, err := os.Open(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, source)
	return errors.Join(err, source.Close())
}
