// Package leftbehind finds what the cloud controller has created in a project for Services of a cluster that do not
// exist any more. A miss is better than something named that is in use.
package leftbehind

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"

	"kubernetes-release/cloud/owners"
)

// Project is what a project has for load balancers, whoever has created it.
type Project struct {
	Balancers   []loadbalancers.LoadBalancer
	Listeners   []listeners.Listener
	Pools       []pools.Pool
	FloatingIPs []floatingips.FloatingIP
	Groups      []groups.SecGroup
}

// API is what Sweep asks of OpenStack.
type API interface {
	Project(ctx context.Context) (Project, error)
	// Ports returns the ids of the ports that a security group filters.
	Ports(ctx context.Context, group string) ([]string, error)
}

// Thing is what is left of one Service.
type Thing struct {
	Service     string // NAMESPACE/NAME
	Balancers   []Balancer
	FloatingIPs []floatingips.FloatingIP
	Groups      []Group
}

// Balancer is a load balancer that is left behind, or the part of one Service of a load balancer that stays.
type Balancer struct {
	ID, Name                   string
	Created                    time.Time
	Listeners, Pools, Monitors []string // ids
	Stays                      bool
	Tag                        string // of the Service, on one that stays
}

// Group is a security group.
type Group struct {
	ID, Name string
	Ports    []string // ids
}

// Sweep asks OpenStack and the cluster, and changes nothing.
func Sweep(ctx context.Context, api API, list owners.Lister, cluster string, now time.Time) ([]Thing, error) {
	var project Project
	objects, err := list.Around(ctx, func() (err error) {
		project, err = api.Project(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	things := find(project, objects[owners.Services], cluster, now)
	for _, t := range things {
		for i := range t.Groups {
			if t.Groups[i].Ports, err = api.Ports(ctx, t.Groups[i].ID); err != nil {
				return nil, err
			}
		}
	}
	return things, nil
}

// settled is the age from which a load balancer can be left behind.
const settled = 15 * time.Minute

// Names, descriptions and annotations of the cloud controller: pkg/openstack/loadbalancer.go and loadbalancer_sg.go of
// cloud-provider-openstack.
const (
	servicePrefix = "kube_service_"
	idAnnotation  = "loadbalancer.openstack.org/load-balancer-id"
	cut           = 255 // the length of names that may be cut
)

// Names of namespaces and Services are DNS labels: they have no underscores.
var (
	label    = `[a-z0-9](?:[-a-z0-9]*[a-z0-9])?`
	namePair = regexp.MustCompile("^(" + label + ")_(" + label + ")$")
	idPair   = regexp.MustCompile("^" + label + "/" + label + "$")
	listener = regexp.MustCompile(`^listener_[0-9]+_`)
	uid      = regexp.MustCompile(`^lb-sg-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-`)
)

// search is one comparison.
type search struct {
	Project
	cluster string
	used    map[string]bool // names and ids of load balancers, UIDs, and addresses that Services have or will have
	things  map[string]*Thing
}

func find(project Project, services []owners.Object, cluster string, now time.Time) []Thing {
	s := &search{Project: project, cluster: cluster, used: map[string]bool{}, things: map[string]*Thing{}}
	for _, service := range services {
		s.use(service)
	}
	left := map[string]bool{} // ports of load balancers
	for _, b := range project.Balancers {
		if s.addBalancer(b, now) {
			left[b.VipPortID] = true
		}
	}
	for _, f := range project.FloatingIPs {
		if f.PortID == "" || left[f.PortID] {
			s.addFloatingIP(f)
		}
	}
	for _, g := range project.Groups {
		s.addGroup(g)
	}
	var result []Thing
	for _, service := range slices.Sorted(maps.Keys(s.things)) {
		result = append(result, *s.things[service])
	}
	return result
}

// use notes what a Service has. One that names a load balancer by its id uses that, whoever has created it.
func (s *search) use(service owners.Object) {
	s.used[service.Spec.LoadBalancerIP] = true
	for _, i := range service.Status.LoadBalancer.Ingress {
		s.used[i.IP] = true
	}
	if service.Balanced() {
		s.used[s.balancer(service.ID())] = true
		s.used[service.Metadata.UID] = true
		s.used[service.Metadata.Annotations[idAnnotation]] = true
	}
}

// balancer is the name of a Service's load balancer, with which the controller also tags what it creates for it.
func (s *search) balancer(service string) string {
	return servicePrefix + s.cluster + "_" + strings.Replace(service, "/", "_", 1)
}

// gone returns the Service of this cluster, NAMESPACE/NAME, that a name or a tag stands for, if no Service has it. A
// name that is cut can stand for several.
func (s *search) gone(name string) (service string, ok bool) {
	rest, _ := strings.CutPrefix(name, servicePrefix+s.cluster+"_")
	pair := namePair.FindStringSubmatch(rest)
	if pair == nil || len(name) >= cut || s.used[name] {
		return "", false
	}
	return pair[1] + "/" + pair[2], true
}

func (s *search) thing(service string) *Thing {
	if s.things[service] == nil {
		s.things[service] = &Thing{Service: service}
	}
	return s.things[service]
}

// addBalancer reports whether nothing uses a load balancer. Otherwise it may have listeners and tags of Services that
// shared it.
func (s *search) addBalancer(b loadbalancers.LoadBalancer, now time.Time) bool {
	if strings.Contains(b.ProvisioningStatus, "DELETE") || now.Sub(b.CreatedAt) < settled {
		return false
	}
	service, ok := s.gone(b.Name)
	ok = ok && !s.used[b.ID] && s.describes("Kubernetes external service ", " from cluster ", b.Description) == service
	parts, all := s.parts(b)
	if ok && all {
		t := s.thing(service)
		t.Balancers = append(t.Balancers, s.whole(b))
		return true
	}
	for service, part := range parts {
		t := s.thing(service)
		t.Balancers = append(t.Balancers, *part)
	}
	return false
}

// whole is a load balancer with all its parts.
func (s *search) whole(b loadbalancers.LoadBalancer) Balancer {
	w := Balancer{ID: b.ID, Name: b.Name, Created: b.CreatedAt}
	for _, l := range s.Listeners {
		if slices.Contains(l.Loadbalancers, listeners.LoadBalancerID{ID: b.ID}) {
			w.Listeners = append(w.Listeners, l.ID)
		}
	}
	for _, p := range s.Pools {
		if slices.Contains(p.Loadbalancers, pools.LoadBalancerID{ID: b.ID}) {
			w.addPool(p)
		}
	}
	return w
}

func (b *Balancer) addPool(p pools.Pool) {
	b.Pools = append(b.Pools, p.ID)
	if p.MonitorID != "" {
		b.Monitors = append(b.Monitors, p.MonitorID)
	}
}

// parts returns what a load balancer has of Services that are gone, by Service, and whether it has nothing else.
func (s *search) parts(b loadbalancers.LoadBalancer) (parts map[string]*Balancer, all bool) {
	parts, all = map[string]*Balancer{}, true
	part := func(service string) *Balancer {
		if parts[service] == nil {
			parts[service] = &Balancer{ID: b.ID, Name: b.Name, Created: b.CreatedAt, Stays: true}
		}
		return parts[service]
	}
	for _, tag := range b.Tags {
		if service, ok := s.gone(tag); ok {
			part(service).Tag = tag
		} else if strings.HasPrefix(tag, servicePrefix) {
			all = false
		}
	}
	for _, l := range s.Listeners {
		if !slices.Contains(l.Loadbalancers, listeners.LoadBalancerID{ID: b.ID}) {
			continue
		}
		service, ok := s.listenerOf(l, b)
		if !ok {
			all = false
			continue
		}
		p := part(service)
		p.Listeners = append(p.Listeners, l.ID)
		for _, pool := range s.Pools {
			if pool.ID == l.DefaultPoolID && len(pool.Listeners) <= 1 { // those of others may forward to it, too
				p.addPool(pool)
			}
		}
	}
	return parts, all
}

// listenerOf returns the Service of a listener, if it is gone. Without support for tags in Octavia the controller
// shares no load balancers.
func (s *search) listenerOf(l listeners.Listener, b loadbalancers.LoadBalancer) (service string, ok bool) {
	name := strings.TrimPrefix(l.Name, listener.FindString(l.Name))
	foreign := func(tag string) bool { return tag != name && strings.HasPrefix(tag, servicePrefix) }
	service, ok = s.gone(name)
	mine := slices.Contains(l.Tags, name) || b.Name == name
	return service, ok && name != l.Name && mine && !slices.ContainsFunc(l.Tags, foreign)
}

// describes returns the Service that a description names, if it names this cluster.
func (s *search) describes(prefix, infix, description string) string {
	service, prefixed := strings.CutPrefix(description, prefix)
	service, suffixed := strings.CutSuffix(service, infix+s.cluster)
	if !prefixed || !suffixed || !idPair.MatchString(service) {
		return ""
	}
	return service
}

// addFloatingIP adds one that nothing uses: that of a load balancer which is left behind, or one without a port.
func (s *search) addFloatingIP(f floatingips.FloatingIP) {
	service := s.describes("Floating IP for Kubernetes external service ", " from cluster ", f.Description)
	if service == "" || s.used[s.balancer(service)] || s.used[f.FloatingIP] {
		return
	}
	t := s.thing(service)
	t.FloatingIPs = append(t.FloatingIPs, f)
}

// addGroup adds a security group whose Service is gone. Neutron deletes rules of other groups that refer to it with it.
func (s *search) addGroup(g groups.SecGroup) {
	service := s.describes("Security Group for ", " Service LoadBalancer in cluster ", g.Description)
	id := uid.FindStringSubmatch(g.Name)
	if service == "" || id == nil || s.used[id[1]] || s.referred(g.ID) ||
		g.Name != fmt.Sprintf("lb-sg-%s-%s", id[1], strings.Replace(service, "/", "-", 1)) {
		return
	}
	t := s.thing(service)
	t.Groups = append(t.Groups, Group{ID: g.ID, Name: g.Name})
}

// referred reports whether a rule of another group refers to a security group.
func (s *search) referred(id string) bool {
	for _, g := range s.Groups {
		for _, r := range g.Rules {
			if r.RemoteGroupID == id && g.ID != id {
				return true
			}
		}
	}
	return false
}
