// Package openstack is the provider for OpenStack: the manifests of its cloud controller manager.
package openstack

import (
	"embed"

	"kubernetes-release/cloud"
)

//go:embed assets
var assets embed.FS

// Provider implements cloud.Provider.
type Provider struct{}

// About implements cloud.Provider.
func (*Provider) About() cloud.About {
	return cloud.About{
		Name: "openstack", Title: "OpenStack", Project: "cloud-provider-openstack", Removed: "1.26", Flag: "openstack",
		Manifests: assets, ConfigRequired: true,
		OpsFile: "use-cloud-controller-image.yml", Page: "providers.md",
	}
}
