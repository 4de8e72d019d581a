package cloud

import (
	"context"
	"strings"
	"testing"

	"kubernetes-release/preflight"
)

type fake struct{}

func (fake) Name() string                                         { return "aws" }
func (fake) Checks() []preflight.Check                            { return nil }
func (fake) Preflight(context.Context, Request) (*Outcome, error) { return nil, nil }

func TestLookup(t *testing.T) {
	registry := NewRegistry(fake{})
	if p, _, err := registry.Lookup("aws"); err != nil || p == nil {
		t.Errorf("aws: %v, %v", p, err)
	}
	for name, want := range map[string]string{
		"":      "there is nothing to check",
		"azure": "in 1.30", "cloudstack": "in 1.16", "gce": "in 1.31", "openstack": "in 1.26", "vsphere": "in 1.30",
	} {
		if p, notice, err := registry.Lookup(name); err != nil || p != nil || !strings.Contains(notice, want) {
			t.Errorf("%q: %v, %q, %v", name, p, notice, err)
		}
	}
	for name, want := range map[string]string{
		"mesos": "in 1.8", "ovirt": "in 1.16", "photon": "in 1.16", "rackspace": "in 1.9",
		"fake": "test double", "external": "name the cloud itself",
		"openstak": `did you mean "openstack"`, "nonesuch-at-all": "is unknown; allowed are aws, azure",
	} {
		if _, _, err := registry.Lookup(name); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "aws, azure, cloudstack, gce, openstack, vsphere") {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
