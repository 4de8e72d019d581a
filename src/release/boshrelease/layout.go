// Package boshrelease makes the BOSH release of what was built: our own programs and images, the blobs, and the
// release's tarball with the licences and the bill of materials of everything in it.
//
// Everything goes below .build in the repository: helpers/, images/, blobs/, staging/ (the release folder that bosh-cli
// reads) and release/ (the tarball and what belongs to it). Whatever is up to date is left alone.
package boshrelease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubernetes-release/release/components"
)

// Builder builds the release of one repository.
type Builder struct {
	// Root is the repository, an absolute path without symbolic links.
	Root string
	// Log gets the progress lines.
	Log io.Writer
}

// helperCommands are our programs that the jobs run, folders of src/cmd.
var helperCommands = []string{"cloud-preflight", "kube-launcher", "kube-tools"}

// smokeServer is our program in the image of the smoke tests.
const smokeServer = "smoke-server"

// Package is a package of the release and what is in it.
type Package struct {
	// Name is the folder's in packages.
	Name string
	// Trees become the package's blob, NAME/NAME.tar.xz.
	Trees []Tree
	// Programs are the folders with the programs that it ships, in whatever form.
	Programs []string
	// Components are the upstream projects in it.
	Components []string
}

// Packages lists the release's packages.
func (b Builder) Packages() []Package {
	of := func(name string, from ...string) Package {
		p := Package{Name: name, Components: from}
		for _, component := range from {
			dir := b.componentPrograms(component)
			p.Trees = append(p.Trees, Tree{Dir: dir, Prefix: "bin"})
			p.Programs = append(p.Programs, dir)
		}
		return p
	}
	return []Package{
		of("kubernetes", "kubernetes"),
		of("cloud-provider-aws", "cloud-provider-aws"),
		of("containerd", "containerd", "runc"),
		of("etcd", "etcd"),
		of("flannel", "flannel"),
		of("cni-plugins", "cni-plugins"),
		{
			Name: "helpers", Trees: []Tree{{Dir: b.path("helpers", "bin"), Prefix: "bin"}},
			Programs: []string{b.path("helpers", "bin")},
		},
		{
			Name: "images", Trees: []Tree{{Dir: b.path("images")}}, Components: []string{"coredns", "pause"},
			Programs: []string{b.componentPrograms("coredns"), b.componentPrograms("pause"), b.path(smokeServer, "bin")},
		},
	}
}

// path is a path in the build output.
func (b Builder) path(elements ...string) string {
	return filepath.Join(append([]string{b.Root, ".build"}, elements...)...)
}

func (b Builder) componentPrograms(name string) string { return b.path("components", name, "bin") }

func (b Builder) components() components.Builder {
	return components.Builder{Source: filepath.Join(b.Root, "src", "components"), Output: b.path("components"), Log: b.Log}
}

// openComponent gives a component that was built.
func (b Builder) openComponent(name string) (components.Built, error) {
	found := components.Named(name)
	if len(found) == 0 {
		return components.Built{}, fmt.Errorf("there is no component %q", name)
	}
	return b.components().Open(found[0])
}

// run gives a command's standard output; an error has its standard error.
func run(ctx context.Context, dir string, environment []string, name string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), environment...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(output), nil
}

// readJSON reads a file of our own; one that is not there leaves value as it is.
func readJSON(file string, value any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("%s: %w; remove the file, it is made again", file, err)
	}
	return nil
}

func writeJSON(file string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(file, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
