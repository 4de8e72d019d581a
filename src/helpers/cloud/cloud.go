// Package cloud lists the cloud providers that a cluster can be deployed with. A provider is one Go package below this
// one; a program that supports it registers it in a Registry.
package cloud

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"kubernetes-release/internal/spelling"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// Provider identifies machines in one cloud and checks what a cluster requires there.
type Provider interface {
	// Name is the name that manifests use.
	Name() string
	// Checks lists the provider's checks, the most important first.
	Checks() []preflight.Check
	// Preflight determines the identity of this machine and runs the checks that apply to the role. It changes nothing
	// in the cloud. An error means that the checks could not run at all; wrong answers of the cloud are findings.
	Preflight(ctx context.Context, request Request) (*Outcome, error)
}

// Attester is a Provider whose machines can prove to others which machine they are, so that nodes join without a shared
// secret.
type Attester interface {
	Provider
	// NewProver returns what creates proofs on a machine of the cluster.
	NewProver(cluster string) node.Prover
	// NewAuthority returns what verifies them on another machine of the cluster. The roles are those that nodes can
	// have in the cloud; without any, the provider decides.
	NewAuthority(cluster string, roles []string) node.Authority
}

// Request is one run.
type Request struct {
	Config preflight.Config
	// CloudConfig is the content of the file for the cloud controller manager; nil without one.
	CloudConfig []byte
	Log         *slog.Logger
	// Identified, if set, is called as soon as the machine's identity is known, before the checks, which may take
	// minutes.
	Identified func(node.Identity) error
}

// Outcome is the result of a run.
type Outcome struct {
	Identity     *node.Identity // nil if it could not be determined
	Machine      string         // the cloud's id of this machine
	Results      []preflight.Result
	Explanations []preflight.Explanation
	Calls        []preflight.Calls
	Secrets      []string // must not appear in any report
}

// Registry holds the providers that a program supports.
type Registry struct{ providers map[string]Provider }

// NewRegistry returns a registry of the given providers.
func NewRegistry(providers ...Provider) *Registry {
	r := &Registry{providers: map[string]Provider{}}
	for _, p := range providers {
		r.providers[p.Name()] = p
	}
	return r
}

// Lookup returns the provider of that name. For an empty name, and for a cloud whose controller the operator provides,
// it returns nil and a sentence that says so. For any other name it returns an error with the reason.
func (r *Registry) Lookup(name string) (p Provider, notice string, err error) {
	if name == "" {
		return nil, "no cloud provider is set: there is nothing to check", nil
	}
	if p, ok := r.providers[name]; ok {
		return p, "", nil
	}
	if removed, ok := removedProviders[name]; ok {
		if removed.successor == "" {
			return nil, "", fmt.Errorf(
				"cloud provider %q cannot be used: %s. Use one of %s, or leave the property empty for a cluster "+
					"without a cloud",
				name, removed.reason(), strings.Join(Usable(), ", "),
			)
		}
		return nil, fmt.Sprintf(
			"cloud provider %s: this release has no checks for it; %s, and the operator must provide its successor %s",
			name, removed.reason(), removed.successor,
		), nil
	}
	hint := ""
	if near := spelling.Nearest(name, Names()); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return nil, "", fmt.Errorf(
		"cloud provider %q is unknown%s; allowed are %s, or nothing for a cluster without a cloud", name, hint,
		strings.Join(Usable(), ", "),
	)
}

// removedProvider is a provider that used to be compiled into Kubernetes.
type removedProvider struct {
	since     string // the Kubernetes version that removed it; empty if it was never a cloud
	successor string // the project that replaces it; empty if there is none
	note      string // additional information
}

func (r removedProvider) reason() string {
	if r.since == "" {
		return r.note
	}
	text := "Kubernetes removed the built-in provider in " + r.since
	if r.note != "" {
		text += " (" + r.note + ")"
	}
	return text
}

// removedProviders are the names that earlier releases accepted.
var removedProviders = map[string]removedProvider{
	"aws":        {since: "1.27", successor: "cloud-provider-aws"},
	"azure":      {since: "1.30", successor: "cloud-provider-azure"},
	"cloudstack": {since: "1.16", successor: "cloudstack-kubernetes-provider"},
	"gce":        {since: "1.31", successor: "cloud-provider-gcp"},
	"openstack":  {since: "1.26", successor: "cloud-provider-openstack"},
	"vsphere":    {since: "1.30", successor: "cloud-provider-vsphere"},

	"mesos":     {since: "1.8", note: "no external provider replaced it"},
	"ovirt":     {since: "1.16", note: "no external provider replaced it"},
	"photon":    {since: "1.16", note: "no external provider replaced it; vsphere is the platform of the same vendor"},
	"rackspace": {since: "1.9", note: "it duplicated openstack; use that"},
	"fake":      {note: "it is a test double in Kubernetes' source code"},
	"external":  {note: "this release runs every provider externally; name the cloud itself"},
}

// Names lists all names of current and removed providers, sorted.
func Names() []string { return slices.Sorted(maps.Keys(removedProviders)) }

// Usable lists the names that a cluster can be deployed with, sorted.
func Usable() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return removedProviders[name].successor == "" })
}
