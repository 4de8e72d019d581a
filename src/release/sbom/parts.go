package boshrelease

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-release/release/components"
)

// The files of the bill in the release: bosh-cli puts what is named LICENSE* or NOTICE* into a release's licence archive.
const (
	thirdPartyFile = "LICENSE-THIRD_PARTY.txt"
	sbomFile       = "NOTICE-SBOM.spdx.json"
)

// ourModules is the first part of the paths of our own modules.
const ourModules = "kubernetes-release"

// Part is third-party code that the release ships: a Go module, the Go standard library, or a C library.
type Part struct {
	// Name is the module's path, or the Debian package's name.
	Name string
	// Version is as Go or Debian write it.
	Version string
	// Debian says that it is a Debian package.
	Debian bool
	// Sum is the module's checksum as the binary records it (h1:…).
	Sum string
	// Packages are the release's packages that hold it, sorted.
	Packages []string
	// Licence is an SPDX licence expression.
	Licence string
	// Texts are its licence and notice files.
	Texts []Text
}

// Text is a licence or notice file.
type Text struct {
	File    string
	Content string
}

// stageBill writes the licences and the bill of materials to the release folder, and copies for the operator beside
// the tarball.
func (b Builder) stageBill(ctx context.Context, staging string) error {
	begun := time.Now()
	parts, err := b.parts(ctx)
	if err != nil {
		return err
	}
	name, err := releaseName(staging)
	if err != nil {
		return err
	}
	sbom, err := spdx(name, parts)
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{thirdPartyFile: thirdParty(parts), sbomFile: sbom} {
		for _, dir := range []string{staging, b.path("release")} {
			err := writeFile(filepath.Join(dir, file), func(w io.Writer) error { _, err := w.Write(content); return err })
			if err != nil {
				return err
			}
		}
	}
	_, _ = fmt.Fprintf(b.Log, "licences: listed %d parts in %s\n", len(parts), components.Took(time.Since(begun)))
	return nil
}

// parts lists the third-party code in the release, with its licences. It asks the binaries themselves what they were
// linked from, so that nothing is listed that isn't shipped, and nothing is shipped that isn't listed.
func (b Builder) parts(ctx context.Context) ([]Part, error) {
	found := map[[2]string]*Part{}
	add := func(p Part, pkg string) {
		key := [2]string{p.Name, p.Version}
		if found[key] == nil {
			found[key] = &p
		}
		if !slices.Contains(found[key].Packages, pkg) {
			found[key].Packages = append(found[key].Packages, pkg)
		}
	}
	for _, p := range b.Packages() {
		for _, dir := range p.Programs {
			modules, err := modulesIn(dir)
			if err != nil {
				return nil, fmt.Errorf("package %s: %w", p.Name, err)
			}
			for _, module := range modules {
				add(module, p.Name)
			}
		}
		for _, name := range p.Components {
			built, err := b.openComponent(name)
			if err != nil {
				return nil, err
			}
			for library, version := range built.Record.Libraries {
				add(Part{Name: library, Version: version, Debian: true}, p.Name)
			}
			if built.CSource != "" {
				version, err := b.components().PinnedVersion(ctx, built.Component)
				if err != nil {
					return nil, err
				}
				add(Part{Name: built.Module, Version: version}, p.Name)
			}
		}
	}
	var parts []Part
	for _, part := range found {
		slices.Sort(part.Packages)
		parts = append(parts, *part)
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return parts, b.findLicences(ctx, parts)
}

// modulesIn gives the modules that the Go programs in a folder were linked from, the standard library among them.
func modulesIn(dir string) ([]Part, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var parts []Part
	for _, file := range files {
		if !file.Type().IsRegular() {
			continue
		}
		info, err := buildinfo.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil { // a C program
			continue
		}
		// Main is the module of the main package, which is upstream's own where our pin has none.
		for _, module := range append(info.Deps, &info.Main) {
			if module.Replace != nil {
				module = module.Replace
			}
			if module.Path == ourModules || strings.HasPrefix(module.Path, ourModules+"/") {
				continue
			}
			parts = append(parts, Part{Name: module.Path, Version: module.Version, Sum: module.Sum})
		}
		parts = append(parts, Part{Name: standardLibrary, Version: info.GoVersion})
	}
	return parts, nil
}

// standardLibrary is the name of Go's standard library among the parts.
const standardLibrary = "std"

// findLicences fills in the licences of parts. A part without a licence that is known is an error: it must not be
// shipped unnoticed.
func (b Builder) findLicences(ctx context.Context, parts []Part) error {
	dirs, err := b.moduleDirs(ctx, parts)
	if err != nil {
		return err
	}
	goroot, err := run(ctx, b.Root, nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	var problems []error
	for i := range parts {
		part := &parts[i]
		var err error
		switch {
		case part.Debian:
			part.Texts, err = readTexts("/usr/share/doc/"+part.Name, "copyright")
			part.Licence = debianLicences[part.Name]
		case part.Name == standardLibrary:
			part.Texts, err = readTexts(strings.TrimSpace(goroot), "LICENSE", "PATENTS")
		default:
			part.Texts, err = licenceTexts(dirs[part.Name+"@"+part.Version])
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", part.Name, part.Version, err))
			continue
		}
		if part.Licence == "" {
			part.Licence = Licence(part.Texts)
		}
		if part.Licence == "" {
			problems = append(problems, fmt.Errorf("%s %s: no licence was recognised in %s; see what it is, and teach it to src/release/boshrelease/licence.go",
				part.Name, part.Version, fileNames(part.Texts)))
		}
	}
	return errors.Join(problems...)
}

func fileNames(texts []Text) string {
	var names []string
	for _, text := range texts {
		names = append(names, text.File)
	}
	if len(names) == 0 {
		return "its top folder, which has no licence file"
	}
	return strings.Join(names, ", ")
}

// moduleDirs gives the folders of modules in the module cache, by path@version, fetching what is not there, and
// makes sure that each is what the binary was linked from.
func (b Builder) moduleDirs(ctx context.Context, parts []Part) (map[string]string, error) {
	arguments := []string{"mod", "download", "-json"}
	sums := map[string]string{}
	for _, part := range parts {
		if !part.Debian && part.Name != standardLibrary {
			module := part.Name + "@" + part.Version
			arguments = append(arguments, module)
			sums[module] = part.Sum
		}
	}
	dirs := map[string]string{}
	if len(sums) == 0 {
		return dirs, nil
	}
	// The sums are compared below with those that the binaries were linked with, which the pins' go.sum vouch for.
	output, err := run(ctx, filepath.Join(b.Root, "src"), []string{"GONOSUMDB=*", "GOFLAGS=", "GOWORK=off"}, "go", arguments...)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(strings.NewReader(output)); ; {
		var module struct{ Path, Version, Dir, Sum, Error string }
		if err := decoder.Decode(&module); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of go mod download: %w", err)
		}
		key := module.Path + "@" + module.Version
		if module.Error != "" {
			return nil, fmt.Errorf("%s: %s", key, module.Error)
		}
		if want := sums[key]; want != "" && want != module.Sum {
			return nil, fmt.Errorf("%s in the module cache has the checksum %s, the program was linked with %s; go clean -modcache empties the cache",
				key, module.Sum, want)
		}
		dirs[key] = module.Dir
	}
}

func readTexts(dir string, names ...string) ([]Text, error) {
	var texts []Text
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && len(texts) > 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		texts = append(texts, Text{File: name, Content: string(content)})
	}
	return texts, nil
}
