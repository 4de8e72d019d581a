package boshrelease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/release/components"
	"kubernetes-release/release/ociimage"
)

// imageRegistry is the registry part of our images' names. The registry does not exist: the images are part of the
// release.
const imageRegistry = "kubernetes.bosh.io"

// nobody is the user and group of the images' processes; numeric, because kubelet's runAsNonRoot requires a number.
const nobody = "65532:65532"

// BuildHelpers builds our programs that jobs run, into .build/helpers/bin and a folder of its own for each package of
// which not all VMs need the programs. The go command skips what is up to date.
func (b Builder) BuildHelpers(ctx context.Context) error {
	if err := b.buildOwn(ctx, "helpers", helperCommands...); err != nil {
		return err
	}
	return b.buildOwn(ctx, vcenterProgram, vcenterProgram)
}

func (b Builder) buildOwn(ctx context.Context, folder string, commands ...string) error {
	bin := b.path(folder, "bin")
	if err := removeOthers(bin, commands); err != nil {
		return err
	}
	programs := components.Programs{
		Step:   folder,
		Source: filepath.Join(b.Root, "src", "helpers"),
		Output: bin,
		// gRPC's debug pages would make the linker keep every method, as in package components.
		Flags:   []string{"-tags", "grpcnotrace", "-ldflags", "-s -w"},
		Shipped: true,
	}
	for _, name := range commands {
		programs.Packages = append(programs.Packages, "./cmd/"+name)
	}
	return programs.Build(ctx, b.Log)
}

// removeOthers removes files that an earlier version built and this one does not.
func removeOthers(dir string, names []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, name := range names {
		keep[name] = true
	}
	found, err := os.ReadDir(dir)
	for _, file := range found {
		if !keep[file.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, file.Name())))
		}
	}
	return err
}

// BuildImages writes the images that clusters need to .build/images, one archive each, and images.json, which maps
// their short names to full references.
//
// A tag is the version and the start of the program's digest, so that a changed program always has a new name: VMs do
// not load an image again whose name they have.
func (b Builder) BuildImages(ctx context.Context) error {
	if err := b.buildOwn(ctx, smokeServer, smokeServer); err != nil {
		return err
	}
	references := map[string]string{}
	files := []string{"images.json"}
	for _, image := range []struct{ name, program, component string }{
		{"coredns", "coredns", "coredns"},
		{"pause", "pause", "pause"},
		{"smoke-test", smokeServer, ""},
	} {
		program, version := b.path(smokeServer, "bin", image.program), ""
		if image.component != "" {
			built, err := b.openComponent(image.component)
			if err != nil {
				return err
			}
			program = filepath.Join(built.Dir, "bin", image.program)
			version = strings.TrimPrefix(built.Version, "v") + "-"
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(content)
		reference := fmt.Sprintf("%s/%s:%s%s", imageRegistry, image.name, version, hex.EncodeToString(digest[:6]))
		file := image.name + ".tar"
		archive := ociimage.Archive{Reference: reference, Program: "/" + image.program, Content: content, User: nobody}
		if err := b.writeImage(filepath.Join(b.path("images"), file), archive); err != nil {
			return err
		}
		references[image.name] = reference
		files = append(files, file)
	}
	if err := writeJSON(b.path("images", "images.json"), references); err != nil {
		return err
	}
	return removeOthers(b.path("images"), files)
}

func (b Builder) writeImage(file string, archive ociimage.Archive) error {
	stamp := b.path("stamps", filepath.Base(file)+".json")
	var written string
	if err := readJSON(stamp, &written); err != nil {
		return err
	}
	if _, err := os.Stat(file); err == nil && written == archive.Reference {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.WriteFrom(file, 0o644, archive.Write); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(b.Log, "images: wrote %s, %s\n", archive.Reference, components.Size(int64(len(archive.Content))))
	return writeJSON(stamp, archive.Reference)
}
