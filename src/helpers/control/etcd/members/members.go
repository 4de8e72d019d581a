// Package members keeps the members of the etcd cluster and the instances of the deployment the same.
//
// etcd takes its members from its flags on the very first start, and from its data from then on, so what a manifest
// says changes nothing by itself. This package makes the changes, each at the point of a deploy at which it is safe:
//
//	Prepare  pre-start: adds an instance without data to the cluster as a learner, which has no vote; replaces the
//	         entry of a member whose disk was lost
//	Join     each start of the process: runs a learner until it has a copy of the data and a vote, before clients can
//	         connect
//	Settle   post-start: removes members whose instances no longer exist
//	Leave    pre-stop of an instance that is about to be deleted: removes it from the cluster
//
//	MoveLeader  drain, and wherever a leader is about to be busy: makes another member the leader
//
// KeepDefragmented and MakeSpace care for the size of the members' databases.
//
// Only the bootstrap instance creates a cluster, of itself alone; all others join it. Every step can be repeated after
// an interruption, and fails before anything harmful is started or deleted. etcd refuses what would cost the quorum
// (strict-reconfig-check); this package says why, and what to do.
package members

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/strictjson"
)

// Config is what the job etcd renders to config/members.json.
type Config struct {
	// Self is this instance's own peer URL, one of those of Instances.
	Self string `json:"self"`
	// DataDir is etcd's data directory.
	DataDir string `json:"data_dir"`
	// WALDir is the directory of etcd's write-ahead log. A member that has run before has files in it.
	WALDir string `json:"wal_dir"`
	// LeftFile marks a member whose data must not be used again: it was removed from the cluster because its instance
	// was about to be deleted, or a snapshot is restored on the bootstrap instance.
	LeftFile string `json:"left_file"`
	// CA, Certificate and PrivateKey are the paths of the files with which members authenticate to each other.
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
	// Client is the same for clients of the members.
	Client Identity `json:"client"`
	// Instances are those of the deployment that run etcd.
	Instances []Instance `json:"instances"`
	// Deployment says where others may have run it before.
	Deployment boshdns.Deployment `json:"deployment"`

	// patience limits waits for other members; defaults to defaultPatience.
	patience time.Duration
}

// Identity is a certificate with its key, and the CA of the other side, as paths.
type Identity struct {
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
}

// Instance is an instance of the deployment that runs a member of etcd.
type Instance struct {
	// Name is the instance's name in BOSH, GROUP/ID.
	Name string `json:"name"`
	// PeerURL identifies the member in etcd.
	PeerURL string `json:"peer_url"`
	// ClientURL is where the member serves clients.
	ClientURL string `json:"client_url"`
	// Address is the IP address. Names cannot be resolved in the pre-start script of a new VM, where bosh-dns does not
	// run yet.
	Address string `json:"address"`
	// Bootstrap is whether the instance may create a cluster if no other instance runs a member, and is the one on
	// which snapshots are restored. One instance of a group is (spec.bootstrap).
	Bootstrap bool `json:"bootstrap"`
}

func (i Instance) String() string { return fmt.Sprintf("%s (%s)", i.Name, i.PeerURL) }

// member is the name of the instance's member.
func (i Instance) member() string { return path.Base(i.Name) }

// Member is one entry of a member's list of its cluster.
type Member struct {
	ID       uint64   `json:"id"`
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
	// ClientURLs are empty until the member has joined for the first time.
	ClientURLs []string `json:"clientURLs"`
	// IsLearner is whether the member has no vote yet.
	IsLearner bool `json:"isLearner"`
}

func (m Member) joined() bool { return len(m.ClientURLs) > 0 }

func (m Member) String() string {
	if m.Name == "" {
		return strings.Join(m.PeerURLs, ",")
	}
	return fmt.Sprintf("%s (%s)", m.Name, strings.Join(m.PeerURLs, ","))
}

// Load reads a configuration. Errors name the file.
func Load(path string) (*Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

// Parse decodes and checks the content of a configuration file.
func Parse(content []byte) (*Config, error) {
	var config Config
	if err := strictjson.Unmarshal(content, &config); err != nil {
		return nil, err
	}
	return &config, config.check()
}

func (c *Config) check() error {
	for _, field := range []struct{ key, value string }{
		{"data_dir", c.DataDir}, {"wal_dir", c.WALDir}, {"left_file", c.LeftFile},
		{"ca", c.CA}, {"certificate", c.Certificate}, {"private_key", c.PrivateKey},
		{"client.ca", c.Client.CA},
		{"client.certificate", c.Client.Certificate}, {"client.private_key", c.Client.PrivateKey},
	} {
		if field.value == "" {
			return fmt.Errorf("%s is empty", field.key)
		}
	}
	if c.self() == nil {
		return fmt.Errorf("self is %q, which is none of the instances %v", c.Self, c.Instances)
	}
	return nil
}

// Bootstrap is whether this instance may create a cluster if no other instance runs a member.
func (c *Config) Bootstrap() bool { return c.self().Bootstrap }

func (c *Config) self() *Instance { return c.instance(c.Self) }

// instance returns the instance with this peer URL, or nil.
func (c *Config) instance(peerURL string) *Instance {
	for i := range c.Instances {
		if c.Instances[i].PeerURL == peerURL {
			return &c.Instances[i]
		}
	}
	return nil
}

// instanceOf returns the instance of a member, or nil.
func (c *Config) instanceOf(m Member) *Instance { return c.instance(strings.Join(m.PeerURLs, ",")) }

// others returns all instances except this one.
func (c *Config) others() []Instance {
	var others []Instance
	for _, i := range c.Instances {
		if i.PeerURL != c.Self {
			others = append(others, i)
		}
	}
	return others
}

// Name is the name of this instance's member.
func (c *Config) Name() string { return c.self().member() }

// hasData reports whether this member has run before. Like etcd itself, it looks for *.wal files.
func (c *Config) hasData() (bool, error) {
	entries, err := os.ReadDir(c.WALDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("read etcd's data: %w", err)
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".wal" {
			return true, nil
		}
	}
	return false, nil
}

// discardData removes the data of a member that was removed from the cluster. etcd's user owns the directory: os.Root
// does not follow links out of it.
func (c *Config) discardData() error {
	inside, err := filepath.Rel(c.DataDir, c.WALDir)
	if err != nil || !filepath.IsLocal(inside) {
		return fmt.Errorf(
			"this instance has the data of a member that was removed from the cluster, and wal-dir of extra_args is "+
				"outside of %s: remove %s and %s, and deploy again",
			c.DataDir, c.WALDir, filepath.Join(c.DataDir, "member"),
		)
	}
	root, err := os.OpenRoot(c.DataDir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return errors.Join(root.RemoveAll(inside), root.RemoveAll("member"))
}
