package leftbehind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"

	"kubernetes-release/cloud/owners"
)

const (
	goneUID  = "0123abcd-0000-4000-8000-000000000002"
	otherUID = "89abcdef-0000-4000-8000-000000000001"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// created is what the controller of a cluster creates for a Service: a load balancer with one listener, its floating IP
// and its security group.
func created(cluster, service string) Project {
	name := "kube_service_" + cluster + "_" + strings.Replace(service, "/", "_", 1)
	return Project{
		Balancers: []loadbalancers.LoadBalancer{{
			ID: "lb", Name: name, Description: "Kubernetes external service " + service + " from cluster " + cluster,
			VipPortID: "vip", ProvisioningStatus: "ACTIVE", CreatedAt: now.Add(-time.Hour), Tags: []string{name},
		}},
		Listeners: []listeners.Listener{listenerOn("lb", "l0", "listener_0_"+name, name)},
		Pools: []pools.Pool{{
			ID: "pool-l0", MonitorID: "monitor", Loadbalancers: []pools.LoadBalancerID{{ID: "lb"}},
		}},
		FloatingIPs: []floatingips.FloatingIP{{
			ID: "fip", FloatingIP: "192.0.2.1", PortID: "vip",
			Description: "Floating IP for Kubernetes external service " + service + " from cluster " + cluster,
		}},
		Groups: []groups.SecGroup{{
			ID: "sg", Name: "lb-sg-" + goneUID + "-" + strings.Replace(service, "/", "-", 1),
			Description: "Security Group for " + service + " Service LoadBalancer in cluster " + cluster,
			Rules:       []rules.SecGroupRule{{RemoteGroupID: "sg"}},
		}},
	}
}

func listenerOn(balancer, id, name string, tags ...string) listeners.Listener {
	return listeners.Listener{
		ID: id, Name: name, Tags: tags, DefaultPoolID: "pool-" + id,
		Loadbalancers: []listeners.LoadBalancerID{{ID: balancer}},
	}
}

// web is a project with what the Service default/web of the cluster prod had, changed.
func web(change func(*Project)) Project {
	p := created("prod", "default/web")
	change(&p)
	return p
}

// shared adds a listener of another Service to the load balancer.
func shared(p *Project, tag string) {
	p.Balancers[0].Tags = append(p.Balancers[0].Tags, tag)
	p.Listeners = append(p.Listeners, listenerOn("lb", "l1", "listener_0_"+tag, tag))
	p.Pools = append(p.Pools, pools.Pool{ID: "pool-l1", Loadbalancers: []pools.LoadBalancerID{{ID: "lb"}}})
}

func service(name, uid string, change func(*owners.Object)) owners.Object {
	var o owners.Object
	o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID = "default", name, uid
	o.Spec.Type = "LoadBalancer"
	if change != nil {
		change(&o)
	}
	return o
}

func (t Thing) String() string {
	parts := []string{t.Service}
	for _, b := range t.Balancers {
		part := b.ID
		if b.Stays {
			part = "part of " + b.ID
		}
		if b.Tag != "" {
			part += " " + b.Tag
		}
		parts = append(parts, fmt.Sprintf("%s %v%v%v", part, b.Listeners, b.Pools, b.Monitors))
	}
	for _, f := range t.FloatingIPs {
		parts = append(parts, f.ID)
	}
	for _, g := range t.Groups {
		parts = append(parts, fmt.Sprint(g.ID, " ", g.Ports))
	}
	return strings.Join(parts, ", ")
}

// api answers with a project, in which the ports a and b have each group.
type api struct {
	project       Project
	err, portsErr error
}

func (a api) Project(context.Context) (Project, error) { return a.project, a.err }

func (a api) Ports(context.Context, string) ([]string, error) { return []string{"a", "b"}, a.portsErr }

type sweepCase struct {
	project  Project
	services []owners.Object
	want     []string
}

func (c sweepCase) run(t *testing.T) {
	things, err := Sweep(
		t.Context(), api{project: c.project},
		func(context.Context) (owners.Objects, error) {
			return owners.Objects{owners.Services: c.services}, nil
		}, "prod", now,
	)
	var got []string
	for _, thing := range things {
		got = append(got, thing.String())
	}
	if err != nil || !slices.Equal(got, c.want) {
		t.Errorf("%q, %v, want %q", got, err, c.want)
	}
}

const (
	ofWeb   = "kube_service_prod_default_web"
	ofOther = "kube_service_prod_default_other"
	all     = "default/web, lb [l0][pool-l0][monitor], fip, sg [a b]"
	group   = "default/web, sg [a b]"
)

func unchanged(*Project) {}

// TestSweepByServices: what a Service has is in use, whatever else was changed.
func TestSweepByServices(t *testing.T) {
	for name, test := range map[string]sweepCase{
		"no Service": {web(unchanged), nil, []string{all}},
		"its Service": {
			web(unchanged), []owners.Object{service("web", goneUID, nil)}, nil,
		},
		"its Service, of another type by now": {
			web(unchanged),
			[]owners.Object{service("web", goneUID, func(o *owners.Object) { o.Spec.Type = "ClusterIP" })},
			[]string{all},
		},
		"its Service, which is being cleaned up": {
			web(unchanged), []owners.Object{service("web", goneUID, func(o *owners.Object) {
				o.Spec.Type = "ClusterIP"
				o.Metadata.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
			})}, nil,
		},
		"a Service with its name and another UID": {
			web(unchanged), []owners.Object{service("web", otherUID, nil)}, []string{group},
		},
		"a Service with its name in another namespace": {
			web(unchanged),
			[]owners.Object{service("web", otherUID, func(o *owners.Object) { o.Metadata.Namespace = "shop" })},
			[]string{all},
		},
		"a Service that names the load balancer by its id": {
			web(func(p *Project) { p.Groups = nil }),
			[]owners.Object{service("other", otherUID, func(o *owners.Object) {
				o.Metadata.Annotations = map[string]string{idAnnotation: "lb"}
			})},
			[]string{"default/web, part of lb " + ofWeb + " [l0][pool-l0][monitor]"},
		},
		"a Service that requests the floating IP": {
			web(unchanged),
			[]owners.Object{service("other", otherUID, func(o *owners.Object) { o.Spec.LoadBalancerIP = "192.0.2.1" })},
			[]string{"default/web, lb [l0][pool-l0][monitor], sg [a b]"},
		},
		"a Service that has the floating IP": {
			web(func(p *Project) { p.Balancers, p.FloatingIPs[0].PortID = nil, "" }),
			[]owners.Object{service("other", otherUID, func(o *owners.Object) {
				o.Status.LoadBalancer.Ingress = []struct{ Hostname, IP string }{{IP: "192.0.2.1"}}
			})},
			[]string{group},
		},
		"shared by another Service": {
			web(func(p *Project) { shared(p, ofOther); p.Groups = nil }),
			[]owners.Object{service("other", otherUID, nil)},
			[]string{"default/web, part of lb " + ofWeb + " [l0][pool-l0][monitor]"},
		},
		"shared by another Service that is gone": {
			web(func(p *Project) { shared(p, ofOther) }), []owners.Object{service("web", goneUID, nil)},
			[]string{"default/other, part of lb " + ofOther + " [l1][pool-l1][]"},
		},
		"shared, and both are gone": {
			web(func(p *Project) { shared(p, ofOther); p.Groups = nil }), nil,
			[]string{"default/web, lb [l0 l1][pool-l0 pool-l1][monitor], fip"},
		},
		"a part on an operator's load balancer": {
			web(func(p *Project) {
				p.Balancers[0].Name, p.Balancers[0].Description = "shop", ""
				p.Listeners = append(p.Listeners, listenerOn("lb", "own", "own"))
				p.FloatingIPs, p.Groups = nil, nil
			}), nil, []string{"default/web, part of lb " + ofWeb + " [l0][pool-l0][monitor]"},
		},
	} {
		t.Run(name, test.run)
	}
}

// TestSweepOthers: what is not of this cluster is not named.
func TestSweepOthers(t *testing.T) {
	long := strings.Repeat("a", 300)
	for name, test := range map[string]sweepCase{
		"of another cluster":                           {created("test", "default/web"), nil, nil},
		"of a cluster whose name begins with this one": {created("prod_default", "default/web"), nil, nil},
		"of a cluster whose name begins otherwise":     {created("my_prod", "default/web"), nil, nil},
		"of a cluster whose name is longer":            {created("prod-2", "default/web"), nil, nil},
		"of a namespace with hyphens": {
			created("prod", "team-a/web-1"), nil, []string{"team-a/web-1, lb [l0][pool-l0][monitor], fip, sg [a b]"},
		},
		"with a name that is cut": {web(func(p *Project) {
			name := (ofWeb + long)[:255]
			p.Balancers[0].Name, p.Balancers[0].Tags = name, []string{name}
			p.Listeners[0].Tags = []string{name}
			p.FloatingIPs, p.Groups = nil, nil
		}), nil, nil},
		"shared by another cluster": {
			web(func(p *Project) { shared(p, "kube_service_test_default_web"); p.FloatingIPs, p.Groups = nil, nil }),
			nil, []string{"default/web, part of lb " + ofWeb + " [l0][pool-l0][monitor]"},
		},
		"tagged by another cluster, without listeners": {web(func(p *Project) {
			p.Balancers[0].Tags = []string{"kube_service_test_default_web"}
			p.Listeners, p.FloatingIPs, p.Groups = nil, nil, nil
		}), nil, nil},
		"a listener that is tagged by two clusters": {web(func(p *Project) {
			p.Balancers[0].Tags = nil
			p.Listeners[0].Tags = append(p.Listeners[0].Tags, "kube_service_test_default_web")
			p.FloatingIPs, p.Groups = nil, nil
		}), nil, nil},
		"with an operator's listener": {
			web(func(p *Project) {
				p.Listeners = append(p.Listeners, listenerOn("lb", "own", "own"))
				p.FloatingIPs, p.Groups = nil, nil
			}), nil, []string{"default/web, part of lb " + ofWeb + " [l0][pool-l0][monitor]"},
		},
		"with a pool that an operator's listener uses, too": {
			web(func(p *Project) {
				p.Listeners = append(p.Listeners, listenerOn("lb", "own", "own"))
				p.Pools[0].Listeners = []pools.ListenerID{{ID: "l0"}, {ID: "own"}}
				p.FloatingIPs, p.Groups = nil, nil
			}), nil, []string{"default/web, part of lb " + ofWeb + " [l0][][]"},
		},
		"by hand, with such a name": {web(func(p *Project) {
			p.Balancers[0].Description, p.Balancers[0].Tags = "", nil
			p.Listeners[0] = listenerOn("lb", "l0", "http")
			p.FloatingIPs[0].Description, p.Groups[0].Description = "shop", ""
		}), nil, nil},
		"by hand, with such a name and nothing else": {web(func(p *Project) {
			p.Balancers[0].Description, p.Balancers[0].Tags = "", nil
			p.Listeners, p.FloatingIPs, p.Groups = nil, nil, nil
		}), nil, nil},
		"a listener by hand, with such a name": {web(func(p *Project) {
			p.Balancers[0].Tags = nil
			p.Listeners[0].Name = ofWeb
			p.FloatingIPs, p.Groups = nil, nil
		}), nil, nil},
		"a listener without a tag on another load balancer": {web(func(p *Project) {
			p.Balancers[0].Name, p.Balancers[0].Tags, p.Listeners[0].Tags = "shop", nil, nil
			p.FloatingIPs, p.Groups = nil, nil
		}), nil, nil},
		"a floating IP by hand, with a similar description": {web(func(p *Project) {
			p.Balancers, p.FloatingIPs[0].PortID, p.Groups = nil, "", nil
			p.FloatingIPs[0].Description = "Floating IP for Kubernetes external service of mine from cluster prod"
		}), nil, nil},
		"by hand, with such a description": {web(func(p *Project) {
			p.Balancers[0].Name, p.Balancers[0].Tags = ofWeb+"_2", nil
			p.Listeners[0] = listenerOn("lb", "l0", "http")
			p.FloatingIPs[0].Description += " of mine"
			p.Groups[0].Name = "lb-sg-web"
		}), nil, nil},
		"in a provider without tags": {web(func(p *Project) {
			p.Balancers[0].Tags, p.Listeners[0].Tags = nil, nil
		}), nil, []string{all}},
	} {
		t.Run(name, test.run)
	}
}

// TestSweepStates: what changes, and parts whose load balancer was deleted.
func TestSweepStates(t *testing.T) {
	for name, test := range map[string]sweepCase{
		"created a minute ago": {
			web(func(p *Project) { p.Balancers[0].CreatedAt, p.Groups = now.Add(-time.Minute), nil }), nil, nil,
		},
		"being deleted": {
			web(func(p *Project) { p.Balancers[0].ProvisioningStatus, p.Groups = "PENDING_DELETE", nil }), nil, nil,
		},
		"deleted": {
			web(func(p *Project) { p.Balancers[0].ProvisioningStatus, p.Groups = "DELETED", nil }), nil, nil,
		},
		"in an error": {
			web(func(p *Project) { p.Balancers[0].ProvisioningStatus = "ERROR" }), nil, []string{all},
		},
		"an operator's floating IP": {
			web(func(p *Project) { p.FloatingIPs[0].Description = "" }), nil,
			[]string{"default/web, lb [l0][pool-l0][monitor], sg [a b]"},
		},
		"a floating IP alone": {
			web(func(p *Project) { p.Balancers, p.FloatingIPs[0].PortID, p.Groups = nil, "", nil }), nil,
			[]string{"default/web, fip"},
		},
		"a floating IP of a Service that has no address yet": {
			web(func(p *Project) { p.Balancers, p.FloatingIPs[0].PortID, p.Groups = nil, "", nil }),
			[]owners.Object{service("web", goneUID, nil)}, nil,
		},
		"a floating IP that forwards to something else by now": {
			web(func(p *Project) { p.Balancers, p.FloatingIPs[0].PortID, p.Groups = nil, "server", nil }), nil, nil,
		},
		"a security group alone": {
			web(func(p *Project) { p.Balancers, p.FloatingIPs = nil, nil }), nil, []string{group},
		},
		"a security group that an operator's rule refers to": {web(func(p *Project) {
			p.Balancers, p.FloatingIPs = nil, nil
			p.Groups = append(p.Groups, groups.SecGroup{ID: "own", Rules: []rules.SecGroupRule{{RemoteGroupID: "sg"}}})
		}), nil, nil},
		"a tag alone": {web(func(p *Project) {
			p.Balancers[0].Name, p.Balancers[0].Description = "shop", ""
			p.Listeners, p.FloatingIPs, p.Groups = nil, nil, nil
		}), nil, []string{"default/web, part of lb " + ofWeb + " [][][]"}},
	} {
		t.Run(name, test.run)
	}
}

// TestSweepFails if one of the answers is missing.
func TestSweepFails(t *testing.T) {
	failed := errors.New("no answer")
	none := func(context.Context) (owners.Objects, error) { return owners.Objects{}, nil }
	for name, test := range map[string]struct {
		api  api
		list owners.Lister
	}{
		"project":  {api{err: failed}, none},
		"ports":    {api{project: web(unchanged), portsErr: failed}, none},
		"Services": {api{}, func(context.Context) (owners.Objects, error) { return nil, failed }},
	} {
		if things, err := Sweep(t.Context(), test.api, test.list, "prod", now); !errors.Is(err, failed) {
			t.Errorf("%s: %v, %v", name, things, err)
		}
	}
}
