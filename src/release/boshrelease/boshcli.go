package boshrelease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

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

	"kubernetes-release/internal/progress"
	"kubernetes-release/release/archive"
)

// createRelease creates the tarball of a release from its folder, in a temporary folder, and returns its path.
func (b Builder) createRelease(name, staging, temporary string, number version.Version) (tarball string, err error) {
	logger := boshlog.NewLogger(boshlog.LevelNone)
	files := boshsys.NewOsFileSystem(logger)
	if err := files.ChangeTempRoot(temporary); err != nil {
		return "", err
	}
	commands := boshsys.NewExecCmdRunner(logger)
	archives := compressor{Compressor: boshfile.NewTarballCompressor(commands, files), dir: temporary}
	digests := bicrypto.NewDigestCalculator(files, []boshcrypto.Algorithm{boshcrypto.DigestAlgorithmSHA256})
	releases := boshrel.NewProvider(commands, archives, digests, files, logger)

	// As in bosh-cli, except that the cache of archives is not in the user's home but in the build folder, where make clean removes it.
	step := progress.NewStep(b.Log, "release")
	defer step.Close()
	reporter := newIndexReporter(step, countEntries(staging))
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
	release, err := folder.BuildRelease(name, number, true)
	if err != nil {
		return "", err
	}
	reporter.part.Say("writing the tarball")
	if tarball, err = releases.NewArchiveWriter().Write(release, nil); err != nil {
		return "", err
	}
	step.Finish("packed %d jobs, packages and licenses", reporter.packed.Load())
	return tarball, nil
}

// countEntries counts the jobs, the packages and the license of a release.
func countEntries(staging string) int {
	count := 1
	for _, dir := range []string{"jobs", "packages"} {
		found, _ := os.ReadDir(filepath.Join(staging, dir))
		count += len(found)
	}
	return count
}

// indexReporter shows bosh-cli's progress.
type indexReporter struct {
	part   *progress.Part
	packed *atomic.Int64
}

func newIndexReporter(step *progress.Step, total int) indexReporter {
	r := indexReporter{step.Part("jobs and packages", 0), &atomic.Int64{}}
	r.part.Watch(func() (string, float64) {
		packed := r.packed.Load()
		return fmt.Sprintf("packed %d of %d", packed, total), float64(packed) / float64(total)
	})
	return r
}

func (r indexReporter) IndexEntryStartedAdding(string, string) {}

func (r indexReporter) IndexEntryFinishedAdding(kind, description string, err error) {
	if err != nil {
		r.part.Note("packing %s %s failed: %v", kind, description, err)
		return
	}
	r.packed.Add(1)
}

func (r indexReporter) IndexEntryDownloadStarted(string, string)         {}
func (r indexReporter) IndexEntryDownloadFinished(string, string, error) {}
func (r indexReporter) IndexEntryUploadStarted(string, string)           {}
func (r indexReporter) IndexEntryUploadFinished(string, string, error)   {}
func (r indexReporter) ReleaseIndexAdded(string, string, error)          {}

// compressor makes bosh-cli's archives reproducible; bosh-cli itself calls tar, which writes times and owners. The content is
// mostly compressed already, so it is fast rather than thorough.
type compressor struct {
	boshfile.Compressor
	dir string // for temporary archives
}

func (c compressor) CompressFilesInDir(dir string, options boshfile.CompressorOptions) (string, error) {
	return c.CompressSpecificFilesInDir(dir, []string{"."}, options)
}

// CompressSpecificFilesInDir keeps the order of files: release.MF must come first.
func (c compressor) CompressSpecificFilesInDir(dir string, files []string, _ boshfile.CompressorOptions) (string, error) {
	file, err := os.CreateTemp(c.dir, "archive.*.tgz")
	if err != nil {
		return "", err
	}
	if err := errors.Join(archive.WriteGzip(file, dir, files...), file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}
