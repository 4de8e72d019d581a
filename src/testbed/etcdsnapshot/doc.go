// Package etcdsnapshot uploads snapshots of etcd to the simulator's buckets.
package etcdsnapshot
