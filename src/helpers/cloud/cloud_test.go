package cloud

import (
	"context"
	"strings"
	"testing"

	"kubernetes-release/preflight"
)

type described struct{ about About }

func (d described) About() About { return d.about }

type checking struct{ described }

func (checking) Checks() []preflight.Check                            { return nil }
func (checking) Preflight(context.Context, Request) (*Outcome, error) { return nil, nil }

func TestLookup(t *testing.T) {
	registry := NewRegistry(
		checking{described{About{Name: "aws"}}},
		described{About{Name: "openstack", Project: "cloud-provider-openstack", Removed: "1.26"}},
		described{About{Name: "toy", Project: "cloud-provider-toy"}},
	)
	if p, notice, err := registry.Lookup("aws"); err != nil || p == nil || notice != "" {
		t.Errorf("aws: %v, %q, %v", p, notice, err)
	}
	if p, notice, err := registry.Lookup(""); err != nil || p != nil || !strings.Contains(notice, "nothing to check") {
		t.Errorf("none: %v, %q, %v", p, notice, err)
	}
	for name, want := range map[string]string{
		"openstack": "no checks for it; Kubernetes removed the built-in provider in 1.26, and the operator must " +
			"provide cloud-provider-openstack",
		"toy": "no checks for it; the operator must provide cloud-provider-toy",
	} {
		if p, notice, err := registry.Lookup(name); err != nil || p == nil || !strings.Contains(notice, want) {
			t.Errorf("%q: %v, %q, %v", name, p, notice, err)
		}
	}
	for name, want := range map[string]string{
		"mesos": "in 1.8", "ovirt": "in 1.16", "photon": "in 1.16", "rackspace": "in 1.9",
		"fake": "test double", "external": "name the cloud itself",
		"openstak": `did you mean "openstack"`, "nonesuch-at-all": "is unknown; allowed are aws, openstack, toy",
	} {
		if _, _, err := registry.Lookup(name); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "aws, openstack, toy") {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
