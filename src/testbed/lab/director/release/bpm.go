package release

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-release/internal/bosh"
)

var bpmWrapper = fmt.Sprintf("#!/bin/bash\nexec %s \"$@\"\n", bosh.DefaultRoot.Package("bpm", "bin/bpm"))

// ReadBPM creates the release that substitutes the bpm release in the lab: one job and one package, both named bpm,
// with the substitute program of this machine. It is written below cache, in a directory named after the program's
// digest.
func ReadBPM(binary, cache string) (*Release, error) {
	digest, err := fileDigest(binary)
	if err != nil {
		return nil, fmt.Errorf("the lab's substitute for bpm: %w; build it with `make lab`", err)
	}
	dir := filepath.Join(cache, "bpm-"+digest[:16])
	if _, err := os.Stat(dir); err != nil {
		if err := writeBPM(binary, dir); err != nil {
			return nil, fmt.Errorf("preparing the lab's substitute for bpm: %w", err)
		}
	}
	return OpenBPM(dir), nil
}

// OpenBPM returns the release that ReadBPM has written to dir.
func OpenBPM(dir string) *Release {
	fingerprint := strings.TrimPrefix(filepath.Base(dir), "bpm-")
	job := &Job{
		Name: "bpm", Fingerprint: fingerprint, Dir: filepath.Join(dir, "job"), Packages: []string{"bpm"},
		Templates: map[string]string{"bpm": "bin/bpm"}, Properties: map[string]Property{},
	}
	pkg := &Package{Name: "bpm", Fingerprint: fingerprint, Compiled: filepath.Join(dir, "package")}
	return &Release{
		Name: "bpm", Version: "lab", Dir: dir,
		Jobs: map[string]*Job{"bpm": job}, Packages: map[string]*Package{"bpm": pkg},
	}
}

func writeBPM(binary, dir string) error {
	work := dir + ".writing"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, sub := range []string{"job/templates", "package/bin"} {
		if err := os.MkdirAll(filepath.Join(work, sub), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(work, "job/monit"), nil, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "job/templates/bpm"), []byte(bpmWrapper), 0o755); err != nil {
		return err
	}
	if err := copyExecutable(binary, filepath.Join(work, "package/bin/bpm")); err != nil {
		return err
	}
	return os.Rename(work, dir)
}

func copyExecutable(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
