package vulnerabilities

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
)

// How files begin (RFC 1952, the .xz and ELF formats). A tar archive of GNU or POSIX has ustar at an offset.
const (
	gzipMagic   = "\x1f\x8b"
	xzMagic     = "\xfd7zXZ\x00"
	elfMagic    = "\x7fELF"
	ustarMagic  = "ustar"
	ustarOffset = 257
)

// eachProgram calls visit with every Go program in a file, and with a copy of it, which is removed afterwards. It looks
// into tar archives, plain or compressed with gzip or xz, at any depth: a release's tarball has packages, these have
// blobs, and one of these has container images.
func eachProgram(ctx context.Context, name string, file io.Reader, visit func(name, program string) error) error {
	content := bufio.NewReader(file)
	start, err := content.Peek(ustarOffset + len(ustarMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(start, []byte(gzipMagic)):
		unpacked, err := gzip.NewReader(content)
		if err != nil {
			return err
		}
		return eachProgram(ctx, name, unpacked, visit)
	case bytes.HasPrefix(start, []byte(xzMagic)):
		return unpackXZ(ctx, content, func(unpacked io.Reader) error { return eachProgram(ctx, name, unpacked, visit) })
	case bytes.HasSuffix(start, []byte(ustarMagic)):
		return eachProgramInTar(ctx, content, visit)
	case bytes.HasPrefix(start, []byte(elfMagic)):
		return withCopy(content, func(program string) error {
			if _, err := buildinfo.ReadFile(program); err != nil { // a C program
				return nil //nolint:nilerr // it has no modules
			}
			return visit(path.Base(name), program)
		})
	}
	return nil
}

func eachProgramInTar(ctx context.Context, archive io.Reader, visit func(name, program string) error) error {
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := eachProgram(ctx, header.Name, files, visit); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// unpackXZ passes what the program xz unpacks to read.
func unpackXZ(ctx context.Context, packed io.Reader, read func(io.Reader) error) error {
	command := exec.CommandContext(ctx, "xz", "--decompress", "--stdout")
	var stderr strings.Builder
	command.Stdin, command.Stderr = packed, &stderr
	unpacked, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w; make setup installs it (xz-utils)", err)
	}
	err = read(unpacked)
	_, _ = io.Copy(io.Discard, unpacked) // what follows the end of the archive, so that xz ends
	if failed := command.Wait(); failed != nil {
		err = errors.Join(err, fmt.Errorf("xz: %w: %s", failed, strings.TrimSpace(stderr.String())))
	}
	return err
}

// withCopy calls use with a copy of content that exists until it returns.
func withCopy(content io.Reader, use func(file string) error) error {
	file, err := os.CreateTemp("", "program-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return use(file.Name())
}
