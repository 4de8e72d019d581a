package openstack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	balancerquotas "github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"kubernetes-release/cloud/openstack/leftbehind"
	service "kubernetes-release/internal/metadata"
	"kubernetes-release/preflight"
)

// errNotAsked is that of what was not asked for, because something before it failed.
var errNotAsked = errors.New("not asked")

// quota is a limit of the project; a negative limit is none.
type quota struct{ limit, used int }

func (q quota) full() bool { return q.limit >= 0 && q.used >= q.limit }

// network is a network of Neutron with the property that decides whether it has floating IPs.
type network struct {
	networks.Network
	external.NetworkExternalExt
}

// facts are what one round knows. A source that failed has its error here.
type facts struct {
	request  preflight.Config
	settings Settings
	now      time.Time

	metadata    metadata
	metadataErr error

	config    config
	configErr error

	// clock is Keystone's time, by the header Date of its answer.
	clock     time.Time
	tokenErr  error
	project   string
	credName  string
	credTime  time.Time // when the application credential expires; zero: never, or there is none
	credErr   error
	endpoints map[string]error // by the type of the service

	server    *servers.Server
	serverErr error
	ports     []ports.Port
	portsErr  error
	groups    []groups.SecGroup
	groupsErr error

	subnet     *subnets.Subnet
	subnetErr  error
	floating   *network
	floatErr   error
	routers    []routers.Router
	interfaces []ports.Port
	routerErr  error

	balancers    quota
	balancersErr error // of Octavia
	quotaErr     error // of its quota
	floatingIPs  quota
	floatingErr  error

	volumes volumeFacts

	leftBehind    []leftbehind.Thing // that the errand has found
	leftBehindErr error
}

// gatherer asks OpenStack.
type gatherer struct {
	*facts
	ctx     context.Context //nolint:containedctx // that of one round
	client  *gophercloud.ProviderClient
	calls   map[preflight.Calls]int
	clients map[string]*gophercloud.ServiceClient
}

// transport remembers the time in the first answer.
type transport struct {
	http.RoundTripper
	clock *time.Time
}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && t.clock.IsZero() {
		*t.clock, _ = http.ParseTime(response.Header.Get("Date"))
	}
	return response, err
}

// gather asks everything that control VMs require, in as few requests as there are.
func (g *gatherer) gather(file string) {
	unasked := errNotAsked
	g.credErr, g.serverErr, g.portsErr, g.groupsErr, g.subnetErr = unasked, unasked, unasked, unasked, unasked
	g.floatErr, g.routerErr, g.balancersErr, g.quotaErr, g.floatingErr = unasked, unasked, unasked, unasked, unasked
	g.tokenErr, g.leftBehindErr = unasked, unasked
	if g.configErr != nil || g.metadataErr != nil {
		return
	}
	if g.tokenErr = g.authenticate(file); g.tokenErr != nil {
		return
	}
	g.expiry()
	g.machine()
	if g.config.balancers() {
		g.networks()
		g.octavia()
	}
	// Control VMs that are new have no API server yet.
	if g.config.balancers() && g.request.Thorough {
		g.leftBehind, g.leftBehindErr = g.sweep()
	}
	if g.settings.Storage {
		g.cinder()
	}
}

func (g *gatherer) count(service, action string) {
	g.calls[preflight.Calls{Service: service, Action: action}]++
}

func (g *gatherer) authenticate(file string) error {
	client, err := g.config.newClient(file, func(t http.RoundTripper) http.RoundTripper {
		return transport{t, &g.clock}
	})
	if err != nil {
		return err
	}
	g.client = client
	// The catalog may have Keystone in one of several regions only.
	g.clients = map[string]*gophercloud.ServiceClient{
		"identity": {ProviderClient: client, Endpoint: client.IdentityBase + "v3/", Type: "identity"},
	}
	g.count("identity", "POST auth/tokens")
	if err := openstack.Authenticate(g.ctx, client, g.config.auth()); err != nil {
		return err
	}
	g.endpoints = map[string]error{}
	for kind, open := range map[string]func(
		*gophercloud.ProviderClient, gophercloud.EndpointOpts,
	) (*gophercloud.ServiceClient, error){
		"compute": openstack.NewComputeV2, "network": openstack.NewNetworkV2,
		"load-balancer": openstack.NewLoadBalancerV2, "block-storage": openstack.NewBlockStorageV3,
	} {
		g.clients[kind], g.endpoints[kind] = open(client, g.config.endpoint())
	}
	g.count("network", "GET /") // NewNetworkV2 looks for the version
	return nil
}

// service returns the client of a service, or an error that its endpoint is not in the catalog.
func (g *gatherer) service(kind, action string) (*gophercloud.ServiceClient, error) {
	if err := g.endpoints[kind]; err != nil {
		return nil, errNotAsked
	}
	g.count(kind, action)
	return g.clients[kind], nil
}

// expiry asks when the application credential expires. Its owner may read it, also with the credential itself.
func (g *gatherer) expiry() {
	result, ok := g.client.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return
	}
	if project, err := result.ExtractProject(); err == nil && project != nil {
		g.project = project.ID
	}
	var token struct {
		Credential *struct {
			ID, Name string
		} `json:"application_credential"`
		User struct{ ID string } `json:"user"`
	}
	if g.credErr = result.ExtractInto(&token); g.credErr != nil || token.Credential == nil {
		return
	}
	g.credName = token.Credential.Name
	identity, err := g.service("identity", "GET application_credentials/ID")
	if g.credErr = err; err != nil {
		return
	}
	found, err := applicationcredentials.Get(g.ctx, identity, token.User.ID, token.Credential.ID).Extract()
	if g.credErr = err; err == nil {
		g.credTime = found.ExpiresAt
	}
}

// machine asks about this server, its ports and their security groups.
func (g *gatherer) machine() {
	compute, err := g.service("compute", "GET servers/ID")
	if g.serverErr = err; err == nil {
		g.server, g.serverErr = servers.Get(g.ctx, compute, g.metadata.UUID).Extract()
	}
	if g.serverErr != nil {
		return
	}
	neutron, err := g.service("network", "GET ports")
	if g.portsErr = err; err != nil {
		return
	}
	if g.ports, g.portsErr = listPorts(g.ctx, neutron, ports.ListOpts{DeviceID: g.metadata.UUID}); g.portsErr != nil {
		return
	}
	ids := url.Values{}
	for _, port := range g.ports {
		for _, id := range port.SecurityGroups {
			if !slices.Contains(ids["id"], id) {
				ids.Add("id", id)
			}
		}
	}
	g.groupsErr = nil
	if len(ids) == 0 {
		return
	}
	g.count("network", "GET security-groups")
	// groups.ListOpts has no list of ids.
	var found struct {
		Groups []groups.SecGroup `json:"security_groups"`
	}
	address := neutron.ServiceURL("security-groups") + "?" + ids.Encode()
	answer, err := neutron.Get(g.ctx, address, &found, nil) //nolint:bodyclose // Get decodes and closes it
	_, _, g.groupsErr = gophercloud.ParseResponse(answer, err)
	g.groups = found.Groups
}

// portQuery asks for several values of one property.
type portQuery string

// ToPortListQuery implements ports.ListOptsBuilder.
func (q portQuery) ToPortListQuery() (string, error) { return "?" + string(q), nil }

func listPorts(
	ctx context.Context, client *gophercloud.ServiceClient, options ports.ListOptsBuilder,
) ([]ports.Port, error) {
	return all(ctx, ports.List(client, options), ports.ExtractPorts)
}

// routerInterfaces are the owners of ports that connect a subnet with a router (neutron_lib/constants.py).
var routerInterfaces = []string{
	"network:router_interface", "network:router_interface_distributed", "network:ha_router_replicated_interface",
}

// networks asks about the networks of load balancers, and how they are connected.
func (g *gatherer) networks() {
	neutron, err := g.service("network", "GET subnets/ID")
	if g.subnetErr = err; err != nil {
		return
	}
	if id := g.config.get("LoadBalancer", "subnet-id"); id == "" {
		g.subnetErr = errNotAsked // the cloud controller takes the one of a node
	} else {
		g.subnet, g.subnetErr = subnets.Get(g.ctx, neutron, id).Extract()
	}
	id := g.config.get("LoadBalancer", "floating-network-id")
	if id == "" {
		return
	}
	g.count("network", "GET networks/ID")
	g.floating = &network{}
	if g.floatErr = networks.Get(g.ctx, neutron, id).ExtractInto(g.floating); g.floatErr != nil {
		g.floating = nil
		return
	}
	g.count("network", "GET quotas/PROJECT/details.json")
	limits, err := quotas.GetDetail(g.ctx, neutron, g.project).Extract()
	if g.floatingErr = err; err == nil {
		g.floatingIPs = quota{limits.FloatingIP.Limit, limits.FloatingIP.Used + limits.FloatingIP.Reserved}
	}
	if g.subnet == nil {
		return
	}
	g.count("network", "GET routers")
	g.routers, g.routerErr = all(g.ctx, routers.List(neutron, routers.ListOpts{}), routers.ExtractRouters)
	if g.routerErr != nil {
		return
	}
	g.count("network", "GET ports")
	query := url.Values{"network_id": {g.subnet.NetworkID}, "device_owner": routerInterfaces}
	g.interfaces, g.routerErr = listPorts(g.ctx, neutron, portQuery(query.Encode()))
}

func (g *gatherer) octavia() {
	octavia, err := g.service("load-balancer", "GET loadbalancers")
	if g.balancersErr = err; err != nil {
		return
	}
	list, err := all(
		g.ctx, loadbalancers.List(octavia, loadbalancers.ListOpts{ProjectID: g.project}),
		loadbalancers.ExtractLoadBalancers,
	)
	if g.balancersErr = err; err != nil {
		return
	}
	g.count("load-balancer", "GET quotas/PROJECT")
	limits, err := balancerquotas.Get(g.ctx, octavia, g.project).Extract()
	if g.quotaErr = err; err == nil {
		g.balancers = quota{limits.Loadbalancer, len(list)}
	}
}

// describe says what OpenStack answered, without the request and its headers.
func describe(err error) string {
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) {
		body := strings.Join(strings.Fields(string(answer.Body)), " ")
		return fmt.Sprintf("%s answers %d: %s", pathOf(answer.URL), answer.Actual, body[:min(len(body), 300)])
	}
	return err.Error()
}

func pathOf(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Host + u.Path
	}
	return text
}

// temporary reports whether an error may end by itself.
func temporary(err error) bool {
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) {
		return answer.Actual >= http.StatusInternalServerError || answer.Actual == http.StatusTooManyRequests
	}
	var unknown *tls.CertificateVerificationError
	var failed *url.Error
	return errors.Is(err, service.ErrTemporary) || errors.As(err, &failed) && !errors.As(err, &unknown)
}

func denied(err error) bool {
	return gophercloud.ResponseCodeIs(err, http.StatusForbidden)
}
