package launcher

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// largestQuota is the largest that etcd suggests (MaxQuotaBytes in server/storage/quota.go).
	largestQuota = 8 << 30
	// etcdQuota is etcd's own default (DefaultQuotaBytes in server/storage/quota.go).
	etcdQuota = 2 << 30
	// databasesOnDisk is how many files as large as a full database a disk should hold: the database, as many
	// snapshots as the job etcd keeps by default, one that is being taken, and the copy of defragmentation, which is
	// also the room without which no snapshot is taken (package control/etcd/snapshot). The number does not follow the
	// property for snapshots: an operator who keeps more of them must not find etcd full.
	databasesOnDisk = 1 + 4 + 1 + 1
)

// databaseQuota returns the size in bytes that a database of etcd may have on the disk of a directory.
func databaseQuota(directory string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(directory, &disk); err != nil {
		return 0, fmt.Errorf("the size of the disk of %s is not known: %w", directory, err)
	}
	return quotaOfDisk(disk.Blocks * uint64(disk.Frsize)), nil
}

// quotaOfDisk is databaseQuota for a disk of this size in bytes. A small disk does not hold all snapshots of a full
// database. It gets etcd's own default, as long as it holds the database, its copy and one snapshot.
func quotaOfDisk(size uint64) uint64 {
	return min(max(size/databasesOnDisk, min(etcdQuota, size/3)), largestQuota)
}
