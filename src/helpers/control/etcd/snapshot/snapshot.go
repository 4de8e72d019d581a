// Package snapshot takes snapshots of etcd, keeps the newest of them, uploads them to S3, and restores one into a
// cluster.
//
// A snapshot is what etcdctl saves: the database of one member, followed by its SHA-256 checksum. It holds everything
// that the API stores. Secrets in it are encrypted with the keys of kube-apiserver, which a restore into another
// deployment needs too.
package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"kubernetes-release/control/etcd/members"
	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/strictjson"
)

// saveTimeout limits the time in which a member sends its database.
const saveTimeout = 30 * time.Minute

// Config is what the job etcd renders to config/snapshots.json.
type Config struct {
	// Members is the path of config/members.json.
	Members string `json:"members"`
	// Domain is the property member_domain: the members of a snapshot of this cluster have names in it.
	Domain string `json:"domain"`
	// Endpoint is where this VM's member serves clients.
	Endpoint string `json:"endpoint"`
	// Programs is the directory of etcdctl and etcdutl.
	Programs string `json:"programs"`
	// Dir is where snapshots are kept: a new one every Interval, the newest Keep of them.
	Dir      string            `json:"dir"`
	Interval duration.Duration `json:"interval"`
	Keep     int               `json:"keep"`
	// Metrics is the file that Run writes about snapshots, for the textfile collector of node_exporter; empty for none.
	Metrics string `json:"metrics,omitempty"`
	// Bucket is where snapshots are uploaded to, if anywhere.
	Bucket *Bucket `json:"bucket,omitempty"`

	members *members.Config
}

// Cluster has the members of which snapshots are taken.
func (c *Config) Cluster() *members.Config { return c.members }

// Load reads a configuration, with that of the members. Errors name the file.
func Load(path string) (*Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var c Config
	if err := strictjson.Unmarshal(content, &c); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	for _, field := range []struct{ key, value string }{
		{"domain", c.Domain}, {"endpoint", c.Endpoint}, {"programs", c.Programs}, {"dir", c.Dir},
	} {
		if field.value == "" {
			return nil, fmt.Errorf("configuration %s: %s is empty", path, field.key)
		}
	}
	if c.Keep < 1 {
		return nil, fmt.Errorf("configuration %s: keep is %d, must be 1 or more", path, c.Keep)
	}
	c.members, err = members.Load(c.Members)
	return &c, err
}

// Info is what a snapshot says about itself.
type Info struct {
	// Version is the version of etcd's storage, such as 3.7.0.
	Version string
	// Members are the peer URLs of the members at the time of the snapshot.
	Members []string
	// Revisions is the number of revisions of objects.
	Revisions int
	Size      int64
}

// Save writes a snapshot of this VM's member to a file, which must not exist, and checks it. Like Take, it writes none
// that would fill the disk.
func (c *Config) Save(ctx context.Context, path string) (Info, error) {
	if _, err := os.Lstat(path); err == nil {
		return Info{}, fmt.Errorf("%s exists already", path)
	}
	if err := c.space(filepath.Dir(path), 0); err != nil {
		return Info{}, err
	}
	if err := c.sound(ctx); err != nil {
		return Info{}, err
	}
	return c.save(ctx, path)
}

// access are the flags with which etcdctl connects to this VM's member.
func (c *Config) access() []string {
	id := c.members.Client
	return []string{
		"--endpoints=" + c.Endpoint, "--cacert=" + id.CA, "--cert=" + id.Certificate, "--key=" + id.PrivateKey,
	}
}

// sound fails if etcd does not answer, or has found that its data is corrupt.
func (c *Config) sound(ctx context.Context) error {
	// Without etcd, snapshot save waits for ever. endpoint health would fail while etcd refuses writes because its
	// quota is used up (etcdctl/ctlv3/command/ep_command.go).
	alarms, err := c.run(ctx, "etcdctl", append(c.access(), "alarm", "list")...)
	if err != nil {
		return err
	}
	if strings.Contains(string(alarms), "CORRUPT") {
		return fmt.Errorf(
			"etcd has the alarm CORRUPT: %s; no snapshot is taken, since it could be of the corrupt data, and would "+
				"take the place of a good one",
			strings.TrimSpace(string(alarms)),
		)
	}
	return nil
}

func (c *Config) save(ctx context.Context, path string) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if _, err := c.run(ctx, "etcdctl", append(c.access(), "snapshot", "save", path)...); err != nil {
		return Info{}, err
	}
	return c.Check(ctx, path)
}

// run runs a program of etcd and returns its output. An error ends with what it printed.
func (c *Config) run(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(c.Programs, name), arguments...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf(
			"%s %s: %w: %s", name, arguments[len(arguments)-1], err, strings.TrimSpace(stderr.String()),
		)
	}
	return stdout, nil
}

// Check reads a snapshot, and fails if it is damaged, belongs to another cluster, or to a newer version of etcd.
func (c *Config) Check(ctx context.Context, path string) (Info, error) {
	info, err := read(path)
	if err != nil {
		return info, fmt.Errorf("%s is not a snapshot that can be restored: %w", path, err)
	}
	for _, member := range info.Members {
		if parsed, err := url.Parse(member); err != nil || !within(parsed.Hostname(), c.Domain) {
			return info, fmt.Errorf(
				"%s is a snapshot of another cluster: its members are %v, those of this cluster have names in %s "+
					"(property member_domain)",
				path, info.Members, c.Domain,
			)
		}
	}
	own, err := c.version(ctx)
	if err != nil {
		return info, err
	}
	if newer(info.Version, own) {
		return info, fmt.Errorf(
			"%s was taken by etcd %s, which is newer than this one (%s): deploy the version of the release that took "+
				"it, then restore",
			path, info.Version, own,
		)
	}
	return info, nil
}

func within(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }

// version is that of etcdutl, which is etcd's.
func (c *Config) version(ctx context.Context) (string, error) {
	output, err := c.run(ctx, "etcdutl", "version")
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(output), "etcdutl version: ")
	if !ok {
		return "", fmt.Errorf("etcdutl version printed %q", output)
	}
	version, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(version), nil
}

// newer compares major and minor version: patch versions store the same.
func newer(a, b string) bool { return slices.Compare(minor(a), minor(b)) > 0 }

func minor(version string) []int {
	var numbers []int
	for _, part := range strings.SplitN(version, ".", 3) {
		n, _ := strconv.Atoi(part) // 0 for a version that is no version
		numbers = append(numbers, n)
	}
	return numbers[:min(2, len(numbers))]
}

// read verifies the checksum before it opens the database, because the database is mapped: reading beyond the end of a
// truncated one would crash.
func read(path string) (Info, error) {
	size, err := verify(path)
	if err != nil {
		return Info{}, err
	}
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = db.Close() }()
	info := Info{Size: size}
	return info, db.View(info.read)
}

// Buckets and keys of etcd's storage (server/storage/schema/bucket.go).
var (
	keyBucket, metaBucket, clusterBucket, membersBucket = []byte(
		"key",
	), []byte("meta"), []byte("cluster"), []byte("members")
	storageVersion, clusterVersion = []byte("storageVersion"), []byte("clusterVersion")
)

func (i *Info) read(tx *bbolt.Tx) error {
	keys, meta, members := tx.Bucket(keyBucket), tx.Bucket(metaBucket), tx.Bucket(membersBucket)
	if keys == nil || meta == nil || members == nil {
		return errors.New("it is not a database of etcd")
	}
	i.Revisions = keys.Inspect().KeyN
	i.Version = string(meta.Get(storageVersion))
	if cluster := tx.Bucket(clusterBucket); cluster != nil && newer(string(cluster.Get(clusterVersion)), i.Version) {
		i.Version = string(cluster.Get(clusterVersion))
	}
	if i.Version == "" {
		return errors.New("it has no version of etcd")
	}
	return members.ForEach(func(_, value []byte) error {
		var member struct {
			PeerURLs []string `json:"peerURLs"`
		}
		if err := json.Unmarshal(value, &member); err != nil {
			return fmt.Errorf("its list of members: %w", err)
		}
		i.Members = append(i.Members, member.PeerURLs...)
		return nil
	})
}

// verify compares the checksum at the end of a snapshot with its content, and returns its size.
func verify(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	stat, err := file.Stat()
	if err != nil {
		return 0, err
	}
	const sector = 512
	if !stat.Mode().IsRegular() || stat.Size() < sector || stat.Size()%sector != sha256.Size {
		return 0, fmt.Errorf(
			"it has no checksum (%d bytes): it is truncated, or was not written by etcdctl snapshot save", stat.Size(),
		)
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, file, stat.Size()-sha256.Size); err != nil {
		return 0, err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(file, want); err != nil {
		return 0, err
	}
	if !bytes.Equal(hash.Sum(nil), want) {
		return 0, errors.New("its checksum is wrong: it is damaged or truncated")
	}
	return stat.Size(), nil
}
