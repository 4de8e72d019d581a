// Package gce is the provider for Google Cloud: the identity of its VMs, and the manifests of its cloud controller
// manager.
package gce

import (
	"embed"

	"kubernetes-release/cloud"
)

//go:embed assets
var assets embed.FS

// Provider implements cloud.Identifier and cloud.Locator. The zero value is ready for use on a VM.
type Provider struct {
	// MetadataEndpoint replaces http://169.254.169.254, and ComputeEndpoint https://compute.googleapis.com.
	MetadataEndpoint, ComputeEndpoint string
}

// About implements cloud.Provider.
func (*Provider) About() cloud.About {
	return cloud.About{
		Name: "gce", Title: "Google Cloud", Project: "cloud-provider-gcp", Removed: "1.31", Flag: "gce",
		Manifests: assets,
		OpsFile:   "use-cloud-controller-image.yml", Page: "providers.md",
	}
}
