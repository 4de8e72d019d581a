package conformance

import (
	"archive/tar"
	"bytes"
	_ "embed" // shell.sh
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"kubernetes-release/testbed/registry"
)

// Host is the registry from which conformance tests pull images.
const Host = "registry.k8s.io"

// bash is the shell of images with Debian's programs: the shell of Debian's BusyBox prefers its own commands to those
// of the PATH.
const bash = "/usr/bin/bash"

// shell is /bin/sh of the other images. It has the programs that replace those of BusyBox.
//
//go:embed shell.sh
var shell []byte

// gnuPrograms replace those of Debian's BusyBox, which differ from those of the original image: its wget crashes with
// the option -T, its dd does not know oflag=nocache, and there is no printenv.
var gnuPrograms = []string{"/usr/bin/dd", "/usr/bin/printenv", "/usr/bin/wget"}

// debianPrograms are what tests call in agnhost and glibc-dns-testing beside BusyBox and the shell.
var debianPrograms = []string{"/usr/bin/curl", "/usr/bin/dig", "/usr/bin/getent", "/usr/bin/nc"}

// busybox is from Debian's busybox-static.
const busybox = "/usr/bin/busybox"

// ImageSources is where the content of images comes from, beside this machine's Debian packages.
type ImageSources struct {
	// Programs is a folder with agnhost, etcd, nonewprivs and sample-apiserver, and pause and coredns, the release's
	// images as OCI layouts.
	Programs string
	// Module is the folder of the module k8s.io/kubernetes.
	Module string
}

// Registry returns a registry that has those of the referenced images that conformance tests pull, and their
// references.
func (s ImageSources) Registry(references []string) (*registry.Registry, []string, error) {
	images, err := s.images()
	if err != nil {
		return nil, nil, err
	}
	r := registry.New()
	var added []string
	missing := maps.Clone(images)
	for _, reference := range references {
		name, ours := strings.CutPrefix(reference, Host+"/")
		repository, tag, _ := strings.Cut(name, ":")
		image, known := images[repository]
		if !ours || !known {
			continue
		}
		if err := r.Add(repository, tag, image); err != nil {
			return nil, nil, err
		}
		added = append(added, reference)
		delete(missing, repository)
	}
	if len(missing) > 0 {
		return nil, nil, fmt.Errorf(
			"the tests do not list the images %s; their names in src/testbed/conformance/images.go are out of date",
			strings.Join(slices.Sorted(maps.Keys(missing)), ", "),
		)
	}
	return r, added, nil
}

// images are those that conformance tests pull, by their repository. The comments name what differs from the original,
// which is described in test/images of Kubernetes.
func (s ImageSources) images() (map[string]v1.Image, error) {
	b := builder{sources: s}
	// BusyBox is Debian's, an older version.
	busyboxLayer := b.layer(b.busybox())
	// Alpine Linux is replaced by BusyBox and programs of Debian, so that there is no musl libc.
	debian := b.layer(b.debian())
	agnhost := b.layer(b.agnhost())
	// The release's CoreDNS, at the same path as the older one of the original.
	withDNS := append([]v1.Layer{debian, agnhost}, b.layers(b.layout("coredns"))...)
	// nginx is replaced by the web server of agnhost. Tests start it only to have a container that runs.
	webServer := v1.Config{Entrypoint: []string{"/agnhost", "test-webserver"}}
	agnhostConfig := v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
	sh := v1.Config{Cmd: []string{"sh"}}

	const tests = "e2e-test-images/"
	images := map[string]v1.Image{
		tests + "agnhost":           b.image(agnhostConfig, withDNS...),
		tests + "busybox":           b.image(sh, busyboxLayer),
		tests + "glibc-dns-testing": b.image(sh, debian),
		tests + "kitten":            b.image(webServer, debian, agnhost, b.layer(b.html("kitten"))),
		tests + "nautilus":          b.image(webServer, debian, agnhost, b.layer(b.html("nautilus"))),
		tests + "nginx":             b.image(webServer, debian, agnhost),
		tests + "nonewprivs": b.image(
			v1.Config{Cmd: []string{"nnp"}}, busyboxLayer,
			b.layer(b.program("nonewprivs", "usr/local/bin/nnp", 0o6755)),
		),
		tests + "nonroot": b.image(v1.Config{Cmd: []string{"sh"}, User: "1234"}, busyboxLayer),
		// The original is of an older version of Kubernetes.
		tests + "sample-apiserver": b.image(
			v1.Config{Entrypoint: []string{"/sample-apiserver"}},
			b.layer(b.program("sample-apiserver", "sample-apiserver", 0o755)),
		),
		// The version of the release.
		"etcd":  b.image(v1.Config{}, b.layer(b.program("etcd", "usr/local/bin/etcd", 0o755))),
		"pause": b.layout("pause"),
	}
	return images, errors.Join(b.errs...)
}

// layout is the only image of an OCI layout.
func (b *builder) layout(name string) v1.Image {
	index, err := layout.ImageIndexFromPath(filepath.Join(b.sources.Programs, name))
	if err != nil {
		b.fail(err)
		return empty.Image
	}
	images, err := partial.FindImages(index, func(v1.Descriptor) bool { return true })
	b.fail(err)
	if len(images) != 1 {
		b.fail(fmt.Errorf("%s has %d images, want one", name, len(images)))
		return empty.Image
	}
	return images[0]
}

func (b *builder) layers(image v1.Image) []v1.Layer {
	layers, err := image.Layers()
	b.fail(err)
	return layers
}

// file is a file or a symbolic link of an image.
type file struct {
	content []byte
	link    string
	mode    int64
}

// tree is the files of a layer, by their path without a leading slash.
type tree map[string]file

// builder makes layers and images, and keeps its errors.
type builder struct {
	sources ImageSources
	errs    []error
}

func (b *builder) fail(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

func (b *builder) read(path string) []byte {
	content, err := os.ReadFile(path)
	b.fail(err)
	return content
}

func (b *builder) program(name, path string, mode int64) tree {
	return tree{path: {content: b.read(filepath.Join(b.sources.Programs, name)), mode: mode}}
}

// The names of users and groups in images. Tests of volumes expect the numbers of others.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n"
	group  = "root:x:0:\n"
)

// busybox is a root file system with BusyBox and the shell.
func (b *builder) busybox() tree {
	files := tree{
		"bin/busybox": {content: b.read(busybox), mode: 0o755},
		"etc/passwd":  {content: []byte(passwd), mode: 0o644},
		"etc/group":   {content: []byte(group), mode: 0o644},
		// As BusyBox' wget, that of GNU must not try 20 times.
		"etc/wgetrc": {content: []byte("tries = 1\n"), mode: 0o644},
		"tmp/":       {mode: 0o1777},
		"root/":      {mode: 0o700},
	}
	applets, err := exec.Command(busybox, "--list").Output()
	b.fail(err)
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" {
			files["bin/"+name] = file{link: "busybox"}
		}
	}
	b.add(files, append([]string{bash}, gnuPrograms...)...)
	files["bin/sh"] = file{content: shell, mode: 0o755}
	return files
}

// add adds programs of this machine and their shared libraries.
func (b *builder) add(files tree, programs ...string) {
	paths := slices.Clone(programs)
	for _, program := range programs {
		list, err := exec.Command("ldd", program).Output()
		b.fail(err)
		paths = append(paths, libraries(string(list))...)
		// The PATH of containers begins with /usr, but tests also call programs by their path.
		files["bin/"+filepath.Base(program)] = file{link: program}
	}
	for _, path := range paths {
		files[strings.TrimPrefix(path, "/")] = file{content: b.read(path), mode: 0o755}
	}
}

// debian is BusyBox with programs of Debian. The nc of BusyBox has no UDP.
func (b *builder) debian() tree {
	files := b.busybox()
	b.add(files, debianPrograms...)
	files["bin/sh"] = file{link: "bash"}
	files["etc/nsswitch.conf"] = file{content: []byte("hosts: files dns\n"), mode: 0o644}
	// A test of image volumes looks for the name in this file.
	files["etc/os-release"] = file{
		content: []byte("NAME=\"BusyBox and Debian in place of Alpine Linux\"\n"),
		mode:    0o644,
	}
	return files
}

// libraries are the paths in what ldd prints.
func libraries(list string) []string {
	var paths []string
	for line := range strings.Lines(list) {
		for field := range strings.FieldsSeq(line) {
			if strings.HasPrefix(field, "/") {
				paths = append(paths, field)
			}
		}
	}
	return paths
}

// agnhost is agnhost with the files that its Dockerfile adds.
func (b *builder) agnhost() tree {
	files := b.program("agnhost", "agnhost", 0o755)
	files["agnhost-2"] = file{link: "agnhost"}
	// adduser gives a user without a group one with its name.
	files["etc/passwd"] = file{
		content: []byte(passwd + "user-defined-in-image:x:1000:1000::/:/bin/sh\n"), mode: 0o644,
	}
	files["etc/group"] = file{
		content: []byte(
			group + "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
		),
		mode: 0o644,
	}
	files["uploads/"] = file{mode: 0o755}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		files[name] = file{
			content: b.read(filepath.Join(b.sources.Module, "test/images/agnhost/porter", name)),
			mode:    0o644,
		}
	}
	return files
}

// html is the content of the images kitten and nautilus.
func (b *builder) html(name string) tree {
	files := tree{}
	for _, path := range []string{name + ".jpg", "data.json"} {
		files[path] = file{
			content: b.read(filepath.Join(b.sources.Module, "test/images", name, "html", path)),
			mode:    0o644,
		}
	}
	return files
}

// layer is not compressed: it is used once, on this machine.
func (b *builder) layer(files tree) v1.Layer {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: f.mode, Size: int64(len(f.content))}
		switch {
		case strings.HasSuffix(path, "/"):
			header.Typeflag = tar.TypeDir
		case f.link != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
		}
		b.fail(archive.WriteHeader(header))
		_, err := archive.Write(f.content)
		b.fail(err)
	}
	b.fail(archive.Close())
	return static.NewLayer(buffer.Bytes(), types.OCIUncompressedLayer)
}

func (b *builder) image(config v1.Config, layers ...v1.Layer) v1.Image {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, layers...)
	b.fail(err)
	if err != nil {
		return empty.Image
	}
	description, err := image.ConfigFile()
	b.fail(err)
	if err != nil {
		return empty.Image
	}
	description = description.DeepCopy()
	description.Architecture, description.OS, description.Config = "amd64", "linux", config
	image, err = mutate.ConfigFile(image, description)
	b.fail(err)
	return image
}
