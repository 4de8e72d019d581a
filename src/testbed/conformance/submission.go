package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"text/template"
	"time"

	"kubernetes-release/internal/atomicfile"
)

const (
	// product is the folder of the results in github.com/cncf/k8s-conformance.
	product     = "kubernetes-bosh-release"
	archiveName = "submission.tar.gz"
)

var minorVersion = regexp.MustCompile(`\Av\d+\.\d+\b`)

//go:embed submission
var templates embed.FS

// Submission is what the CNCF's program wants to know besides the results (instructions.md of
// github.com/cncf/k8s-conformance).
type Submission struct {
	Kubernetes string // version, as in v1.37.0
	Release    string // version of the BOSH release
}

// Write writes the archive of a run into the folder of its results, and returns its path.
func (s Submission) Write(folder string) (string, error) {
	minor := minorVersion.FindString(s.Kubernetes)
	if minor == "" {
		return "", fmt.Errorf("the version of Kubernetes is %q, not of the form v1.37.0", s.Kubernetes)
	}
	files := map[string][]byte{}
	for _, name := range []string{"README.md", "PRODUCT.yaml"} {
		parsed, err := template.ParseFS(templates, "submission/"+name)
		if err != nil {
			return "", err
		}
		var text bytes.Buffer
		if err := parsed.Execute(&text, s); err != nil {
			return "", err
		}
		files[name] = text.Bytes()
	}
	for _, name := range []string{logName, junitName} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return "", err
		}
		files[name] = content
	}
	file := filepath.Join(folder, archiveName)
	return file, atomicfile.WriteFrom(
		file, 0o644, func(w io.Writer) error { return writeArchive(w, path.Join(minor, product), files) },
	)
}

func writeArchive(w io.Writer, folder string, files map[string][]byte) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	var err error
	for _, name := range []string{"README.md", "PRODUCT.yaml", logName, junitName} {
		header := &tar.Header{
			Name:    path.Join(folder, name),
			Mode:    0o644,
			Size:    int64(len(files[name])),
			ModTime: time.Now(),
		}
		err = errors.Join(err, archive.WriteHeader(header))
		_, writeError := archive.Write(files[name])
		err = errors.Join(err, writeError)
	}
	return errors.Join(err, archive.Close(), compressed.Close())
}
