// Package etcdmembers keeps a deploy from harming etcd's cluster.
//
// BOSH knows instances, etcd knows members, and the two are equal only as long as nobody changes the number of instances:
// etcd takes its members from its flags when it starts for the first time, and from its data ever after. So a new instance
// beside a running cluster would not join it. It would found a second cluster, and API servers would show one or the other.
// The checks here ask the members that run whom they list, and refuse what would end so, before anything is started or deleted.
package etcdmembers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Config is what the job etcd renders to config/members.json.
type Config struct {
	// Self is this instance's own peer URL, one of those of Instances.
	Self string `json:"self"`
	// WALDir is the folder of etcd's write-ahead log; a member that has ever run has files in it.
	WALDir string `json:"wal_dir"`
	// CA, Certificate and PrivateKey are the paths of what members show each other.
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	PrivateKey  string `json:"private_key"`
	// Instances are those of the deployment that run etcd.
	Instances []Instance `json:"instances"`
}

// Instance is where the deployment has a member of etcd.
type Instance struct {
	// Name is BOSH's name of it, GROUP/ID.
	Name string `json:"name"`
	// PeerURL is what etcd knows the member by.
	PeerURL string `json:"peer_url"`
	// Address is its IP address: in pre-start of a new VM bosh-dns does not run yet, and no name can be resolved.
	Address string `json:"address"`
}

func (i Instance) String() string { return fmt.Sprintf("%s (%s)", i.Name, i.PeerURL) }

// Member is one entry of the list that a member of etcd gives of its cluster.
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

// Load reads a configuration.
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

// Parse decodes a configuration strictly.
func Parse(content []byte) (*Config, error) {
	var config Config
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil {
		return nil, err
	}
	for key, value := range map[string]string{"wal_dir": config.WALDir, "ca": config.CA, "certificate": config.Certificate, "private_key": config.PrivateKey} {
		if value == "" {
			return nil, fmt.Errorf("%s is empty", key)
		}
	}
	if config.self() == nil {
		return nil, fmt.Errorf("self is %q, which is none of the instances %v", config.Self, config.Instances)
	}
	return &config, nil
}

func (c *Config) self() *Instance {
	for i := range c.Instances {
		if c.Instances[i].PeerURL == c.Self {
			return &c.Instances[i]
		}
	}
	return nil
}

// others are the instances but this one.
func (c *Config) others() []Instance {
	var others []Instance
	for _, i := range c.Instances {
		if i.PeerURL != c.Self {
			others = append(others, i)
		}
	}
	return others
}

// hasData tells by the same sign as etcd itself whether this member has run before.
func (c *Config) hasData() (bool, error) {
	entries, err := os.ReadDir(c.WALDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("look for etcd's data: %w", err)
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".wal" {
			return true, nil
		}
	}
	return false, nil
}
