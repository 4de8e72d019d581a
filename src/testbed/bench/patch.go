package bench

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
	"regexp"
	"strings"
)

// kubernetesPackage is the package in a release tarball with the Kubernetes program.
const kubernetesPackage = "packages/kubernetes.tgz"

var patchVersion = regexp.MustCompile(`\bv(\d+\.\d+)\.\d\b`)

// nextPatch returns another patch release of the same minor version, and nextMinor the first release of the next one.
// They have the same length as the version, since they are written over it.
func nextPatch(version string) string {
	if patched := version[:len(version)-1] + "9"; patched != version {
		return patched
	}
	return version[:len(version)-1] + "8"
}

func nextMinor(version string) string {
	var minor int
	if _, err := fmt.Sscanf(version, "v1.%d.", &minor); err != nil {
		return version
	}
	return fmt.Sprintf("v1.%d.0", minor+1)
}

// patchedRelease writes a copy of a release tarball whose Kubernetes says that it is the next version, and returns both
// versions. It stands for the next release: everything else of the program is the same.
func patchedRelease(ctx context.Context, from, to string, next func(string) string) (old, patched string, err error) {
	entries, err := readTar(from)
	if err != nil {
		return "", "", err
	}
	manifest, pkg := entries.find("release.MF"), entries.find(kubernetesPackage)
	if manifest == nil || pkg == nil {
		return "", "", fmt.Errorf("%s has no release.MF or no %s", from, kubernetesPackage)
	}
	before := fmt.Sprintf("sha256:%x", sha256.Sum256(pkg.content))
	if old, patched, err = pkg.patch(ctx, next); err != nil {
		return "", "", err
	}
	after := fmt.Sprintf("sha256:%x", sha256.Sum256(pkg.content))
	if manifest.content, err = withPackage(
		manifest.content, before, after, strings.ReplaceAll(patched, ".", "-"),
	); err != nil {
		return "", "", err
	}
	return old, patched, entries.write(to)
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

func readTar(path string) (entries, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseTar(file)
}

func parseTar(file []byte) (entries, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	var list entries
	for reader := tar.NewReader(unzipped); ; {
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

func (e entries) bytes() ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	writer := tar.NewWriter(zipped)
	for _, one := range e {
		one.header.Size = int64(len(one.content))
		if err := writer.WriteHeader(one.header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(one.content); err != nil {
			return nil, err
		}
	}
	err = errors.Join(writer.Close(), zipped.Close())
	return out.Bytes(), err
}

func (e entries) write(path string) error {
	content, err := e.bytes()
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// patch changes the version in the blob of a package.
func (e *entry) patch(ctx context.Context, next func(string) string) (old, patched string, err error) {
	content, err := parseTar(e.content)
	if err != nil {
		return "", "", err
	}
	blob := content.find("kubernetes/kubernetes.tar.xz")
	if blob == nil {
		return "", "", errors.New("the package kubernetes has no blob")
	}
	text, err := filter(ctx, blob.content, "xz", "--decompress", "--stdout")
	if err != nil {
		return "", "", err
	}
	if old = mostFrequent(text); old == "" {
		return "", "", errors.New("the package kubernetes names no version")
	}
	if patched = next(old); patched == old || len(patched) != len(old) {
		return "", "", fmt.Errorf("%s cannot become %s", old, patched)
	}
	text = bytes.ReplaceAll(text, []byte(old), []byte(patched))
	if blob.content, err = filter(ctx, text, "xz", "-0", "--threads=0", "--stdout"); err != nil {
		return "", "", err
	}
	e.content, err = content.bytes()
	return old, patched, err
}

// mostFrequent is the version of the modules of Kubernetes, which its program names most often.
func mostFrequent(text []byte) string {
	counts, most := map[string]int{}, ""
	for _, found := range patchVersion.FindAll(text, -1) {
		version := string(found)
		if counts[version]++; strings.HasPrefix(version, "v1.") && counts[version] > counts[most] {
			most = version
		}
	}
	return most
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
