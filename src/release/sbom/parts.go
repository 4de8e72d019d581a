// Package sbom lists the third-party code in the release with its licenses: an SBOM (software bill of materials) for
// programs and a listing with all license texts for people.
package sbom

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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-release/release/execute"
)

const (
	// ourModules is the start of the paths of our own modules.
	ourModules = "kubernetes-release"
	// standardLibrary is the name of Go's standard library among the parts.
	standardLibrary = "std"
	// debianDocs has a folder with the copyright file of each installed Debian package.
	debianDocs = "/usr/share/doc"
)

// Package is a package of the release.
type Package struct {
	Name string
	// Programs are folders with its programs.
	Programs []string
	// Others are parts that the programs do not record.
	Others []Part
}

// Part is third-party code that the release ships: a Go module, the Go standard library, or a C library.
type Part struct {
	// Name is the module's path or the Debian package's name.
	Name string
	// Version is in Go's or Debian's form.
	Version string
	// Debian is true for a Debian package.
	Debian bool
	// Sum is the module's checksum as the binary records it (h1:…).
	Sum string
	// Packages are the names of the release's packages that include it, sorted.
	Packages []string
	// License is an SPDX license expression.
	License string
	// Texts are its license and notice files.
	Texts []Text
}

// Text is a license or notice file.
type Text struct {
	File    string
	Content string
}

// Parts lists the third-party code in packages, with its licenses. It reads the modules that a program was linked from
// out of the program itself, so the list is exactly what is shipped. The go command runs in dir, a folder of a Go
// module. A part without a recognized license is an error.
func Parts(ctx context.Context, dir string, packages []Package) ([]Part, error) {
	found := map[[2]string]*Part{}
	for _, p := range packages {
		parts := slices.Clone(p.Others)
		for _, programs := range p.Programs {
			modules, err := modulesIn(programs)
			if err != nil {
				return nil, fmt.Errorf("package %s: %w", p.Name, err)
			}
			parts = append(parts, modules...)
		}
		for _, part := range parts {
			key := [2]string{part.Name, part.Version}
			if found[key] == nil {
				found[key] = &part
			}
			if !slices.Contains(found[key].Packages, p.Name) {
				found[key].Packages = append(found[key].Packages, p.Name)
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
	return parts, findLicenses(ctx, dir, parts)
}

// modulesIn returns the modules that the Go programs in a folder were linked from, including the standard library.
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
		// Main is the module of the main package: upstream's if our pin has no main package.
		for _, module := range append(info.Deps, &info.Main) {
			// A copy of the module with files replaced has no version (Replaced in release/components).
			if module.Replace != nil && module.Replace.Version != "(devel)" {
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

// findLicenses sets the licenses of parts.
func findLicenses(ctx context.Context, dir string, parts []Part) error {
	dirs, err := moduleDirs(ctx, dir, parts)
	if err != nil {
		return err
	}
	goroot, err := execute.Output(exec.CommandContext(ctx, "go", "env", "GOROOT"))
	if err != nil {
		return err
	}
	var problems []error
	for i := range parts {
		part := &parts[i]
		var err error
		switch {
		case part.Debian:
			part.Texts, err = readTexts(filepath.Join(debianDocs, part.Name), "copyright")
			part.License = debianLicenses[part.Name]
		case part.Name == standardLibrary || slices.Contains(copiesOfGo, part.Name):
			part.Texts, err = readTexts(strings.TrimSpace(string(goroot)), "LICENSE", "PATENTS")
		default:
			part.Texts, err = licenseTexts(dirs[part.Name+"@"+part.Version])
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", part.Name, part.Version, err))
			continue
		}
		if part.License == "" {
			part.License = License(part.Texts)
		}
		if part.License == "" {
			problems = append(
				problems,
				fmt.Errorf("%s %s: no license recognized in %s; add it to src/release/sbom/license.go",
					part.Name, part.Version, fileNames(part.Texts)),
			)
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
		return "its top folder, which has no license file"
	}
	return strings.Join(names, ", ")
}

// moduleDirs returns the folders of modules in the module cache by path@version. It downloads missing modules, and
// checks that each is the one that the program was linked from.
func moduleDirs(ctx context.Context, dir string, parts []Part) (map[string]string, error) {
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
	download := exec.CommandContext(ctx, "go", arguments...)
	download.Dir = dir
	// The sums are compared below with those that the programs were linked with, which the pins' go.sum vouch for.
	download.Env = append(os.Environ(), "GONOSUMDB=*", "GOFLAGS=", "GOWORK=off")
	output, err := execute.Output(download)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
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
			return nil, fmt.Errorf(
				"%s in the module cache has the checksum %s, the program was linked with %s; go clean -modcache "+
					"empties the cache",
				key, module.Sum, want,
			)
		}
		dirs[key] = module.Dir
	}
}

// readTexts reads license files by name. Only the first must exist.
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
