package boshrelease

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/release/progress"
	"kubernetes-release/release/sbom"
)

// Files of the release. bosh-cli puts files named LICENSE* or NOTICE* into a release's license archive.
const (
	thirdPartyFile = "LICENSE-THIRD_PARTY.txt"
	sbomFile       = "NOTICE-SBOM.spdx.json"
)

// writtenFiles are what writeSBOM writes.
var writtenFiles = []string{thirdPartyFile, sbomFile}

// writeSBOM writes the licenses and the SBOM of the named release to folders.
func (b Builder) writeSBOM(ctx context.Context, release string, dirs ...string) error {
	started := time.Now()
	packages, err := b.sbomPackages(ctx)
	if err != nil {
		return err
	}
	parts, err := sbom.Parts(ctx, filepath.Join(b.Root, "src", "helpers"), packages)
	if err != nil {
		return err
	}
	document, err := sbom.SPDX(release, parts)
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{thirdPartyFile: sbom.ThirdParty(parts), sbomFile: document} {
		for _, dir := range dirs {
			if err := atomicfile.Write(filepath.Join(dir, file), content, 0o644); err != nil {
				return err
			}
		}
	}
	_, _ = fmt.Fprintf(b.Log, "licenses: listed %d parts in %s\n", len(parts), progress.Took(time.Since(started)))
	return nil
}

// sbomPackages lists the packages with the code that their programs do not record: C libraries and C programs.
func (b Builder) sbomPackages(ctx context.Context) ([]sbom.Package, error) {
	var packages []sbom.Package
	for _, p := range b.Packages() {
		listed := sbom.Package{Name: p.Name, Programs: p.Programs}
		for _, name := range p.Components {
			built, err := b.openComponent(name)
			if err != nil {
				return nil, err
			}
			for library, version := range built.Record.Libraries {
				listed.Others = append(listed.Others, sbom.Part{Name: library, Version: version, Debian: true})
			}
			if built.CSource != "" {
				version, err := b.components().PinnedVersion(ctx, built.Component)
				if err != nil {
					return nil, err
				}
				listed.Others = append(listed.Others, sbom.Part{Name: built.Module, Version: version})
			}
		}
		packages = append(packages, listed)
	}
	return packages, nil
}
