// Package gce is the provider for Google Cloud: the manifests of its cloud controller manager.
package gce

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
		Name: "gce", Title: "Google Cloud", Project: "cloud-provider-gcp", Removed: "1.31", Flag: "gce",
		Manifests: assets,
		OpsFile:   "use-cloud-controller-image.yml", Page: "providers.md",
	}
}
