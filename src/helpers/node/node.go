// Package node holds the identity of a VM as a Kubernetes node: its name and its address, and what the cloud calls it.
// With a cloud provider the identity is detected once, by the pre-start script of the job cloud-provider, and stored in
// a file. Every process reads it from there, so that no two processes disagree about the node's name.
//
// Control VMs, clouds and the launcher use this package too. What runs on every node is in the folders below it.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"

	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/strictjson"
)

// Identity identifies a VM in the cluster and in its cloud.
type Identity struct {
	// Name is the name of the Node object, a lower-case DNS subdomain of at most 253 characters. On AWS it is the
	// private DNS name.
	Name string `json:"name"`
	// ProviderID is the cloud's ID of the VM, such as aws:///us-east-1a/i-0123456789abcdef0; empty without a cloud
	// provider.
	ProviderID string `json:"provider_id"`
	// Address is the primary IP address, by which the other VMs of the cluster reach this one.
	Address string `json:"address"`
	// Region and Zone are the VM's location in the cloud; empty without a cloud provider.
	Region string `json:"region"`
	Zone   string `json:"zone"`
}

// subdomain is the rule of RFC 1123 that Kubernetes applies to the names of nodes.
var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Validate checks that name and address are set and well formed; the cloud's fields can be empty.
// The error lists every problem.
func (id Identity) Validate() error {
	var problems []error
	switch {
	case id.Name == "":
		problems = append(problems, errors.New("name is empty"))
	case len(id.Name) > 253 || !subdomain.MatchString(id.Name):
		problems = append(
			problems,
			fmt.Errorf(
				"name %q is not a DNS subdomain: lower-case letters, digits, '-' and '.', at most 253 characters",
				id.Name,
			),
		)
	}
	if _, err := netip.ParseAddr(id.Address); err != nil {
		problems = append(problems, fmt.Errorf("address %q is not an IP address", id.Address))
	}
	return errors.Join(problems...)
}

// Write replaces the file at path with a valid identity, atomically and readable by all users: it holds no secret. It
// creates missing parent directories, and takes from all users but root the permission to write to the file's
// directory: Read trusts root only.
func Write(path string, id Identity) error {
	if err := id.Validate(); err != nil {
		return fmt.Errorf("node identity for %s: %w", path, err)
	}
	content, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("node identity for %s: %w", path, err)
	}
	if err := rootfile.Protect(filepath.Dir(path)); err != nil {
		return fmt.Errorf("node identity: %w", err)
	}
	if err := rootfile.Write(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("node identity: %w", err)
	}
	return nil
}

// Read reads what Write stored. It refuses unknown keys and identities that Validate refuses, and a file that anybody
// but root could have written: root's daemons take the node's name and address from it. Errors name the file, and wrap
// fs.ErrNotExist where there is none and rootfile.ErrUntrusted where another user could have written it.
func Read(path string) (Identity, error) {
	var id Identity
	content, err := rootfile.Read(path)
	if err != nil {
		return Identity{}, fmt.Errorf("node identity: %w", err)
	}
	if err := strictjson.Unmarshal(content, &id); err != nil {
		return Identity{}, fmt.Errorf("node identity: %s: %w", path, err)
	}
	if err := id.Validate(); err != nil {
		return Identity{}, fmt.Errorf("node identity %s: %w", path, err)
	}
	return id, nil
}
