package boshrelease

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"code.cloudfoundry.org/clock"
	bicrypto "github.com/cloudfoundry/bosh-cli/v7/crypto"
	boshrel "github.com/cloudfoundry/bosh-cli/v7/release"
	"github.com/cloudfoundry/bosh-cli/v7/releasedir"
	"github.com/cloudfoundry/bosh-cli/v7/releasedir/index"
	boshcrypto "github.com/cloudfoundry/bosh-utils/crypto"
	boshfile "github.com/cloudfoundry/bosh-utils/fileutil"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
	boshsys "github.com/cloudfoundry/bosh-utils/system"
	boshuuid "github.com/cloudfoundry/bosh-utils/uuid"
	"github.com/cppforlife/go-semi-semantic/version"
	"golang.org/x/sync/errgroup"
	"gopkg.in/yaml.v3"

	"kubernetes-release/release/components"
)

const (
	// layout is raised when this package lays a release out in another way, so that an older tarball counts no more.
	layout = 1
	// archivesAtOnce is how many archives are compressed beside each other.
	archivesAtOnce = 2
)

// Result is the release that was built.
type Result struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Content is a digest of all that went into the release.
	Content string `json:"content"`
	// Tarball is the tarball's path below the repository.
	Tarball string `json:"tarball"`
	// SHA256 is the tarball's digest, hexadecimal.
	SHA256 string `json:"sha256"`
	// Size is the tarball's, in bytes.
	Size int64 `json:"size"`
}

// Blob is a package's content as the release holds it.
type Blob struct {
	// Digest is of what is in it.
	Digest string `json:"digest"`
	// SHA256 is of the file, hexadecimal.
	SHA256 string `json:"sha256"`
	// Size is the file's, in bytes.
	Size int64 `json:"size"`
}

// Build writes the dev release's tarball, .build/release/NAME.tgz, and beside it the licences and the bill of
// materials that are in it. When nothing that goes into it changed, the tarball is left as it is.
func (b Builder) Build(ctx context.Context) (Result, error) {
	blobs, err := b.writeBlobs(ctx)
	if err != nil {
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
		_, _ = fmt.Fprintf(b.Log, "release: %s/%s is up to date\n", last.Name, last.Version)
		return last, nil
	}
	begun := time.Now()
	result, err := b.create(ctx, blobs, content)
	if err != nil {
		return Result{}, err
	}
	_, _ = fmt.Fprintf(b.Log, "release: wrote %s/%s in %s, %s\n", result.Name, result.Version,
		components.Took(time.Since(begun)), components.Size(result.Size))
	return result, writeJSON(b.record(), result)
}

// BuildTarball is Build for the command line: it reports where the tarball is.
func (b Builder) BuildTarball(ctx context.Context) error {
	result, err := b.Build(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.Log, "%s/%s: %s, %s\n", result.Name, result.Version, result.Tarball, components.Size(result.Size))
	return err
}

func (b Builder) record() string { return b.path("release", "release.json") }

// Last gives the release that was built last.
func (b Builder) Last() (Result, error) {
	var last Result
	if err := readJSON(b.record(), &last); err != nil {
		return Result{}, err
	}
	if last.Tarball == "" || !b.intact(last) {
		return Result{}, fmt.Errorf("there is no release in %s; make release builds it", filepath.Dir(b.record()))
	}
	return last, nil
}

func (b Builder) intact(last Result) bool {
	info, err := os.Stat(filepath.Join(b.Root, last.Tarball))
	return err == nil && info.Size() == last.Size
}

// writeBlobs packs what each package ships and gives the blobs by package name.
func (b Builder) writeBlobs(ctx context.Context) (map[string]Blob, error) {
	packages := b.Packages()
	blobs := make([]Blob, len(packages))
	progress := components.NewProgress(b.Log, "blobs", len(packages))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(archivesAtOnce)
	for i, p := range packages {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			var err error
			if blobs[i], err = b.writeBlob(ctx, p, progress); err != nil {
				return fmt.Errorf("package %s: %w", p.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if progress.Quiet() {
		progress.Say("all", "up to date")
	}
	named := map[string]Blob{}
	for i, p := range packages {
		named[p.Name] = blobs[i]
	}
	return named, nil
}

func (b Builder) blobFile(name string) string { return b.path("blobs", name, name+".tar.xz") }

func (b Builder) writeBlob(ctx context.Context, p Package, progress *components.Progress) (Blob, error) {
	begun := time.Now()
	for _, tree := range p.Trees {
		if found, err := os.ReadDir(tree.Dir); err != nil || len(found) == 0 {
			return Blob{}, fmt.Errorf("%s is empty: what the package ships is not built; make components helpers images builds it (%w)",
				tree.Dir, cmp.Or(err, fs.ErrNotExist))
		}
	}
	digest, err := Digest(p.Trees)
	if err != nil {
		return Blob{}, err
	}
	stamp := b.path("stamps", "blob-"+p.Name+".json")
	var blob Blob
	if err := readJSON(stamp, &blob); err != nil {
		return Blob{}, err
	}
	file := b.blobFile(p.Name)
	if info, err := os.Stat(file); err == nil && blob.Digest == digest && info.Size() == blob.Size {
		progress.Skip()
		return blob, nil
	}
	if err := WriteArchive(ctx, file, p.Trees...); err != nil {
		return Blob{}, err
	}
	blob = Blob{Digest: digest}
	if blob.SHA256, blob.Size, err = fileDigest(file); err != nil {
		return Blob{}, err
	}
	progress.Done(p.Name, "packed in %s, %s", components.Took(time.Since(begun)), components.Size(blob.Size))
	return blob, writeJSON(stamp, blob)
}

// fileDigest gives a file's SHA-256 and size.
func fileDigest(file string) (string, int64, error) {
	digest := sha256.New()
	if err := copyFile(digest, file); err != nil {
		return "", 0, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(digest.Sum(nil)), info.Size(), nil
}

// releaseFiles are the folders and files of the repository that are part of the release.
func (b Builder) releaseFiles() ([]string, error) {
	files := []string{"config/final.yml", "jobs", "packages"}
	for _, pattern := range []string{"LICENSE*", "NOTICE*"} {
		found, err := filepath.Glob(filepath.Join(b.Root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			files = append(files, filepath.Base(file))
		}
	}
	return files, nil
}

// contentDigest digests all that goes into the release. Links among the jobs count as what they lead to.
func (b Builder) contentDigest(blobs map[string]Blob) (string, error) {
	digest := sha256.New()
	_, _ = fmt.Fprintln(digest, "layout", layout)
	files, err := b.releaseFiles()
	if err != nil {
		return "", err
	}
	for _, file := range files {
		err := walkFollowing(filepath.Join(b.Root, file), func(path string, info fs.FileInfo) error {
			relative, err := filepath.Rel(b.Root, path)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(digest, "%q %t %d\n", relative, info.Mode()&0o100 != 0, info.Size())
			return copyFile(digest, path)
		})
		if err != nil {
			return "", err
		}
	}
	for _, p := range b.Packages() {
		_, _ = fmt.Fprintln(digest, p.Name, blobs[p.Name].SHA256)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// walkFollowing calls f for every regular file at or below a path, following links.
func walkFollowing(path string, f func(path string, info fs.FileInfo) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return f(path, info)
	}
	found, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, file := range found {
		if err := walkFollowing(filepath.Join(path, file.Name()), f); err != nil {
			return err
		}
	}
	return nil
}

// create lays the release folder out and has bosh-cli make a release of it.
func (b Builder) create(ctx context.Context, blobs map[string]Blob, content string) (Result, error) {
	staging := b.path("staging")
	if err := b.stage(ctx, staging, blobs); err != nil {
		return Result{}, err
	}
	number, err := devVersion(ctx, b.Root, content)
	if err != nil {
		return Result{}, err
	}
	temporary := b.path("tmp")
	if err := errors.Join(os.RemoveAll(temporary), os.MkdirAll(temporary, 0o755)); err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	name, archive, err := b.createRelease(staging, temporary, number)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: name, Version: number.AsString(), Content: content, Tarball: filepath.Join(".build", "release", name+".tgz")}
	if result.SHA256, result.Size, err = fileDigest(archive); err != nil {
		return Result{}, err
	}
	return result, errors.Join(os.Chmod(archive, 0o644), os.Rename(archive, filepath.Join(b.Root, result.Tarball)))
}

// stage makes the release folder: jobs, packages, blobs, licences. Links become the files that they lead to.
func (b Builder) stage(ctx context.Context, staging string, blobs map[string]Blob) error {
	if err := os.RemoveAll(staging); err != nil {
		return err
	}
	for _, dir := range []string{"src", "config", "blobs"} {
		if err := os.MkdirAll(filepath.Join(staging, dir), 0o755); err != nil {
			return err
		}
	}
	files, err := b.releaseFiles()
	if err != nil {
		return err
	}
	for _, file := range files {
		err := walkFollowing(filepath.Join(b.Root, file), func(path string, info fs.FileInfo) error {
			relative, err := filepath.Rel(b.Root, path)
			if err != nil {
				return err
			}
			return copyTo(filepath.Join(staging, relative), path, info.Mode().Perm())
		})
		if err != nil {
			return err
		}
	}
	if err := b.stageBlobs(staging, blobs); err != nil {
		return err
	}
	return b.stageBill(ctx, staging)
}

// stageBlobs puts the blobs and their index in place.
func (b Builder) stageBlobs(staging string, blobs map[string]Blob) error {
	type indexed struct {
		Size int64  `yaml:"size"`
		SHA  string `yaml:"sha"`
	}
	all := map[string]indexed{}
	for name, blob := range blobs {
		file := filepath.Join(name, name+".tar.xz")
		all[file] = indexed{blob.Size, "sha256:" + blob.SHA256}
		if err := linkOrCopy(filepath.Join(staging, "blobs", file), b.blobFile(name)); err != nil {
			return err
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(staging, "config", "blobs.yml"), text, 0o644)
}

func copyTo(to, from string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	return errors.Join(copyFile(file, from), file.Close())
}

func linkOrCopy(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	return copyTo(to, from, 0o644)
}

// createRelease gives the release's name and its tarball in a temporary folder.
func (b Builder) createRelease(staging, temporary string, number version.Version) (name, archive string, err error) {
	logger := boshlog.NewLogger(boshlog.LevelNone)
	files := boshsys.NewOsFileSystem(logger)
	if err := files.ChangeTempRoot(temporary); err != nil {
		return "", "", err
	}
	commands := boshsys.NewExecCmdRunner(logger)
	archives := compressor{Compressor: boshfile.NewTarballCompressor(commands, files), dir: temporary}
	digests := bicrypto.NewDigestCalculator(files, []boshcrypto.Algorithm{boshcrypto.DigestAlgorithmSHA256})
	releases := boshrel.NewProvider(commands, archives, digests, files, logger)

	// As bosh-cli puts a release folder together, but with the cache of archives in the build folder, where
	// make clean finds it, instead of the user's home.
	reporter := indexReporter{components.NewProgress(b.Log, "release", countEntries(staging))}
	cache := index.NewFSIndexBlobs(filepath.Join(temporary, "cache"), reporter, nil, files)
	indices := func(kind string, final bool) boshrel.ArchiveIndicies {
		dir := filepath.Join(staging, kind)
		return boshrel.ArchiveIndicies{
			Jobs:     index.NewFSIndex("job", filepath.Join(dir, "jobs"), true, final, reporter, cache, files),
			Packages: index.NewFSIndex("package", filepath.Join(dir, "packages"), true, final, reporter, cache, files),
			Licenses: index.NewFSIndex("license", filepath.Join(dir, "license"), false, final, reporter, cache, files),
		}
	}
	dev, final := indices(".dev_builds", false), indices(".final_builds", true)
	uuids := boshuuid.NewGenerator()
	blobstore := releasedir.NewErrBlobstore(errors.New("the blobs of a dev release are built, not downloaded"))
	folder := releasedir.NewFSReleaseDir(
		staging,
		releasedir.NewFSConfig(filepath.Join(staging, "config", "final.yml"), filepath.Join(staging, "config", "private.yml"), files),
		releasedir.NewFSGitRepo(staging, commands, files),
		releasedir.NewFSBlobsDir(staging, nil, blobstore, digests, files, logger),
		releasedir.NewFSGenerator(staging, files),
		releasedir.NewFSReleaseIndex("dev", filepath.Join(staging, "dev_releases"), reporter, uuids, files),
		releasedir.NewFSReleaseIndex("final", filepath.Join(staging, "releases"), reporter, uuids, files),
		final,
		boshrel.NewBuiltReader(releases.NewMultiReader(staging), dev, final, archivesAtOnce),
		clock.NewClock(), files, archivesAtOnce,
	)
	if name, err = folder.DefaultName(); err != nil {
		return "", "", err
	}
	release, err := folder.BuildRelease(name, number, true)
	if err != nil {
		return "", "", err
	}
	archive, err = releases.NewArchiveWriter().Write(release, nil)
	return name, archive, err
}

// countEntries counts what goes into a release: jobs, packages and the licences.
func countEntries(staging string) int {
	count := 1
	for _, dir := range []string{"jobs", "packages"} {
		found, _ := os.ReadDir(filepath.Join(staging, dir))
		count += len(found)
	}
	return count
}

// indexReporter prints what bosh-cli tells of its progress.
type indexReporter struct{ progress *components.Progress }

func (r indexReporter) IndexEntryStartedAdding(string, string) {}

func (r indexReporter) IndexEntryFinishedAdding(kind, description string, err error) {
	if err != nil {
		r.progress.Say(kind, "%s failed: %v", description, err)
		return
	}
	name, _, _ := strings.Cut(description, "/") // the rest is the fingerprint
	r.progress.Done(kind+" "+name, "packed")
}

func (r indexReporter) IndexEntryDownloadStarted(string, string)         {}
func (r indexReporter) IndexEntryDownloadFinished(string, string, error) {}
func (r indexReporter) IndexEntryUploadStarted(string, string)           {}
func (r indexReporter) IndexEntryUploadFinished(string, string, error)   {}
func (r indexReporter) ReleaseIndexAdded(string, string, error)          {}
