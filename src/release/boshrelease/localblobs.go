package boshrelease

import (
	"context"
	"fmt"

	"kubernetes-release/release/components"
)

// WriteBlobs prepares the repository for a stock "bosh create-release": it writes the packages' blobs to blobs/, their
// index to config/blobs.yml, and the licenses and the SBOM, all where bosh-cli looks for them.
//
// bosh-cli removes files in blobs/ that config/blobs.yml does not list (releasedir/fs_blobs_dir.go: SyncBlobs), and
// downloads only those that have an id in the blobstore.
func (b Builder) WriteBlobs(ctx context.Context) error {
	blobs, err := b.writeBlobs(ctx)
	if err != nil {
		return err
	}
	name, err := releaseName(b.Root)
	if err != nil {
		return err
	}
	if err := b.stageBlobs(b.Root, blobs); err != nil {
		return err
	}
	var size int64
	for _, blob := range blobs {
		size += blob.Size
	}
	_, _ = fmt.Fprintf(b.Log, "blobs: wrote %d to blobs/ and config/blobs.yml, %s\n", len(blobs), components.Size(size))
	return b.writeSBOM(ctx, name, b.Root)
}
