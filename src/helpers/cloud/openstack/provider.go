// Package openstack is the provider for OpenStack: the preflight of a project, the identity of its servers, and the
// manifests of its cloud controller manager.
package openstack

import (
	"embed"
	"time"

	"kubernetes-release/cloud"
)

//go:embed assets
var assets embed.FS

// Provider implements cloud.Checker and cloud.Locator. The zero value is ready for use on a server.
type Provider struct {
	// MetadataEndpoint replaces http://169.254.169.254.
	MetadataEndpoint string
	Now              func() time.Time // defaults to time.Now
}

func (p *Provider) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// About implements cloud.Provider.
func (*Provider) About() cloud.About {
	return cloud.About{
		Name: "openstack", Title: "OpenStack", Project: "cloud-provider-openstack", Removed: "1.26", Flag: "openstack",
		Job: "openstack-cloud-controller-manager", Manifests: assets, ConfigRequired: true, ConfigKeys: configKeys(),
		BOSHNames: true,
		OpsFile:   "openstack.yml", Page: "openstack.md",
	}
}
