package aws

import (
	"embed"

	"kubernetes-release/cloud"
)

//go:embed assets
var assets embed.FS

// About implements cloud.Provider.
func (*Provider) About() cloud.About {
	return cloud.About{
		Name: "aws", Title: "Amazon Web Services", Project: "cloud-provider-aws", Removed: "1.27", Flag: "aws",
		Job: "cloud-controller-manager", Manifests: assets, PublicConfig: true,
		OpsFile: "aws.yml", Page: "aws.md",
	}
}
