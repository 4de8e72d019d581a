// Package azure is the provider for Microsoft Azure: the manifests of its cloud controller manager.
package azure

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
		Name: "azure", Title: "Microsoft Azure", Project: "cloud-provider-azure", Removed: "1.30", Flag: "azure",
		Manifests: assets, ConfigRequired: true,
		OpsFile: "use-cloud-controller-image.yml", Page: "providers.md",
	}
}
