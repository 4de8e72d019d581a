package boshrelease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"gopkg.in/yaml.v3"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/release/archive"
)

// stage creates the release folder with jobs, packages and blobs. It replaces symbolic links with the files that they
// point to.
func (b Builder) stage(staging string, blobs map[string]Blob) error {
	if err := os.RemoveAll(staging); err != nil {
		return err
	}
	for _, dir := range []string{"src", "config", "blobs"} {
		if err := os.MkdirAll(filepath.Join(staging, dir), 0o755); err != nil {
			return err
		}
	}
	err := b.eachFile(func(file releaseFile) error {
		return copyTo(filepath.Join(staging, file.relative), file.path, file.mode)
	})
	if err != nil {
		return err
	}
	return b.stageBlobs(staging, blobs)
}

// indexedBlob is an entry of config/blobs.yml.
type indexedBlob struct {
	Size     int64  `yaml:"size"`
	ObjectID string `yaml:"object_id,omitempty"`
	SHA      string `yaml:"sha"`
}

func blobsIndex(dir string) string { return filepath.Join(dir, "config", "blobs.yml") }

// stageBlobs adds the blobs and their index to a release folder. Blobs that the folder's index has already keep their
// ids in the blobstore.
func (b Builder) stageBlobs(dir string, blobs map[string]Blob) error {
	uploaded, err := readBlobsIndex(dir)
	if err != nil {
		return err
	}
	all := map[string]indexedBlob{}
	for name, blob := range blobs {
		file := filepath.Join(name, name+".tar.xz")
		entry := indexedBlob{Size: blob.Size, SHA: "sha256:" + blob.SHA256}
		if last := uploaded[file]; last.SHA == entry.SHA {
			entry.ObjectID = last.ObjectID
		}
		all[file] = entry
		if err := linkOrCopy(filepath.Join(dir, "blobs", file), b.blobFile(name)); err != nil {
			return err
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	return atomicfile.Write(blobsIndex(dir), text, 0o644)
}

func readBlobsIndex(dir string) (map[string]indexedBlob, error) {
	text, err := os.ReadFile(blobsIndex(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var blobs map[string]indexedBlob
	if err := yaml.Unmarshal(text, &blobs); err != nil {
		return nil, fmt.Errorf("%s: %w", blobsIndex(dir), err)
	}
	return blobs, nil
}

func copyTo(to, from string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	return errors.Join(archive.CopyFile(file, from), file.Close())
}

func linkOrCopy(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	return copyTo(to, from, 0o644)
}

// releaseFiles returns the folders and files of the repository that are part of the release.
func (b Builder) releaseFiles() ([]string, error) {
	files := []string{"config/final.yml", "jobs", "packages"}
	for _, pattern := range []string{"LICENSE*", "NOTICE*"} {
		found, err := filepath.Glob(filepath.Join(b.Root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			// WriteBlobs puts these into the repository; a release has new ones.
			if name := filepath.Base(file); !slices.Contains(writtenFiles, name) {
				files = append(files, name)
			}
		}
	}
	return files, nil
}

// releaseFile is a file of the repository that is part of the release.
type releaseFile struct {
	relative string      // its path in the release
	path     string      // its path on this machine
	mode     fs.FileMode // its mode in the release folder
	size     int64       // in bytes
}

// linkMode is the mode of files that are symbolic links in the repository. bosh-cli takes the mode of the link itself,
// 0777, and makes it 0755 (release/resource/fingerprint.go and archive.go: Lstat). With the same mode here, this
// builder and a stock "bosh create-release" in the repository give a job the same fingerprint.
//
// Modes in a job's archive do not reach VMs. The Director renders the templates and packs the results with 0644 (bosh:
// src/bosh-director/lib/bosh/director/core/templates/rendered_templates_in_memory_tar_gzipper.rb). The agent then sets
// 0755 below bin and 0644 elsewhere (bosh-agent: agent/applier/jobs/rendered_job_applier.go).
const linkMode fs.FileMode = 0o755

// eachFile calls f for every file of the repository that is part of the release.
func (b Builder) eachFile(f func(releaseFile) error) error {
	files, err := b.releaseFiles()
	if err != nil {
		return err
	}
	for _, file := range files {
		err := walkFollowing(filepath.Join(b.Root, file), func(found releaseFile) error {
			var err error
			if found.relative, err = filepath.Rel(b.Root, found.path); err != nil {
				return err
			}
			return f(found)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walkFollowing calls f for every file at or below a path, and follows symbolic links. The relative path is left empty.
func walkFollowing(path string, f func(releaseFile) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		mode, err := stagedMode(path)
		if err != nil {
			return err
		}
		return f(releaseFile{path: path, mode: mode, size: info.Size()})
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

// stagedMode is the mode of a file in the release folder.
func stagedMode(path string) (fs.FileMode, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return linkMode, nil
	}
	return info.Mode().Perm(), nil
}

// releaseName reads the release's name from config/final.yml.
func releaseName(dir string) (string, error) {
	file := filepath.Join(dir, "config", "final.yml")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var config struct {
		Name string `yaml:"name"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if config.Name == "" {
		return "", fmt.Errorf("%s: name is missing; it is the name of the release", file)
	}
	return config.Name, nil
}
