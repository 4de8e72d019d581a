// Package boshrelease builds the BOSH release: our own programs and images, the blobs, and the release's tarball with
// the licenses and the SBOM of everything in it.
//
// All output goes below .build in the repository: helpers/, images/, blobs/, staging/ (the release folder that bosh-cli
// reads) and release/ (the tarball and the files that belong to it). What is up to date is not built again.
package boshrelease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/release/archive"
	"kubernetes-release/release/components"
)

// Builder builds the release of one repository.
type Builder struct {
	// Root is the repository, an absolute path without symbolic links.
	Root string
	// Log gets the progress lines.
	Log io.Writer
}

// helperCommands are our programs that the jobs run, folders of src/helpers/cmd.
var helperCommands = []string{"cloud-preflight", "kube-launcher", "kube-tools"}

// vcenterProgram is our program that only control VMs of vSphere need: VMware's library is large.
const vcenterProgram = "vcenter"

// smokeServer is our program in the image for the smoke tests.
const smokeServer = "smoke-server"

// Package is a package of the release and its content.
type Package struct {
	// Name is the name of its folder in packages.
	Name string
	// Trees become the package's blob, NAME/NAME.tar.xz.
	Trees []archive.Tree
	// Programs are the folders with the programs that it ships, also those in images.
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
			p.Trees = append(p.Trees, archive.Tree{Dir: dir, Prefix: "bin"})
			p.Programs = append(p.Programs, dir)
		}
		return p
	}
	withManifests := func(p Package) Package {
		for _, component := range p.Components {
			dir := b.path("components", component, "manifests")
			p.Trees = append(p.Trees, archive.Tree{Dir: dir, Prefix: "manifests"})
		}
		return p
	}
	return []Package{
		of("kubernetes", "kubernetes"),
		of("cloud-provider-aws", "cloud-provider-aws"),
		of("ecr-credential-provider", "ecr-credential-provider"),
		of("cloud-provider-openstack", "cloud-provider-openstack"),
		of("cinder-csi-plugin", "cinder-csi-plugin"),
		withManifests(of("csi", "csi")),
		withManifests(of("aws-load-balancer-controller", "aws-load-balancer-controller")),
		of("containerd", "containerd", "runc", "cri-tools"),
		of("etcd", "etcd"),
		of("flannel", "flannel"),
		of("network-policy", "network-policy"),
		of("cni-plugins", "cni-plugins"),
		{
			Name: "helpers", Trees: []archive.Tree{{Dir: b.path("helpers", "bin"), Prefix: "bin"}},
			Programs: []string{b.path("helpers", "bin")},
		},
		{
			Name: vcenterProgram, Trees: []archive.Tree{{Dir: b.path(vcenterProgram, "bin"), Prefix: "bin"}},
			Programs: []string{b.path(vcenterProgram, "bin")},
		},
		{
			Name:       "images",
			Trees:      []archive.Tree{{Dir: b.path("images")}},
			Components: []string{"coredns", "pause"},
			Programs: []string{
				b.componentPrograms("coredns"), b.componentPrograms("pause"), b.path(smokeServer, "bin"),
			},
		},
	}
}

// path is a path in the build output.
func (b Builder) path(elements ...string) string {
	return filepath.Join(append([]string{b.Root, ".build"}, elements...)...)
}

func (b Builder) componentPrograms(name string) string { return b.path("components", name, "bin") }

func (b Builder) components() components.Builder {
	return components.Builder{
		Source: filepath.Join(b.Root, "src", "components"),
		Output: b.path("components"),
		Log:    b.Log,
	}
}

func (b Builder) openComponent(name string) (components.Built, error) {
	found := components.Named(name)
	if len(found) == 0 {
		return components.Built{}, fmt.Errorf("unknown component %q", name)
	}
	return b.components().Open(found[0])
}

// readJSON reads a JSON file of the build output. It does not change value if the file does not exist.
func readJSON(file string, value any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("%s: %w; remove the file, and the build creates it again", file, err)
	}
	return nil
}

func writeJSON(file string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(text, '\n'), 0o644)
}
