package boshrelease

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"kubernetes-release/release/archive"
	"kubernetes-release/release/components"
	"kubernetes-release/release/progress"
)

// archivesAtOnce is how many archives are compressed in parallel.
const archivesAtOnce = 2

// Blob is a package's content in the release.
type Blob struct {
	// Digest is the digest of its content.
	Digest string `json:"digest"`
	// SHA256 is the file's digest, hexadecimal.
	SHA256 string `json:"sha256"`
	// Size is the file's, in bytes.
	Size int64 `json:"size"`
}

// writeBlobs packs the content of each package and returns the blobs by package name.
func (b Builder) writeBlobs(ctx context.Context) (map[string]Blob, error) {
	packages := b.Packages()
	blobs := make([]Blob, len(packages))
	step := progress.NewStep(b.Log, "blobs")
	defer step.Close()
	step.Parts(len(packages), 0)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(archivesAtOnce)
	for i, p := range packages {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			var err error
			if blobs[i], err = b.writeBlob(ctx, p, step); err != nil {
				return fmt.Errorf("package %s: %w", p.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	step.Finish("%d packages", len(packages))
	named := map[string]Blob{}
	for i, p := range packages {
		named[p.Name] = blobs[i]
	}
	return named, nil
}

func (b Builder) blobFile(name string) string { return b.path("blobs", name, name+".tar.xz") }

func (b Builder) writeBlob(ctx context.Context, p Package, step *progress.Step) (Blob, error) {
	started := time.Now()
	for _, tree := range p.Trees {
		if found, err := os.ReadDir(tree.Dir); err != nil || len(found) == 0 {
			return Blob{}, fmt.Errorf(
				"%s is empty: the content of the package is not built; make components helpers images builds it (%w)",
				tree.Dir, cmp.Or(err, fs.ErrNotExist),
			)
		}
	}
	digest, err := archive.Digest(p.Trees)
	if err != nil {
		return Blob{}, err
	}
	stamp := b.path("stamps", "blob-"+p.Name+".json")
	var blob Blob
	if err := readJSON(stamp, &blob); err != nil {
		return Blob{}, err
	}
	file := b.blobFile(p.Name)
	if info, err := os.Stat(file); err == nil && blob.Digest == digest && info.Size() == blob.Size {
		step.Skip()
		return blob, nil
	}
	part := step.Part(p.Name, 0)
	if err := archive.WriteXZ(ctx, file, p.Trees...); err != nil {
		return Blob{}, err
	}
	blob = Blob{Digest: digest}
	if blob.SHA256, blob.Size, err = fileDigest(file); err != nil {
		return Blob{}, err
	}
	part.Done("packed in %s, %s", progress.Took(time.Since(started)), components.Size(blob.Size))
	return blob, writeJSON(stamp, blob)
}

// fileDigest returns a file's hexadecimal SHA-256 and its size in bytes.
func fileDigest(file string) (string, int64, error) {
	digest := sha256.New()
	if err := archive.CopyFile(digest, file); err != nil {
		return "", 0, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(digest.Sum(nil)), info.Size(), nil
}
