// Package cloudstack is the provider for Apache CloudStack, with the manifests of package generic.
package cloudstack

import (
	"kubernetes-release/cloud"
	"kubernetes-release/cloud/generic"
)

// Provider implements cloud.Provider.
type Provider struct{}

// About implements cloud.Provider.
func (*Provider) About() cloud.About {
	about := (&generic.Provider{}).About()
	about.Name, about.Title, about.Flag = "cloudstack", "Apache CloudStack", "external-cloudstack"
	about.Project, about.Removed, about.ConfigRequired = "cloudstack-kubernetes-provider", "1.16", true
	return about
}
