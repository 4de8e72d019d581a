// Package node holds the identity of the machine as a Kubernetes node: what the cloud calls it and where it can be
// reached. It is found out once, before anything starts, and read by every process that needs it, so that no two of
// them can disagree about the node's name.
package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// Identity says who this machine is in the cluster and in its cloud.
type Identity struct {
	// Name is the name of the Node object, a lower-case DNS subdomain of at most 253 characters. On AWS it is the private DNS name.
	Name string `json:"name"`
	// ProviderID is the cloud's own name of the machine, such as aws:///us-east-1a/i-0123456789abcdef0; empty without a cloud.
	ProviderID string `json:"provider_id"`
	// Address is the primary IP address, by which the other machines of the cluster reach this one.
	Address string `json:"address"`
	// Region and Zone say where in the cloud the machine runs; empty without a cloud.
	Region string `json:"region"`
	Zone   string `json:"zone"`
}

// maxFileSize bounds what Read takes in: an identity has a few hundred bytes.
const maxFileSize = 64 << 10

// subdomain is the rule of RFC 1123 that Kubernetes applies to the names of nodes.
var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Validate checks that name and address are there and well formed; the fields of the cloud may be empty.
// The error lists everything that is wrong.
func (id Identity) Validate() error {
	var problems []error
	switch {
	case id.Name == "":
		problems = append(problems, errors.New("name is empty"))
	case len(id.Name) > 253 || !subdomain.MatchString(id.Name):
		problems = append(problems, fmt.Errorf("name %q is not a DNS subdomain: lower-case letters, digits, '-' and '.', at most 253 characters", id.Name))
	}
	if _, err := netip.ParseAddr(id.Address); err != nil {
		problems = append(problems, fmt.Errorf("address %q is not an IP address", id.Address))
	}
	return errors.Join(problems...)
}

// Write stores a valid identity at path, readable by all: it holds no secret. The file appears at once and whole, or,
// on an error, stays as it was. Missing parent directories are made.
func Write(path string, id Identity) error {
	if err := id.Validate(); err != nil {
		return fmt.Errorf("node identity for %s: %w", path, err)
	}
	content, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("node identity for %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write node identity: %w", err)
	}
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write node identity: %w", err)
	}
	defer os.Remove(temporary.Name()) // fails harmlessly once the file has been renamed
	err = errors.Join(writeAll(temporary, append(content, '\n')), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write node identity %s: %w", path, err)
	}
	return nil
}

func writeAll(f *os.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return f.Sync()
}

// Read loads what Write stored. It refuses unknown keys and identities that Validate refuses; errors name the file.
func Read(path string) (Identity, error) {
	f, err := os.Open(path)
	if err != nil {
		return Identity{}, fmt.Errorf("read node identity: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileSize))
	if err != nil {
		return Identity{}, fmt.Errorf("read node identity %s: %w", path, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var id Identity
	if err := decoder.Decode(&id); err != nil {
		return Identity{}, fmt.Errorf("node identity %s: %w", path, err)
	}
	if err := id.Validate(); err != nil {
		return Identity{}, fmt.Errorf("node identity %s: %w", path, err)
	}
	return id, nil
}
