// Package generic is the provider for any other cloud whose controller manager is built on k8s.io/cloud-provider.
package generic

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
		Name: "generic", Title: "any other cloud", Manifests: assets,
		OpsFile: "use-cloud-controller-image.yml", Page: "providers.md",
	}
}
