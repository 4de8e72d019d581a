package boshrelease

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

	boshfile "github.com/cloudfoundry/bosh-utils/fileutil"
)

// epoch is the time of everything in an archive, so that the same content is the same bytes.
var epoch = time.Unix(0, 0).UTC()

// Tree is a folder of files that goes into an archive below a prefix.
type Tree struct {
	// Dir is the folder on this machine.
	Dir string
	// Prefix is its path in the archive; empty for the top.
	Prefix string
}

// entry is one file, folder or link of an archive.
type entry struct {
	name   string // path in the archive, with slashes
	source string // file on this machine
	mode   fs.FileMode
	link   string // target, for symbolic links
	size   int64
}

// entries lists what is in trees, sorted by name. Modes are 0755 or 0644 by whether the owner may execute; owners and
// times are left out.
func entries(trees []Tree) ([]entry, error) {
	var all []entry
	for _, tree := range trees {
		err := filepath.WalkDir(tree.Dir, func(file string, d fs.DirEntry, err error) error {
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
			return nil, fmt.Errorf("%s and %s would both be %s in the archive", all[i-1].source, all[i].source, all[i].name)
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
		err = fmt.Errorf("%s is neither file, folder nor link; an archive can't hold it", file)
	}
	return e, err
}

// Digest is a digest of names, modes and contents, as hexadecimal SHA-256.
func Digest(trees []Tree) (string, error) {
	all, err := entries(trees)
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	for _, e := range all {
		_, _ = fmt.Fprintf(digest, "%q %v %q %d\n", e.name, e.mode, e.link, e.size)
		if e.mode.IsRegular() {
			if err := copyFile(digest, e.source); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// WriteArchive writes a tar archive of trees, compressed by xz, to file, the same bytes for the same content. The file
// appears when it is complete.
func WriteArchive(ctx context.Context, file string, trees ...Tree) error {
	all, err := entries(trees)
	if err != nil {
		return err
	}
	return writeFile(file, func(w io.Writer) error { return writeTarXZ(ctx, w, all) })
}

// writeFile writes a file through a temporary one beside it.
func writeFile(file string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	if err := errors.Join(write(temporary), temporary.Chmod(0o644), temporary.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(temporary.Name(), file)
}

// writeTarXZ compresses with the program xz. For Go programs its fastest preset takes less time than gzip's best and
// makes a quarter less of them; stemcells unpack it, as they bring dpkg-dev, which needs xz-utils.
func writeTarXZ(ctx context.Context, w io.Writer, all []entry) error {
	command := exec.CommandContext(ctx, "xz", "--compress", "--stdout", "-1", "--threads=1") // several threads cut the content into blocks
	var complaints strings.Builder
	command.Stdout, command.Stderr = w, &complaints
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w; make setup installs it (xz-utils)", err)
	}
	err = errors.Join(writeTar(input, all), input.Close())
	if ended := command.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("xz: %w: %s", ended, strings.TrimSpace(complaints.String())))
	}
	return err
}

func writeTarGz(w io.Writer, all []entry) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, all), compressed.Close())
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
	header := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Size: e.size, ModTime: epoch, Linkname: e.link, Format: tar.FormatUSTAR}
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
	return copyFile(archive, e.source)
}

func copyFile(w io.Writer, file string) error {
	source, err := os.Open(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, source)
	return errors.Join(err, source.Close())
}

// compressor makes bosh-cli's archives the same bytes for the same content; bosh-cli itself calls tar, which writes
// times and owners. What it packs is compressed already, so it is fast rather than thorough.
type compressor struct {
	boshfile.Compressor
	dir string // for temporary archives
}

func (c compressor) CompressFilesInDir(dir string, options boshfile.CompressorOptions) (string, error) {
	return c.CompressSpecificFilesInDir(dir, []string{"."}, options)
}

func (c compressor) CompressSpecificFilesInDir(dir string, files []string, _ boshfile.CompressorOptions) (string, error) {
	var all []entry
	for _, file := range files { // in the caller's order: release.MF is to come first
		some, err := entriesOf(dir, file)
		if err != nil {
			return "", err
		}
		all = append(all, some...)
	}
	archive, err := os.CreateTemp(c.dir, "archive.*.tgz")
	if err != nil {
		return "", err
	}
	if err := errors.Join(writeTarGz(archive, all), archive.Close()); err != nil {
		return "", errors.Join(err, os.Remove(archive.Name()))
	}
	return archive.Name(), nil
}

// entriesOf gives a file, or a folder with all that is in it, by its path below dir; "." is dir itself.
func entriesOf(dir, file string) ([]entry, error) {
	full := filepath.Join(dir, file)
	info, err := os.Lstat(full)
	if err != nil {
		return nil, err
	}
	if file == "." {
		return entries([]Tree{{Dir: full}})
	}
	top, err := newEntry(filepath.ToSlash(file), full)
	if err != nil || !info.IsDir() {
		return []entry{top}, err
	}
	below, err := entries([]Tree{{Dir: full, Prefix: filepath.ToSlash(file)}})
	// The folder itself is among its entries, under the prefix.
	return below, err
}
