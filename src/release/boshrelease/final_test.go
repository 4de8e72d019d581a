package boshrelease

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"code.cloudfoundry.org/clock"
	boshrel "github.com/cloudfoundry/bosh-cli/v7/release"
	boshman "github.com/cloudfoundry/bosh-cli/v7/release/manifest"
	"github.com/cloudfoundry/bosh-cli/v7/releasedir"
	boshcrypto "github.com/cloudfoundry/bosh-utils/crypto"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
	boshsys "github.com/cloudfoundry/bosh-utils/system"
	boshuuid "github.com/cloudfoundry/bosh-utils/uuid"
	"github.com/cppforlife/go-semi-semantic/version"
	"gopkg.in/yaml.v3"

	"kubernetes-release/release/execute"
	"kubernetes-release/release/testfiles"
)

// committed is repository with everything committed and a local blobstore outside of it.
func committed(t *testing.T) Builder {
	t.Helper()
	b, log := repository(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log)
		}
	})
	blobstore(t, b, "{provider: local, options: {blobstore_path: "+t.TempDir()+"}}")
	testfiles.Write(t, filepath.Join(b.Root, "config/blobs.yml"), "--- {}\n")
	testfiles.Write(t, filepath.Join(b.Root, "LICENSE"), "a license")
	ignored, err := os.ReadFile("../../../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, filepath.Join(b.Root, ".gitignore"), string(ignored))
	runGit(t, b, "init", "--quiet")
	commit(t, b)
	return b
}

func blobstore(t *testing.T, b Builder, config string) {
	t.Helper()
	testfiles.Write(t, filepath.Join(b.Root, "config/final.yml"), "name: example\nblobstore: "+config+"\n")
}

func runGit(t *testing.T, b Builder, arguments ...string) {
	t.Helper()
	if _, err := git(t.Context(), b.Root, arguments...); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, b Builder) {
	t.Helper()
	runGit(t, b, "add", "--all")
	runGit(t, b, "-c", "user.name=Test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message", "test")
}

// stockFolder is a release folder as the stock CLI opens it.
func stockFolder(t *testing.T, dir string) releasedir.FSReleaseDir {
	t.Helper()
	releases, disk, commands, calculator := stock()
	files := otherHome{disk, t.TempDir()}
	provider := releasedir.NewProvider(
		silent{}, silent{}, silent{}, releases, calculator, commands, boshuuid.NewGenerator(), clock.NewClock(), files,
		[]boshcrypto.Algorithm{boshcrypto.DigestAlgorithmSHA256}, boshlog.NewLogger(boshlog.LevelNone),
	)
	return provider.NewFSReleaseDir(dir, 1)
}

// otherHome has its cache of archives, ~/.bosh/cache, in another home directory.
type otherHome struct {
	boshsys.FileSystem
	home string
}

func (f otherHome) ExpandPath(path string) (string, error) {
	return f.FileSystem.ExpandPath(strings.Replace(path, "~", f.home, 1))
}

// fingerprints returns the names and fingerprints of all parts of a release.
func fingerprints(manifest boshman.Manifest) map[string]string {
	all := map[string]string{"license": manifest.License.Fingerprint}
	for _, job := range manifest.Jobs {
		all["job "+job.Name] = job.Fingerprint
	}
	for _, p := range manifest.Packages {
		all["package "+p.Name] = p.Fingerprint
	}
	return all
}

// digests returns the names and digests of all archives of a release.
func digests(manifest boshman.Manifest) map[string]string {
	all := map[string]string{"license": manifest.License.SHA1}
	for _, job := range manifest.Jobs {
		all["job "+job.Name] = job.SHA1
	}
	for _, p := range manifest.Packages {
		all["package "+p.Name] = p.SHA1
	}
	return all
}

func readManifest(t *testing.T, tarball string) (manifest boshman.Manifest) {
	t.Helper()
	if err := yaml.Unmarshal(testfiles.Unpack(t, testfiles.Read(t, tarball))["release.MF"], &manifest); err != nil {
		t.Fatal(err)
	}
	return manifest
}

// buildStock is "bosh create-release --force" of the stock CLI.
func buildStock(t *testing.T, dir string) boshrel.Release {
	t.Helper()
	number, err := version.NewVersionFromString("0+dev.1")
	if err != nil {
		t.Fatal(err)
	}
	release, err := stockFolder(t, dir).BuildRelease("example", number, true)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// TestFinalRelease builds a final release, then uses it in a clone with the stock CLI, which has only the blobstore.
func TestFinalRelease(t *testing.T) {
	b := committed(t)
	result, err := b.BuildFinal(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	built := readManifest(t, filepath.Join(b.Root, result.Tarball))
	if result.Tarball != ".build/release/example-1.0.0.tgz" || built.Version != "1.0.0" || built.UncommittedChanges ||
		len(built.CommitHash) < 7 {
		t.Errorf("%s has the manifest %+v", result.Tarball, built)
	}

	commit(t, b)
	clone := filepath.Join(t.TempDir(), "clone")
	runGit(t, b, "clone", "--quiet", b.Root, clone)
	number, err := version.NewVersionFromString("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	found, err := stockFolder(t, clone).FindRelease("example", number)
	if err != nil {
		t.Fatal(err)
	}
	if got := found.Manifest(); !reflect.DeepEqual(digests(got), digests(built)) || got.CommitHash != built.CommitHash {
		t.Errorf("bosh create-release releases/example/example-1.0.0.yml gives\n%+v, expected\n%+v", got, built)
	}
	// Except for the licenses and the SBOM, which only a build writes.
	dev, expected := fingerprints(buildStock(t, clone).Manifest()), fingerprints(built)
	delete(dev, "license")
	delete(expected, "license")
	if !reflect.DeepEqual(dev, expected) {
		t.Errorf("bosh create-release in a clone gives\n%v, expected\n%v", dev, expected)
	}
}

// TestSecondFinalRelease changes one package: all other archives are those of the first release.
func TestSecondFinalRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("packs the release twice; make test-lab runs it")
	}
	b := committed(t)
	first, err := b.BuildFinal(t.Context(), "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	old := readManifest(t, filepath.Join(b.Root, first.Tarball))
	testfiles.Write(t, filepath.Join(b.Root, ".build/helpers/bin/helper"), "changed")
	// Nothing is committed in between: what a final release writes does not count as a change.
	second, err := b.BuildFinal(t.Context(), "1.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range readManifest(t, filepath.Join(b.Root, second.Tarball)).Packages {
		if changed := !reflect.DeepEqual(p, old.Packages[i]); changed != (p.Name == "helpers") {
			t.Errorf("package %s changed: %t", p.Name, changed)
		}
	}
}

func TestRefusesFinalRelease(t *testing.T) {
	b := committed(t)
	testfiles.Write(
		t, filepath.Join(b.Root, "releases/example/index.yml"),
		"builds:\n  a-uuid: {version: 1.0.0}\nformat-version: \"2\"\n",
	)
	commit(t, b)

	for _, number := range []string{
		"", "1", "1.2", "v1.2.0", "1.2.0+dev.1", "1.02.0", "1.2.0-", "latest",
		"1.0.0", "0.9.0", "1.0.0-rc.1", // not later than the last
	} {
		var refused *VersionError
		if _, err := b.BuildFinal(t.Context(), number); !errors.As(err, &refused) || refused.Version != number {
			t.Errorf("version %q: got %v", number, err)
		}
	}
	for _, number := range []string{"1.0.1", "1.2.0-rc.1", "10.0.0"} {
		if err := b.CheckFinal(t.Context(), number); err != nil {
			t.Errorf("version %s: %v", number, err)
		}
	}

	t.Run("changes", func(t *testing.T) {
		testfiles.Write(t, filepath.Join(b.Root, "jobs/server/monit"), "# changed\n")
		var dirty *DirtyError
		if err := b.CheckFinal(t.Context(), "1.0.1"); !errors.As(err, &dirty) ||
			!strings.Contains(dirty.Changes, "jobs/server/monit") {
			t.Errorf("got %v", err)
		}
		commit(t, b)
	})
}

func TestRefusesBlobstore(t *testing.T) {
	b := committed(t)
	// No credentials of this machine.
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CA_BUNDLE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI",
	} {
		t.Setenv(name, "")
	}
	for config, words := range map[string]string{
		"{}":                           "blobstore.provider",
		"{provider: dav, options: {}}": "local, s3 or gcs",
		"{provider: local}":            "blobstore_path",
		"{provider: s3, options: {}}":  "bucket_name",
		"{provider: s3, options: {bucket_name: b}}":                                           "access_key_id",
		"{provider: s3, options: {bucket_name: b, credentials_source: env_or_profile}}":       "nor a profile",
		"{provider: gcs, options: {bucket_name: b, credentials_source: none}}":                "json_key",
		"{provider: gcs, options: {bucket_name: b, credentials_source: static}}":              "json_key",
		"{provider: gcs, options: {bucket_name: b, credentials_source: static, json_key: a}}": "service account",
	} {
		blobstore(t, b, config)
		commit(t, b)
		var refused *BlobstoreError
		if err := b.CheckFinal(t.Context(), "1.0.0"); !errors.As(err, &refused) ||
			!strings.Contains(refused.Reason, words) {
			t.Errorf("%s: got %v, expected %q", config, err, words)
		}
	}

	blobstore(t, b, "{provider: s3, options: {bucket_name: c}}") // none of the above: there must be something to commit
	commit(t, b)
	testfiles.Write(
		t, filepath.Join(b.Root, "config/private.yml"),
		"blobstore: {options: {access_key_id: a, secret_access_key: s}}\n",
	)
	if err := b.CheckFinal(t.Context(), "1.0.0"); err != nil {
		t.Errorf("with credentials in config/private.yml: %v", err)
	}
}

// TestRefusesFinalReleaseWithoutGit is about a source archive.
func TestRefusesFinalReleaseWithoutGit(t *testing.T) {
	b, _ := repository(t)
	if err := b.CheckFinal(t.Context(), "1.0.0"); err == nil || !strings.Contains(err.Error(), "git repository") {
		t.Errorf("got %v", err)
	}
}

// TestFailedFinalReleaseCanBeRepeated has a blobstore that fails at first.
func TestFailedFinalReleaseCanBeRepeated(t *testing.T) {
	b := committed(t)
	dir := filepath.Join(t.TempDir(), "blobstore")
	blobstore(t, b, "{provider: local, options: {blobstore_path: "+dir+"}}")
	commit(t, b)
	testfiles.Write(t, dir, "a file where the folder should be")
	if _, err := b.BuildFinal(t.Context(), "1.0.0"); err == nil {
		t.Fatal("succeeded without a blobstore")
	}
	if _, err := os.Stat(filepath.Join(b.Root, "releases/example/index.yml")); err == nil {
		t.Error("a release that failed is in the index")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := b.BuildFinal(t.Context(), "1.0.0"); err != nil {
		t.Error(err)
	}
}

// TestFailedTarballCanBeRepeated has a tar that fails at first: bosh-cli unpacks the licenses with it for the tarball,
// after everything is built, as when the disk is full.
func TestFailedTarballCanBeRepeated(t *testing.T) {
	b := committed(t)
	broken := t.TempDir()
	tar := filepath.Join(broken, "tar")
	if err := os.WriteFile(tar, []byte("#!/bin/bash\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", broken+":"+os.Getenv("PATH"))
	if _, err := b.BuildFinal(t.Context(), "1.0.0"); err == nil || !strings.Contains(err.Error(), "'tar ") {
		t.Fatalf("with a tar that fails: %v", err)
	}
	if err := os.Remove(tar); err != nil {
		t.Fatal(err)
	}
	if _, err := b.BuildFinal(t.Context(), "1.0.0"); err != nil {
		t.Error(err)
	}
}

// TestWriteBlobs has the stock CLI build a release in the repository, and compares it with the builder's.
func TestWriteBlobs(t *testing.T) {
	b := committed(t)
	if err := b.WriteBlobs(t.Context()); err != nil {
		t.Fatal(err)
	}
	stock := fingerprints(buildStock(t, b.Root).Manifest())
	result, err := b.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if own := fingerprints(readManifest(t, filepath.Join(b.Root, result.Tarball))); !reflect.DeepEqual(stock, own) {
		t.Errorf("bosh create-release gives\n%v, the builder\n%v", stock, own)
	}
	changed, err := execute.Output(exec.CommandContext(t.Context(), "git", "-C", b.Root, "status", "--porcelain"))
	if err != nil {
		t.Fatal(err)
	}
	if string(changed) != " M config/blobs.yml\n" {
		t.Errorf("git status lists\n%s", changed)
	}
}

// TestBlobsKeepTheirIDs keeps the id of a blob in the blobstore until its content changes.
func TestBlobsKeepTheirIDs(t *testing.T) {
	b := committed(t)
	if err := b.WriteBlobs(t.Context()); err != nil {
		t.Fatal(err)
	}
	const etcd, helpers = "etcd/etcd.tar.xz", "helpers/helpers.tar.xz"
	ids := func() (string, string) {
		t.Helper()
		blobs, err := readBlobsIndex(b.Root)
		if err != nil {
			t.Fatal(err)
		}
		return blobs[etcd].ObjectID, blobs[helpers].ObjectID
	}
	index := filepath.Join(b.Root, "config/blobs.yml")
	text := strings.ReplaceAll(string(testfiles.Read(t, index)), "    sha:", "    object_id: an-id\n    sha:")
	testfiles.Write(t, index, text)
	testfiles.Write(t, filepath.Join(b.Root, ".build/helpers/bin/helper"), "changed")
	if err := b.WriteBlobs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept, changed := ids(); kept != "an-id" || changed != "" {
		t.Errorf("the ids are %q and, of the changed blob, %q", kept, changed)
	}
}

// silent reports nothing.
type silent struct{}

func (silent) BlobDownloadStarted(string, int64, string, string) {}
func (silent) BlobDownloadFinished(string, string, error)        {}
func (silent) BlobUploadStarted(string, int64, string)           {}
func (silent) BlobUploadFinished(string, string, error)          {}
func (silent) IndexEntryStartedAdding(string, string)            {}
func (silent) IndexEntryFinishedAdding(string, string, error)    {}
func (silent) IndexEntryDownloadStarted(string, string)          {}
func (silent) IndexEntryDownloadFinished(string, string, error)  {}
func (silent) IndexEntryUploadStarted(string, string)            {}
func (silent) IndexEntryUploadFinished(string, string, error)    {}
func (silent) ReleaseIndexAdded(string, string, error)           {}
