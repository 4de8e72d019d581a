package boshrelease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kubernetes-release/release/archive"
	"kubernetes-release/release/components"
	"kubernetes-release/release/progress"
)

// layout must be incremented when this package changes the layout of the release, so that older tarballs are out of
// date.
const layout = 2

// Result is the release that was built.
type Result struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Content is a digest of everything in the release.
	Content string `json:"content"`
	// Tarball is the tarball's path below the repository.
	Tarball string `json:"tarball"`
	// SHA256 is the tarball's digest, hexadecimal.
	SHA256 string `json:"sha256"`
	// Size is the tarball's, in bytes.
	Size int64 `json:"size"`
}

// Build writes the dev release's tarball, .build/release/NAME.tgz, and next to it copies of its licenses and SBOM. It
// does nothing if the tarball is up to date.
func (b Builder) Build(ctx context.Context) (Result, error) {
	blobs, err := b.writeBlobs(ctx)
	if err != nil {
		return Result{}, err
	}
	name, err := releaseName(b.Root)
	if err != nil {
		return Result{}, err
	}
	if err := b.writeSBOM(ctx, name, b.path("release")); err != nil {
		return Result{}, err
	}
	content, err := b.contentDigest(blobs)
	if err != nil {
		return Result{}, err
	}
	var last Result
	if err := readJSON(b.record(), &last); err != nil {
		return Result{}, err
	}
	if last.Content == content && b.intact(last) {
		_, _ = fmt.Fprintf(b.Log, "release: %s (%s/%s) is up to date\n", last.Tarball, last.Name, last.Version)
		return last, nil
	}
	started := time.Now()
	result, err := b.create(ctx, name, blobs, content)
	if err != nil {
		return Result{}, err
	}
	_, _ = fmt.Fprintf(b.Log, "release: wrote %s (%s/%s) in %s, %s\n", result.Tarball, result.Name, result.Version,
		progress.Took(time.Since(started)), components.Size(result.Size))
	return result, writeJSON(b.record(), result)
}

// BuildTarball is Build without the result, which is in the log.
func (b Builder) BuildTarball(ctx context.Context) error {
	_, err := b.Build(ctx)
	return err
}

func (b Builder) record() string { return b.path("release", "release.json") }

// Last returns the release that was built last.
func (b Builder) Last() (Result, error) {
	var last Result
	if err := readJSON(b.record(), &last); err != nil {
		return Result{}, err
	}
	if last.Tarball == "" || !b.intact(last) {
		return Result{}, fmt.Errorf("no release in %s; make release builds it", filepath.Dir(b.record()))
	}
	return last, nil
}

func (b Builder) intact(last Result) bool {
	info, err := os.Stat(filepath.Join(b.Root, last.Tarball))
	return err == nil && info.Size() == last.Size
}

// contentDigest is a digest of everything in the release, the licenses and the SBOM as they are next to the tarball.
// Symbolic links count as the files that they point to.
func (b Builder) contentDigest(blobs map[string]Blob) (string, error) {
	digest := sha256.New()
	_, _ = fmt.Fprintln(digest, "layout", layout)
	err := b.eachFile(func(file releaseFile) error {
		_, _ = fmt.Fprintf(digest, "%q %t %d\n", file.relative, file.mode&0o100 != 0, file.size)
		return archive.CopyFile(digest, file.path)
	})
	if err != nil {
		return "", err
	}
	for _, file := range writtenFiles {
		_, _ = fmt.Fprintln(digest, file)
		if err := archive.CopyFile(digest, b.path("release", file)); err != nil {
			return "", err
		}
	}
	for _, p := range b.Packages() {
		_, _ = fmt.Fprintln(digest, p.Name, blobs[p.Name].SHA256)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// create prepares the release folder and has bosh-cli create a release from it.
func (b Builder) create(ctx context.Context, name string, blobs map[string]Blob, content string) (Result, error) {
	staging := b.path("staging")
	if err := b.stage(staging, blobs); err != nil {
		return Result{}, err
	}
	for _, file := range writtenFiles {
		if err := copyTo(filepath.Join(staging, file), b.path("release", file), 0o644); err != nil {
			return Result{}, err
		}
	}
	number, err := devVersion(ctx, b.Root, content)
	if err != nil {
		return Result{}, err
	}
	temporary, remove, err := b.temporary()
	if err != nil {
		return Result{}, err
	}
	defer remove()
	tarball, err := b.createRelease(name, staging, temporary, number)
	if err != nil {
		return Result{}, err
	}
	result := Result{
		Name:    name,
		Version: number.AsString(),
		Content: content,
		Tarball: filepath.Join(".build", "release", name+".tgz"),
	}
	if result.SHA256, result.Size, err = fileDigest(tarball); err != nil {
		return Result{}, err
	}
	return result, errors.Join(os.Chmod(tarball, 0o644), os.Rename(tarball, filepath.Join(b.Root, result.Tarball)))
}

// temporary creates an empty temporary folder.
func (b Builder) temporary() (dir string, remove func(), err error) {
	dir = b.path("tmp")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
