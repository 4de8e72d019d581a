// Package cloud knows which cloud providers a cluster can be deployed with. A provider is one Go package below this
// one; a program that offers it puts it into a Registry.
package cloud

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"strings"

	"kubernetes-release/helpers/node"
	"kubernetes-release/helpers/preflight"
	"kubernetes-release/internal/spelling"
)

// Provider is what the release needs to know of one cloud before anything starts.
type Provider interface {
	// Name is the name that manifests use.
	Name() string
	// Checks lists the provider's checks, the most important first.
	Checks() []preflight.Check
	// Preflight finds out who this machine is and runs the checks that apply to the role. It changes nothing in the
	// cloud. An error means that the run could not be made at all; what the cloud answered wrongly is a finding.
	Preflight(ctx context.Context, request Request) (*Outcome, error)
}

// Request is one run.
type Request struct {
	Config preflight.Config
	// CloudConfig is the content of the file for the cloud controller manager; nil without one.
	CloudConfig []byte
	Log         *slog.Logger
	// Identified, if set, is called as soon as the machine's identity is known, before the checks that may take long.
	Identified func(node.Identity) error
}

// Outcome is what a run found out.
type Outcome struct {
	Identity     *node.Identity // nil when it could not be found out
	Machine      string         // the cloud's id of this machine
	Results      []preflight.Result
	Explanations []preflight.Explanation
	Calls        []preflight.Calls
	Secrets      []string // what must not appear in any report
}

// Registry holds the providers that a program offers.
type Registry struct{ providers map[string]Provider }

// NewRegistry returns a registry of the given providers.
func NewRegistry(providers ...Provider) *Registry {
	r := &Registry{providers: map[string]Provider{}}
	for _, p := range providers {
		r.providers[p.Name()] = p
	}
	return r
}

// Lookup returns the provider of that name. For an empty name, and for one whose cloud controller the operator brings,
// it returns nil and a sentence that says what that means. Any other name is refused with the reason.
func (r *Registry) Lookup(name string) (p Provider, remark string, err error) {
	if name == "" {
		return nil, "no cloud provider is set: there is nothing to check", nil
	}
	if p, ok := r.providers[name]; ok {
		return p, "", nil
	}
	if k, ok := known[name]; ok {
		if k.external == "" {
			return nil, "", fmt.Errorf("cloud provider %q cannot be used: %s. Use one of %s, or leave the property empty for a cluster without a cloud",
				name, k.fate(), strings.Join(Usable(), ", "))
		}
		return nil, fmt.Sprintf("cloud provider %s: this release has no checks for it; %s, and its successor %s is the operator's to bring", name, k.fate(), k.external), nil
	}
	hint := ""
	if near := spelling.Nearest(name, Names()); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return nil, "", fmt.Errorf("cloud provider %q is not known%s; allowed are %s, or nothing for a cluster without a cloud", name, hint, strings.Join(Usable(), ", "))
}

// fallen is a provider that used to be compiled into Kubernetes.
type fallen struct {
	removed  string // the Kubernetes version that no longer had it
	external string // the project that took its place; empty if there is none
	note     string // what else there is to say
}

func (f fallen) fate() string {
	text := "Kubernetes removed the built-in provider in " + f.removed
	if f.removed == "" {
		text = f.note
	} else if f.note != "" {
		text += " (" + f.note + ")"
	}
	return text
}

// known are the names that earlier releases accepted, with what became of them.
var known = map[string]fallen{
	"aws":        {removed: "1.27", external: "cloud-provider-aws"},
	"azure":      {removed: "1.30", external: "cloud-provider-azure"},
	"cloudstack": {removed: "1.16", external: "cloudstack-kubernetes-provider"},
	"gce":        {removed: "1.31", external: "cloud-provider-gcp"},
	"openstack":  {removed: "1.26", external: "cloud-provider-openstack"},
	"vsphere":    {removed: "1.30", external: "cloud-provider-vsphere"},

	"mesos":     {removed: "1.8", note: "no external provider took its place"},
	"ovirt":     {removed: "1.16", note: "no external provider took its place"},
	"photon":    {removed: "1.16", note: "no external provider took its place; vsphere is its vendor's platform"},
	"rackspace": {removed: "1.9", note: "it duplicated openstack, which is to be used instead"},
	"fake":      {note: "it is a test double inside Kubernetes' source and has never talked to a cloud"},
	"external":  {note: "it is how this release runs every provider; name the cloud itself"},
}

// Names lists all names that Lookup has something to say about, sorted.
func Names() []string {
	var names []string
	for name := range known {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Usable lists the names that a cluster can be deployed with, sorted.
func Usable() []string {
	var names []string
	for name, k := range known {
		if k.external != "" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}
