// Package azure is the provider for Microsoft Azure: the identity of its VMs, and the manifests of its cloud controller
// manager.
package azure

import (
	"embed"

	"kubernetes-release/cloud"
)

//go:embed assets
var assets embed.FS

// Provider implements cloud.Identifier and cloud.Locator. The zero value is ready for use on a VM.
type Provider struct {
	// MetadataEndpoint replaces http://169.254.169.254.
	MetadataEndpoint string
}

// About implements cloud.Provider.
func (*Provider) About() cloud.About {
	return cloud.About{
		Name: "azure", Title: "Microsoft Azure", Project: "cloud-provider-azure", Removed: "1.30", Flag: "azure",
		Manifests: assets, ConfigRequired: true,
		OpsFile: "use-cloud-controller-image.yml", Page: "providers.md",
	}
}
