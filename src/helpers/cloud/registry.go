package cloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kubernetes-release/internal/spelling"
)

// Registry holds the providers that a program supports, and knows the names that earlier releases accepted.
type Registry struct{ providers map[string]Provider }

// NewRegistry returns a registry of the given providers.
func NewRegistry(providers ...Provider) *Registry {
	r := &Registry{providers: map[string]Provider{}}
	for _, p := range providers {
		r.providers[p.About().Name] = p
	}
	return r
}

// All returns the providers, sorted by name.
func (r *Registry) All() []Provider {
	all := make([]Provider, 0, len(r.providers))
	for _, name := range slices.Sorted(maps.Keys(r.providers)) {
		all = append(all, r.providers[name])
	}
	return all
}

// Get returns the provider of that name, or nil.
func (r *Registry) Get(name string) Provider { return r.providers[name] }

// Lookup returns the provider of that name. For an empty name it returns nil and a sentence that says so, for any
// unusable name an error with the reason. The notice about a provider says what the release does not do for it.
func (r *Registry) Lookup(name string) (p Provider, notice string, err error) {
	if name == "" {
		return nil, "no cloud provider is set: there is nothing to check", nil
	}
	if p, ok := r.providers[name]; ok {
		if _, checks := p.(Checker); !checks {
			notice = notChecked(p.About())
		}
		return p, notice, nil
	}
	if former, ok := removedProviders[name]; ok {
		return nil, "", fmt.Errorf(
			"cloud provider %q cannot be used: %s. Use one of %s, or leave the property empty for a cluster without a "+
				"cloud",
			name, former.reason(), strings.Join(r.Usable(), ", "),
		)
	}
	hint := ""
	if near := spelling.Nearest(name, r.Names()); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return nil, "", fmt.Errorf(
		"cloud provider %q is unknown%s; allowed are %s, or nothing for a cluster without a cloud", name, hint,
		strings.Join(r.Usable(), ", "),
	)
}

func notChecked(about About) string {
	text := fmt.Sprintf("cloud provider %s: this release has no checks for it; ", about.Name)
	if about.Removed != "" {
		text += removedIn(about.Removed) + ", and "
	}
	if about.Project == "" {
		return text + "the operator must provide its cloud controller manager"
	}
	return text + "the operator must provide " + about.Project
}

func removedIn(version string) string {
	return "Kubernetes removed the built-in provider in " + version
}

// Names lists all names of current and removed providers, sorted.
func (r *Registry) Names() []string {
	return slices.Sorted(slices.Values(slices.Concat(r.Usable(), slices.Collect(maps.Keys(removedProviders)))))
}

// Usable lists the names that a cluster can be deployed with, sorted.
func (r *Registry) Usable() []string { return slices.Sorted(maps.Keys(r.providers)) }

// Removed is a name that earlier releases accepted and that has no provider any more.
type Removed struct {
	Name string
	// In is the version of Kubernetes that removed it; empty if it was never a cloud.
	In   string
	Note string
}

func (r Removed) reason() string {
	if r.In == "" {
		return r.Note
	}
	return fmt.Sprintf("%s (%s)", removedIn(r.In), r.Note)
}

var removedProviders = map[string]Removed{
	"mesos":     {In: "1.8", Note: "no external provider replaced it"},
	"ovirt":     {In: "1.16", Note: "no external provider replaced it"},
	"photon":    {In: "1.16", Note: "no external provider replaced it; vsphere is the platform of the same vendor"},
	"rackspace": {In: "1.9", Note: "it duplicated openstack; use that"},
	"fake":      {Note: "it is a test double in Kubernetes' source code"},
	"external":  {Note: "this release runs every provider externally; name the cloud itself"},
}

// RemovedProviders lists them, sorted by name.
func RemovedProviders() []Removed {
	var all []Removed
	for _, name := range slices.Sorted(maps.Keys(removedProviders)) {
		removed := removedProviders[name]
		removed.Name = name
		all = append(all, removed)
	}
	return all
}
