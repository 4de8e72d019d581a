package vsphere

import (
	"context"
	"log/slog"

	"kubernetes-release/cloud"
	"kubernetes-release/node"
)

var _ cloud.Locator = (*Provider)(nil)

// NewLocator implements cloud.Locator.
func (p *Provider) NewLocator(cloudConfigFile string) node.Locator {
	return &locator{p.program(), cloudConfigFile}
}

// locator has the program ask vCenter.
type locator struct {
	program program
	file    string
}

// ProviderID implements node.Locator.
func (l *locator) ProviderID(ctx context.Context, instance node.Instance) (string, error) {
	var location Location
	err := l.program.run(ctx, LocateCommand, Search{Instance: instance, File: l.file}, &location, slog.Default())
	if err != nil {
		return "", err
	}
	if location.Refusal != "" {
		return "", &node.Refusal{Reason: location.Refusal}
	}
	return location.ProviderID, nil
}
