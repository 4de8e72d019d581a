package boshrelease

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	bicrypto "github.com/cloudfoundry/bosh-cli/v7/crypto"
	boshrel "github.com/cloudfoundry/bosh-cli/v7/release"
	boshjob "github.com/cloudfoundry/bosh-cli/v7/release/job"
	"github.com/cloudfoundry/bosh-cli/v7/release/resource"
	boshcrypto "github.com/cloudfoundry/bosh-utils/crypto"
	boshfile "github.com/cloudfoundry/bosh-utils/fileutil"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
	boshsys "github.com/cloudfoundry/bosh-utils/system"
)

// stock is bosh-cli's own code, wired as for "bosh create-release".
func stock() (boshrel.Provider, boshsys.FileSystem, boshsys.CmdRunner, bicrypto.DigestCalculator) {
	logger := boshlog.NewLogger(boshlog.LevelNone)
	files, commands := boshsys.NewOsFileSystem(logger), boshsys.NewExecCmdRunner(logger)
	digests := bicrypto.NewDigestCalculator(files, []boshcrypto.Algorithm{boshcrypto.DigestAlgorithmSHA256})
	compressor := boshfile.NewTarballCompressor(commands, files)
	return boshrel.NewProvider(commands, compressor, digests, files, logger), files, commands, digests
}

// jobFingerprints returns the fingerprints of a release folder's jobs, as bosh-cli calculates them.
func jobFingerprints(t *testing.T, dir string) map[string]string {
	t.Helper()
	_, files, commands, digests := stock()
	reader := boshjob.NewDirReaderImpl(func(args resource.ArchiveFactoryArgs) resource.Archive {
		printer := resource.NewFingerprinterImpl(digests, files, args.FollowSymlinks)
		return resource.NewArchiveImpl(args, dir, printer, nil, digests, commands, files)
	}, files)
	found, err := os.ReadDir(filepath.Join(dir, "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	fingerprints := map[string]string{}
	for _, job := range found {
		read, err := reader.Read(filepath.Join(dir, "jobs", job.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fingerprints[read.Name()] = read.Fingerprint()
	}
	return fingerprints
}

// TestJobsHaveTheFingerprintsOfTheRepository compares what bosh-cli reads from this repository with what it reads from
// the release folder that the builder writes. Many templates are symbolic links.
func TestJobsHaveTheFingerprintsOfTheRepository(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	staging := t.TempDir()
	if err := (Builder{Root: root}).stage(staging, nil); err != nil {
		t.Fatal(err)
	}
	expected, got := jobFingerprints(t, root), jobFingerprints(t, staging)
	if len(expected) == 0 || !maps.Equal(got, expected) {
		t.Errorf(
			"the release folder's jobs have the fingerprints\n%v\nexpected those of the repository,\n%v", got, expected,
		)
	}
}
