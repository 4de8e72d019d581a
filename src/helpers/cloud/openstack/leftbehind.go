package openstack

import (
	"context"
	"errors"

	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"kubernetes-release/cloud/openstack/leftbehind"
	"kubernetes-release/cloud/owners"
)

// sweep looks for what is left behind. It lists the cluster's objects as the kubelet, which may list Services.
func (g *gatherer) sweep() ([]leftbehind.Thing, error) {
	if g.settings.NodeKubeconfig == "" {
		return nil, errors.New("there is no kubeconfig")
	}
	list, err := owners.As(g.settings.NodeKubeconfig)
	if err != nil {
		return nil, err
	}
	return leftbehind.Sweep(g.ctx, g, list, g.request.Cluster, g.now)
}

var _ leftbehind.API = (*gatherer)(nil)

// Project implements leftbehind.API. To a credential with the role admin OpenStack lists those of other projects, too.
func (g *gatherer) Project(ctx context.Context) (p leftbehind.Project, err error) {
	if g.project == "" {
		return p, errors.New("the token names no project")
	}
	octavia, err := g.service("load-balancer", "GET loadbalancers")
	if err != nil {
		return p, err
	}
	if p.Balancers, err = all(
		ctx, loadbalancers.List(octavia, loadbalancers.ListOpts{ProjectID: g.project}),
		loadbalancers.ExtractLoadBalancers,
	); err != nil {
		return p, err
	}
	g.count("load-balancer", "GET listeners")
	if p.Listeners, err = all(
		ctx, listeners.List(octavia, listeners.ListOpts{ProjectID: g.project}), listeners.ExtractListeners,
	); err != nil {
		return p, err
	}
	g.count("load-balancer", "GET pools")
	if p.Pools, err = all(
		ctx, pools.List(octavia, pools.ListOpts{ProjectID: g.project}), pools.ExtractPools,
	); err != nil {
		return p, err
	}
	neutron, err := g.service("network", "GET floatingips")
	if err != nil {
		return p, err
	}
	if p.FloatingIPs, err = all(
		ctx, floatingips.List(neutron, floatingips.ListOpts{ProjectID: g.project}), floatingips.ExtractFloatingIPs,
	); err != nil {
		return p, err
	}
	g.count("network", "GET security-groups")
	p.Groups, err = all(ctx, groups.List(neutron, groups.ListOpts{ProjectID: g.project}), groups.ExtractGroups)
	return p, err
}

// Ports implements leftbehind.API.
func (g *gatherer) Ports(ctx context.Context, group string) ([]string, error) {
	neutron, err := g.service("network", "GET ports")
	if err != nil {
		return nil, err
	}
	list, err := listPorts(ctx, neutron, ports.ListOpts{SecurityGroups: []string{group}})
	var ids []string
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	return ids, err
}

// all returns what is on all pages of a list.
func all[T any](
	ctx context.Context, list pagination.Pager, extract func(pagination.Page) ([]T, error),
) ([]T, error) {
	page, err := list.AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return extract(page)
}
