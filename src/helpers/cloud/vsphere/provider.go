// Package vsphere is the provider for VMware vSphere: the manifests of its cloud controller manager.
package vsphere

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
		Name: "vsphere", Title: "VMware vSphere", Project: "cloud-provider-vsphere", Removed: "1.30", Flag: "vsphere",
		Manifests: assets, ConfigRequired: true,
		OpsFile: "use-cloud-controller-image.yml", Page: "providers.md",
	}
}
