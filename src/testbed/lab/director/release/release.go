// Package release reads BOSH release tarballs with the BOSH CLI's packages and compiles their packages as a Director's
// compilation VM does.
package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	boshjob "github.com/cloudfoundry/bosh-cli/v7/release/job"
	jobmanifest "github.com/cloudfoundry/bosh-cli/v7/release/job/manifest"
	relmanifest "github.com/cloudfoundry/bosh-cli/v7/release/manifest"
	boshcrypto "github.com/cloudfoundry/bosh-utils/crypto"
	boshfile "github.com/cloudfoundry/bosh-utils/fileutil"
	boshlog "github.com/cloudfoundry/bosh-utils/logger"
	boshsys "github.com/cloudfoundry/bosh-utils/system"
	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/lab/director/manifest"
)

// Release is an unpacked release.
type Release struct {
	Name    string
	Version string
	// Dir holds release.MF, jobs/NAME (unpacked) and packages/NAME.tgz.
	Dir      string
	Jobs     map[string]*Job
	Packages map[string]*Package
}

// Job is a job of a release, as in its spec.
type Job struct {
	Name        string
	Fingerprint string
	// Dir is the directory of the unpacked job, with monit and templates/.
	Dir string
	// Templates maps a path below templates/ to the path below /var/vcap/jobs/NAME.
	Templates map[string]string
	Packages  []string
	// Properties maps dotted names to their declarations.
	Properties map[string]Property
	Provides   []Provide
	Consumes   []Consume
}

// Property is a property's declaration in a job's spec.
type Property struct {
	Description string
	// Default is nil when the spec has none; maps have string keys.
	Default any
}

// Defaults returns the declared properties with their defaults, nil for those without one.
func (j *Job) Defaults() map[string]any {
	defaults := make(map[string]any, len(j.Properties))
	for name, p := range j.Properties {
		defaults[name] = p.Default
	}
	return defaults
}

// Provide is a link that a job provides. Properties are dotted names of the job's properties.
type Provide struct {
	Name       string   `yaml:"name"`
	Type       string   `yaml:"type"`
	Properties []string `yaml:"properties"`
}

// Consume is a link that a job consumes.
type Consume struct {
	Name     string `yaml:"name"`
	Type     string `yaml:"type"`
	Optional bool   `yaml:"optional"`
}

// Package is one package of a release.
type Package struct {
	Name         string
	Fingerprint  string
	Dependencies []string
	// Archive is the source archive (.tgz); empty if Compiled is set from the beginning.
	Archive string
	// Compiled is the directory of the compiled package, set by Compiler.
	Compiled string
}

// Read unpacks the release tarball below cache, in a directory named after the tarball's digest, unless that exists,
// and reads it. begin is called before unpacking; it may be nil.
func Read(ctx context.Context, tarball, cache string, begin func() Task) (*Release, error) {
	digest, err := fileDigest(tarball)
	if err != nil {
		return nil, fmt.Errorf("reading the release tarball: %w", err)
	}
	dir := filepath.Join(cache, digest[:16])
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		task := Task(silent{})
		if begin != nil {
			task = begin()
		}
		err := unpack(ctx, tarball, dir, task)
		task.End(err)
		if err != nil {
			return nil, fmt.Errorf("unpacking the release tarball '%s': %w", tarball, err)
		}
	} else if err != nil {
		return nil, err
	}
	return Open(dir)
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// unpack creates dir atomically: it unpacks into a directory next to it, which it renames at the end.
func unpack(ctx context.Context, tarball, dir string, task Task) error {
	work := dir + ".unpacking"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := unpackInto(ctx, tarball, work, task.Step); err != nil {
		return err
	}
	fs, compressor := tools()
	m, err := relmanifest.NewManifestFromPath(filepath.Join(work, "release.MF"), fs)
	if err != nil {
		return err
	}
	task.Step("comparing digests with release.MF")
	if err := verify(m, work, fs); err != nil {
		return err
	}
	if err := unpackJobs(m, work, fs, compressor); err != nil {
		return err
	}
	return os.Rename(work, dir)
}

func tools() (boshsys.FileSystem, boshfile.Compressor) {
	logger := boshlog.NewLogger(boshlog.LevelNone)
	fs := boshsys.NewOsFileSystem(logger)
	return fs, boshfile.NewTarballCompressor(boshsys.NewExecCmdRunner(logger), fs)
}

// verify compares the archives' digests with those in the release manifest, as a Director does on upload.
func verify(m relmanifest.Manifest, dir string, fs boshsys.FileSystem) error {
	check := func(kind, name, digest string) error {
		path := filepath.Join(dir, kind, name+".tgz")
		want, err := boshcrypto.ParseMultipleDigest(digest)
		if err != nil {
			return fmt.Errorf("%s/%s: digest '%s' in release.MF: %w", kind, name, digest, err)
		}
		if err := want.VerifyFilePath(path, fs); err != nil {
			return fmt.Errorf("%s/%s.tgz does not have the digest in release.MF: %w", kind, name, err)
		}
		return nil
	}
	for _, ref := range m.Jobs {
		if err := check("jobs", ref.Name, ref.SHA1); err != nil {
			return err
		}
	}
	for _, ref := range m.Packages {
		if err := check("packages", ref.Name, ref.SHA1); err != nil {
			return err
		}
	}
	return nil
}

func unpackJobs(m relmanifest.Manifest, dir string, fs boshsys.FileSystem, compressor boshfile.Compressor) error {
	temporary := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return err
	}
	if err := fs.ChangeTempRoot(temporary); err != nil {
		return err
	}
	reader := boshjob.NewArchiveReaderImpl(true, compressor, fs)
	for _, ref := range m.Jobs {
		archive := filepath.Join(dir, "jobs", ref.Name+".tgz")
		job, err := reader.Read(ref, archive)
		if err != nil {
			return err
		}
		if err := os.Rename(job.ExtractedPath(), filepath.Join(dir, "jobs", ref.Name)); err != nil {
			return err
		}
		if err := os.Remove(archive); err != nil {
			return err
		}
	}
	return os.RemoveAll(temporary)
}

// Open reads a release that Read has unpacked to dir.
func Open(dir string) (*Release, error) {
	fs, _ := tools()
	m, err := relmanifest.NewManifestFromPath(filepath.Join(dir, "release.MF"), fs)
	if err != nil {
		return nil, err
	}
	r := &Release{Name: m.Name, Version: m.Version, Dir: dir, Jobs: map[string]*Job{}, Packages: map[string]*Package{}}
	if len(m.CompiledPkgs) > 0 {
		return nil, fmt.Errorf("release '%s' is a compiled release; the lab deploys source releases", m.Name)
	}
	for _, ref := range m.Packages {
		r.Packages[ref.Name] = &Package{
			Name: ref.Name, Fingerprint: ref.Fingerprint, Dependencies: ref.Dependencies,
			Archive: filepath.Join(dir, "packages", ref.Name+".tgz"),
		}
	}
	for _, ref := range m.Jobs {
		job, err := ReadJob(filepath.Join(dir, "jobs", ref.Name))
		if err != nil {
			return nil, err
		}
		job.Fingerprint = ref.Fingerprint
		r.Jobs[job.Name] = job
	}
	return r, r.check()
}

// check returns an error if jobs or packages depend on packages that the release does not have.
func (r *Release) check() error {
	var problems []string
	for _, job := range r.Jobs {
		for _, name := range job.Packages {
			if r.Packages[name] == nil {
				problems = append(problems, fmt.Sprintf("job '%s' depends on the package '%s'", job.Name, name))
			}
		}
	}
	for _, pkg := range r.Packages {
		for _, name := range pkg.Dependencies {
			if r.Packages[name] == nil {
				problems = append(problems, fmt.Sprintf("package '%s' depends on the package '%s'", pkg.Name, name))
			}
		}
	}
	if len(problems) == 0 {
		return nil
	}
	sort.Strings(problems)
	return fmt.Errorf("release '%s' does not have all packages: %s", r.Name, strings.Join(problems, "; "))
}

// JobNames lists the release's jobs, sorted.
func (r *Release) JobNames() []string {
	names := make([]string, 0, len(r.Jobs))
	for name := range r.Jobs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// ReadJob reads an unpacked job, whose spec is job.MF (from an archive) or spec (in a release directory). It does not
// set Fingerprint.
func ReadJob(dir string) (*Job, error) {
	path := filepath.Join(dir, "job.MF")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		path = filepath.Join(dir, "spec")
	}
	fs, _ := tools()
	m, err := jobmanifest.NewManifestFromPath(path, fs)
	if err != nil {
		return nil, err
	}
	job := &Job{
		Name: m.Name, Dir: dir, Templates: m.Templates, Packages: m.Packages, Properties: map[string]Property{},
	}
	for name, p := range m.Properties {
		job.Properties[name] = Property{Description: p.Description, Default: manifest.StringKeys(p.Default)}
	}
	var links struct {
		Provides []Provide `yaml:"provides"`
		Consumes []Consume `yaml:"consumes"`
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &links); err != nil {
		return nil, fmt.Errorf("reading the links of job spec '%s': %w", path, err)
	}
	job.Provides, job.Consumes = links.Provides, links.Consumes
	return job, nil
}
