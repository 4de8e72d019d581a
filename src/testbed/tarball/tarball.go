// Package tarball writes copies of a release tarball with another Kubernetes, for tests and measurements of upgrades.
package tarball

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubernetes-release/release/components"
)

const (
	// kubernetesPackage is the package in a release tarball with the Kubernetes program, kubernetesBlob its blob, and
	// kubernetesProgram the file in the blob.
	kubernetesPackage = "packages/kubernetes.tgz"
	kubernetesBlob    = "kubernetes/kubernetes.tar.xz"
	kubernetesProgram = "bin/kubernetes"
)

// PinnedKubernetes returns the version of the component "kubernetes", or of one that tests build from other pins, in a
// working copy.
func PinnedKubernetes(ctx context.Context, root, component string) (version string, err error) {
	pins := components.Builder{Source: filepath.Join(root, "src/components")}
	return pins.PinnedVersion(ctx, components.Named(component)[0])
}

// PreviousKubernetes writes a copy of the release tarball from, to the file to, with the previous "minor" version of
// Kubernetes or the previous "patch" release, which has been built in the working copy root, and returns that version.
// The error is fs.ErrNotExist if it has not been built.
func PreviousKubernetes(ctx context.Context, root, from, what, to string) (version string, err error) {
	component := "kubernetes-previous-" + what
	if version, err = PinnedKubernetes(ctx, root, component); err != nil {
		return "", err
	}
	program := filepath.Join(root, ".build/components", component, kubernetesProgram)
	if err := ReplaceProgram(ctx, from, to, program, version); err != nil {
		return "", fmt.Errorf("%w; .build/bin/components %s builds it", err, component)
	}
	return version, nil
}

// ReplaceProgram writes a copy of the release tarball from, to the file to, with another Kubernetes program, whose
// version becomes part of the release's.
func ReplaceProgram(ctx context.Context, from, to, program, version string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	return replaceKubernetes(ctx, from, to, func(blob []byte) ([]byte, string, error) {
		files, err := parse(bytes.NewReader(blob))
		if err != nil {
			return nil, "", err
		}
		file := files.find(kubernetesProgram)
		if file == nil {
			return nil, "", fmt.Errorf("the package kubernetes has no %s", kubernetesProgram)
		}
		file.content = content
		var out bytes.Buffer
		err = files.writeTo(&out)
		return out.Bytes(), version, err
	})
}

// replaceKubernetes writes a copy of a release tarball with what change makes of the tar archive with Kubernetes, and
// with the version that it returns in the release's version.
func replaceKubernetes(
	ctx context.Context, from, to string, change func(archive []byte) (changed []byte, version string, err error),
) error {
	release, err := read(from)
	if err != nil {
		return err
	}
	manifest, pkg := release.find("release.MF"), release.find(kubernetesPackage)
	if manifest == nil || pkg == nil {
		return fmt.Errorf("%s has no release.MF or no %s", from, kubernetesPackage)
	}
	before := fmt.Sprintf("sha256:%x", sha256.Sum256(pkg.content))
	files, err := parseZipped(pkg.content)
	if err != nil {
		return err
	}
	blob := files.find(kubernetesBlob)
	if blob == nil {
		return errors.New("the package kubernetes has no blob")
	}
	archive, err := filter(ctx, blob.content, "xz", "--decompress", "--stdout")
	if err != nil {
		return err
	}
	archive, version, err := change(archive)
	if err != nil {
		return err
	}
	if blob.content, err = filter(ctx, archive, "xz", "-0", "--threads=0", "--stdout"); err != nil {
		return err
	}
	if pkg.content, err = files.zipped(); err != nil {
		return err
	}
	after := fmt.Sprintf("sha256:%x", sha256.Sum256(pkg.content))
	if manifest.content, err = withPackage(
		manifest.content, before, after, strings.ReplaceAll(version, ".", "-"),
	); err != nil {
		return err
	}
	content, err := release.zipped()
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// withPackage returns a release manifest with another digest of a package, which is its fingerprint too, and another
// version.
func withPackage(manifest []byte, before, after, suffix string) ([]byte, error) {
	lines := strings.Split(string(manifest), "\n")
	found := false
	for n, line := range lines {
		if strings.HasPrefix(line, "version: ") {
			lines[n] = line + "." + suffix
		}
		if strings.TrimSpace(line) != "sha1: "+before || n < 2 {
			continue
		}
		found = true
		for i, key := range []string{"version", "fingerprint"} {
			lines[n-2+i] = "  " + key + ": " + strings.TrimPrefix(after, "sha256:")
		}
		lines[n] = "  sha1: " + after
	}
	if !found {
		return nil, fmt.Errorf("release.MF has no package with the digest %s", before)
	}
	return []byte(strings.Join(lines, "\n")), nil
}

type entry struct {
	header  *tar.Header
	content []byte
}

type entries []*entry

func (e entries) find(name string) *entry {
	for _, one := range e {
		if strings.TrimPrefix(one.header.Name, "./") == name {
			return one
		}
	}
	return nil
}

func read(path string) (entries, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseZipped(file)
}

func parseZipped(file []byte) (entries, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return parse(unzipped)
}

func parse(archive io.Reader) (entries, error) {
	var list entries
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		list = append(list, &entry{header, content})
	}
}

func (e entries) zipped() ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	err = errors.Join(e.writeTo(zipped), zipped.Close())
	return out.Bytes(), err
}

func (e entries) writeTo(archive io.Writer) error {
	writer := tar.NewWriter(archive)
	for _, one := range e {
		one.header.Size = int64(len(one.content))
		if err := writer.WriteHeader(one.header); err != nil {
			return err
		}
		if _, err := writer.Write(one.content); err != nil {
			return err
		}
	}
	return writer.Close()
}

func filter(ctx context.Context, input []byte, argv ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Stdin = bytes.NewReader(input)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%q: %w: %s", argv, err, problems.String())
	}
	return out.Bytes(), nil
}
