// Package etcdmembers protects the etcd cluster from a deploy that changes its instances.
//
// BOSH's instances and etcd's members are the same only until the number of instances changes: etcd takes its members from
// its flags on the first start, and from its data from then on. A new instance next to a running cluster would not join it
// but create a second one, and API servers would show one or the other. The checks in this package ask running members for
// their list of members, and fail before anything harmful is started or deleted.
package etcdmembers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-release/internal/strictjson"
)

// Config is what the job etcd renders to config/members.json.
type Config struct {
	// Self is this instance's own peer URL, one of those of Instances.
	Self string `json:"self"`
	// WALDir is the directory of etcd's write-ahead log. A member that has run before has files in it.
	WALDir string `json:"wal_dir"`
	// CA, Certificate and PrivateKey are the paths of the files with which members authenticate to each other.
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
	// Instances are those of the deployment that run etcd.
	Instances []Instance `json:"instances"`
}

// Instance is an instance of the deployment that runs a member of etcd.
type Instance struct {
	// Name is the instance's name in BOSH, GROUP/ID.
	Name string `json:"name"`
	// PeerURL identifies the member in etcd.
	PeerURL string `json:"peer_url"`
	// Address is the IP address. Names cannot be resolved in the pre-start script of a new VM, where bosh-dns does not run yet.
	Address string `json:"address"`
}

func (i Instance) String() string { return fmt.Sprintf("%s (%s)", i.Name, i.PeerURL) }

// Member is one entry of a member's list of its cluster.
type Member struct {
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
	// ClientURLs are empty until the member has joined for the first time.
	ClientURLs []string `json:"clientURLs"`
}

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
	for key, value := range map[string]string{"wal_dir": c.WALDir, "ca": c.CA, "certificate": c.Certificate, "private_key": c.PrivateKey} {
		if value == "" {
			return fmt.Errorf("%s is empty", key)
		}
	}
	if c.self() == nil {
		return fmt.Errorf("self is %q, which is none of the instances %v", c.Self, c.Instances)
	}
	return nil
}

func (c *Config) self() *Instance {
	for i := range c.Instances {
		if c.Instances[i].PeerURL == c.Self {
			return &c.Instances[i]
		}
	}
	return nil
}

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
