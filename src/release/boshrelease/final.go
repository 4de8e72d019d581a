package boshrelease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/cloudfoundry/bosh-cli/v7/releasedir"
	boshblob "github.com/cloudfoundry/bosh-utils/blobstore"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
	boshsys "github.com/cloudfoundry/bosh-utils/system"
	boshuuid "github.com/cloudfoundry/bosh-utils/uuid"
	"github.com/cppforlife/go-semi-semantic/version"

	"kubernetes-release/release/components"
)

// finalFiles are what a final release writes to the repository, for the operator to commit.
var finalFiles = []string{".final_builds", "releases", "config/blobs.yml"}

// semanticVersion is a version of semver.org without build metadata: "+" marks dev releases.
var semanticVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// VersionError is a version that a final release cannot have.
type VersionError struct{ Version, Reason string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("a final release cannot have the version %q: %s", e.Version, e.Reason)
}

// DirtyError is a work tree with changes that are not committed.
type DirtyError struct{ Changes string }

func (e *DirtyError) Error() string {
	return "a final release is built from a commit, but the work tree has changes; commit or stash them:\n" + e.Changes
}

// CheckFinal returns why a final release cannot be built: a *VersionError, *DirtyError or *BlobstoreError. It writes
// nothing.
func (b Builder) CheckFinal(ctx context.Context, version string) error {
	_, err := b.checkFinal(ctx, version)
	return err
}

func (b Builder) checkFinal(ctx context.Context, number string) (boshblob.DigestBlobstore, error) {
	if !semanticVersion.MatchString(number) {
		return nil, &VersionError{
			number,
			"it must be MAJOR.MINOR.PATCH, such as 1.2.0, or with a pre-release part, such as 1.2.0-rc.1; " +
				"make final-release VERSION=1.2.0 sets it",
		}
	}
	name, err := releaseName(b.Root)
	if err != nil {
		return nil, err
	}
	files := boshsys.NewOsFileSystem(boshlog.NewLogger(boshlog.LevelNone))
	index := releasedir.NewFSReleaseIndex(
		"final", filepath.Join(b.Root, "releases"), indexReporter{}, boshuuid.NewGenerator(), files,
	)
	if err := mustBeLater(index, name, number); err != nil {
		return nil, err
	}
	if err := b.mustBeCommitted(ctx); err != nil {
		return nil, err
	}
	return openBlobstore(ctx, b.Root, files)
}

// mustBeLater returns a *VersionError unless the version is later than all that exist: "latest" in a manifest would
// never mean it, and the versions of dev releases, which begin with the last tag, would go back.
func mustBeLater(index releasedir.ReleaseIndex, name, number string) error {
	parsed, err := version.NewVersionFromString(number)
	if err != nil {
		return &VersionError{number, err.Error()}
	}
	last, err := index.LastVersion(name)
	if err != nil {
		return err
	}
	if last != nil && !parsed.IsGt(*last) {
		return &VersionError{
			number, fmt.Sprintf("it must be later than %s, the last in releases/%s/index.yml", last, name),
		}
	}
	return nil
}

// mustBeCommitted returns a *DirtyError if the work tree has changes other than what a final release itself writes, so
// that one that failed halfway can be repeated.
func (b Builder) mustBeCommitted(ctx context.Context) error {
	arguments := []string{"status", "--porcelain", "--", "."}
	for _, file := range finalFiles {
		arguments = append(arguments, ":(exclude)"+file)
	}
	changes, err := git(ctx, b.Root, arguments...)
	if err != nil {
		return fmt.Errorf("a final release is built from a commit of a git repository: %w", err)
	}
	if changes != "" {
		return &DirtyError{changes}
	}
	return nil
}

// finalRepository tells bosh-cli whether the work tree has changes, without those of the final release that is being
// written.
type finalRepository struct {
	releasedir.GitRepo
	mustBeCommitted func() error
}

func (r finalRepository) MustNotBeDirty(bool) (dirty bool, err error) {
	return false, r.mustBeCommitted()
}

// BuildFinal builds a final release as "bosh create-release --final" does: it uploads the packages' blobs and the
// archives of jobs, packages and licenses to the blobstore of config/final.yml, adds them to config/blobs.yml and
// .final_builds and the release to releases/NAME, and writes .build/release/NAME-VERSION.tgz. Archives of earlier final
// releases that did not change are used again.
func (b Builder) BuildFinal(ctx context.Context, number string) (Result, error) {
	blobstore, err := b.checkFinal(ctx, number)
	if err != nil {
		return Result{}, err
	}
	parsed, err := version.NewVersionFromString(number)
	if err != nil {
		return Result{}, &VersionError{number, err.Error()}
	}
	name, err := b.stageFinal(ctx)
	if err != nil {
		return Result{}, err
	}
	tarball, err := b.finalize(ctx, name, parsed, blobstore)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: name, Version: number, Tarball: tarball}
	if result.SHA256, result.Size, err = fileDigest(filepath.Join(b.Root, tarball)); err != nil {
		return Result{}, err
	}
	_, _ = fmt.Fprintf(
		b.Log, "release: wrote %s (%s/%s), %s, sha256:%s\n", tarball, name, number, components.Size(result.Size),
		result.SHA256,
	)
	_, _ = fmt.Fprintf(
		b.Log, "release: commit .final_builds, releases and config/blobs.yml, and tag the commit v%s\n", number,
	)
	return result, nil
}

// stageFinal writes the release folder, and the same blobs, licenses and SBOM to the repository. It returns the
// release's name.
func (b Builder) stageFinal(ctx context.Context) (string, error) {
	blobs, err := b.writeBlobs(ctx)
	if err != nil {
		return "", err
	}
	staging := b.path("staging")
	if err := errors.Join(b.stage(staging, blobs), b.stageBlobs(b.Root, blobs)); err != nil {
		return "", err
	}
	name, err := releaseName(staging)
	if err != nil {
		return "", err
	}
	return name, b.writeSBOM(ctx, name, staging, b.Root, b.path("release"))
}

// finalize has bosh-cli build and finalize the release in the release folder. It returns the tarball's path below the
// repository.
func (b Builder) finalize(
	ctx context.Context, name string, number version.Version, blobstore boshblob.DigestBlobstore,
) (string, error) {
	temporary, remove, err := b.temporary()
	if err != nil {
		return "", err
	}
	defer remove()
	cli, err := b.openBOSHCLI(b.path("staging"), temporary)
	if err != nil {
		return "", err
	}
	defer cli.close()
	repository := finalRepository{
		releasedir.NewFSGitRepo(b.Root, cli.commands, cli.files),
		func() error { return b.mustBeCommitted(ctx) },
	}
	folder := cli.folder(repository, b.Root, blobstore)
	release, err := folder.BuildRelease(name, number, false)
	if err != nil {
		return "", err
	}
	if err := releasedir.NewFSBlobsDir(b.Root, cli.reporter, blobstore, cli.digests, cli.files, cli.logger).
		UploadBlobs(); err != nil {
		return "", err
	}
	// Before the release is in the index, because a version that is there is refused: what fails must be repeatable.
	// Finalizing changes nothing in the tarball, because BuildRelease uses archives of earlier final releases already
	// (bosh-cli: release/resource/resource.go, Build and Finalize).
	written, err := cli.write(release)
	if err != nil {
		return "", err
	}
	if err := folder.FinalizeRelease(release, false); err != nil {
		return "", err
	}
	cli.finish()
	tarball := filepath.Join(".build", "release", fmt.Sprintf("%s-%s.tgz", name, number.AsString()))
	return tarball, errors.Join(os.Chmod(written, 0o644), os.Rename(written, filepath.Join(b.Root, tarball)))
}
