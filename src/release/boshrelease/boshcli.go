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
	boshblob "github.com/cloudfoundry/bosh-utils/blobstore"
	boshcrypto "github.com/cloudfoundry/bosh-utils/crypto"
	boshfile "github.com/cloudfoundry/bosh-utils/fileutil"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
	boshsys "github.com/cloudfoundry/bosh-utils/system"
	boshuuid "github.com/cloudfoundry/bosh-utils/uuid"
	"github.com/cppforlife/go-semi-semantic/version"

	"kubernetes-release/release/archive"
	"kubernetes-release/release/progress"
)

// boshCLI is what bosh-cli consists of, for one release folder.
type boshCLI struct {
	staging   string // the release folder
	temporary string // for archives that are not in the tarball yet
	logger    boshlog.Logger
	files     boshsys.FileSystem
	commands  boshsys.CmdRunner
	digests   bicrypto.DigestCalculator
	uuids     boshuuid.Generator
	releases  boshrel.Provider
	step      *progress.Step
	reporter  indexReporter
}

// openBOSHCLI prepares bosh-cli; close ends the display of its progress.
func (b Builder) openBOSHCLI(staging, temporary string) (*boshCLI, error) {
	logger := boshlog.NewLogger(boshlog.LevelNone)
	files := boshsys.NewOsFileSystem(logger)
	if err := files.ChangeTempRoot(temporary); err != nil {
		return nil, err
	}
	c := &boshCLI{
		staging:   staging,
		temporary: temporary,
		logger:    logger,
		files:     files,
		commands:  boshsys.NewExecCmdRunner(logger),
		digests:   bicrypto.NewDigestCalculator(files, []boshcrypto.Algorithm{boshcrypto.DigestAlgorithmSHA256}),
		uuids:     boshuuid.NewGenerator(),
		step:      progress.NewStep(b.Log, "release"),
	}
	archives := compressor{Compressor: boshfile.NewTarballCompressor(c.commands, files), dir: temporary}
	c.releases = boshrel.NewProvider(c.commands, archives, c.digests, files, logger)
	c.reporter = newIndexReporter(c.step, countEntries(staging))
	return c, nil
}

func (c *boshCLI) close() { c.step.Close() }

// folder is the release folder. The final index is below finalRoot; its archives are in a blobstore, nil for none.
//
// As in bosh-cli, except that the cache of archives is not in the user's home but in the build folder, where make clean
// removes it.
func (c *boshCLI) folder(
	repository releasedir.GitRepo, finalRoot string, blobstore boshblob.DigestBlobstore,
) releasedir.FSReleaseDir {
	cache := filepath.Join(c.temporary, "cache")
	indices := func(
		dir string, final bool, reporter index.Reporter, store boshblob.DigestBlobstore,
	) boshrel.ArchiveIndicies {
		blobs := index.NewFSIndexBlobs(cache, reporter, store, c.files)
		return boshrel.ArchiveIndicies{
			Jobs: index.NewFSIndex("job", filepath.Join(dir, "jobs"), true, final, reporter, blobs, c.files),
			Packages: index.NewFSIndex(
				"package", filepath.Join(dir, "packages"), true, final, reporter, blobs, c.files,
			),
			Licenses: index.NewFSIndex(
				"license", filepath.Join(dir, "license"), false, final, reporter, blobs, c.files,
			),
		}
	}
	dev := indices(filepath.Join(c.staging, ".dev_builds"), false, c.reporter, nil)
	final := indices(filepath.Join(finalRoot, ".final_builds"), true, uploadReporter{c.reporter}, blobstore)
	noBlobstore := releasedir.NewErrBlobstore(errors.New("the blobs of a release folder are built, not downloaded"))
	return releasedir.NewFSReleaseDir(
		c.staging,
		releasedir.NewFSConfig(
			filepath.Join(c.staging, "config", "final.yml"), filepath.Join(c.staging, "config", "private.yml"), c.files,
		),
		repository,
		releasedir.NewFSBlobsDir(c.staging, nil, noBlobstore, c.digests, c.files, c.logger),
		releasedir.NewFSGenerator(c.staging, c.files),
		releasedir.NewFSReleaseIndex("dev", filepath.Join(c.staging, "dev_releases"), c.reporter, c.uuids, c.files),
		releasedir.NewFSReleaseIndex("final", filepath.Join(finalRoot, "releases"), c.reporter, c.uuids, c.files),
		final,
		boshrel.NewBuiltReader(c.releases.NewMultiReader(c.staging), dev, final, archivesAtOnce),
		clock.NewClock(),
		c.files,
		archivesAtOnce,
	)
}

// write writes a release's tarball to the temporary folder and returns its path.
func (c *boshCLI) write(release boshrel.Release) (string, error) {
	c.reporter.part.Say("writing the tarball")
	return c.releases.NewArchiveWriter().Write(release, nil)
}

func (c *boshCLI) finish() {
	c.step.Finish("packed %d jobs, packages and licenses", c.reporter.packed.Load())
}

// createRelease creates the tarball of a dev release from its folder, in a temporary folder, and returns its path.
func (b Builder) createRelease(name, staging, temporary string, number version.Version) (tarball string, err error) {
	cli, err := b.openBOSHCLI(staging, temporary)
	if err != nil {
		return "", err
	}
	defer cli.close()
	release, err := cli.folder(releasedir.NewFSGitRepo(staging, cli.commands, cli.files), staging, nil).
		BuildRelease(name, number, true)
	if err != nil {
		return "", err
	}
	if tarball, err = cli.write(release); err != nil {
		return "", err
	}
	cli.finish()
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

func (r indexReporter) IndexEntryDownloadStarted(string, string)          {}
func (r indexReporter) IndexEntryDownloadFinished(string, string, error)  {}
func (r indexReporter) IndexEntryUploadStarted(string, string)            {}
func (r indexReporter) IndexEntryUploadFinished(string, string, error)    {}
func (r indexReporter) ReleaseIndexAdded(string, string, error)           {}
func (r indexReporter) BlobDownloadStarted(string, int64, string, string) {}
func (r indexReporter) BlobDownloadFinished(string, string, error)        {}

func (r indexReporter) BlobUploadStarted(blob string, _ int64, _ string) {
	r.part.Say("uploading blob %s", blob)
}

func (r indexReporter) BlobUploadFinished(string, string, error) {}

// uploadReporter shows the progress of archives that are in the blobstore: these are uploaded, not packed.
type uploadReporter struct{ indexReporter }

func (r uploadReporter) IndexEntryFinishedAdding(string, string, error) {}

func (r uploadReporter) IndexEntryDownloadStarted(name, _ string) {
	r.part.Say("downloading %s of an earlier final release", name)
}

func (r uploadReporter) IndexEntryUploadStarted(name, _ string) { r.part.Say("uploading %s", name) }

// compressor makes bosh-cli's archives reproducible; bosh-cli itself calls tar, which writes times and owners. The
// content is mostly compressed already, so it is fast rather than thorough.
type compressor struct {
	boshfile.Compressor
	dir string // for temporary archives
}

func (c compressor) CompressFilesInDir(dir string, options boshfile.CompressorOptions) (string, error) {
	return c.CompressSpecificFilesInDir(dir, []string{"."}, options)
}

// CompressSpecificFilesInDir keeps the order of files: release.MF must come first.
func (c compressor) CompressSpecificFilesInDir(
	dir string, files []string, _ boshfile.CompressorOptions,
) (string, error) {
	file, err := os.CreateTemp(c.dir, "archive.*.tgz")
	if err != nil {
		return "", err
	}
	if err := errors.Join(archive.WriteGzip(file, dir, files...), file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}
