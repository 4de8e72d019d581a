package leftbehind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"kubernetes-release/apiclient"
)

// Owners is what the objects of a cluster have in the cloud, or will have. Of kinds that could not be listed it has
// everything.
type Owners struct {
	claims map[claim]bool
	kinds  map[string]bool // that were listed
	ports  map[int]bool    // of Services on nodes
}

func (o Owners) has(c claim) bool { return !o.kinds[c.kind] || o.claims[c] }

// hostname is the kind of claims by what users of a Service connect to.
const hostname = "hostname"

// serve reports whether an object has the load balancer's name in its status. After a change of the kind, the cloud
// controller leaves the Service as it is, with the load balancer of before (validateServiceAnnotations in
// cloud-provider-aws).
func (o Owners) serve(b Balancer) bool { return o.claims[claim{hostname, strings.ToLower(b.DNSName)}] }

// opens reports whether a rule opens the port of a Service.
func (o Owners) opens(r Rule) bool {
	for port := range o.ports {
		if r.From <= port && port <= r.To {
			return true
		}
	}
	return false
}

func (o Owners) union(other Owners) Owners {
	all := Owners{claims: maps.Clone(o.claims), kinds: map[string]bool{}, ports: maps.Clone(o.ports)}
	maps.Copy(all.claims, other.claims)
	maps.Copy(all.ports, other.ports)
	for kind := range o.kinds {
		if other.kinds[kind] {
			all.kinds[kind] = true
		}
	}
	return all
}

// object is what decides which load balancers a Service, an Ingress or a Gateway has.
type object struct {
	Metadata struct {
		Namespace, Name, UID string
		Annotations          map[string]string
		Finalizers           []string
	}
	Spec struct {
		Type                string
		LoadBalancerClass   *string
		HealthCheckNodePort int
		Ports               []struct{ NodePort int }
	}
	Status struct {
		LoadBalancer struct {
			Ingress []struct{ Hostname string }
		}
	}
}

// Annotations and finalizers that the controllers read and set.
const (
	typeAnnotation  = "service.beta.kubernetes.io/aws-load-balancer-type"
	cleanup         = "service.kubernetes.io/load-balancer-cleanup" // LoadBalancerCleanupFinalizer of cloud-provider
	groupAnnotation = "alb.ingress.kubernetes.io/group.name"
	groupFinalizer  = "group.ingress.k8s.aws/" // ExplicitGroupFinalizerPrefix
)

// ListOwners asks the API server. Only the AWS Load Balancer Controller may list Ingresses and Gateways, and the latter
// only where it serves Gateway API, and where they are defined.
func ListOwners(ctx context.Context, client *apiclient.Client, controller bool) (Owners, error) {
	owners := Owners{claims: map[claim]bool{}, kinds: map[string]bool{}, ports: map[int]bool{}}
	lists := []struct {
		path  string
		kinds []string
		add   func(object)
	}{
		{
			"/api/v1/services",
			[]string{Classic, Network, networkTargets, networkGroup, serviceStack},
			owners.addService,
		},
		{"/apis/networking.k8s.io/v1/ingresses", []string{ingressStack}, owners.addIngress},
		{
			"/apis/gateway.networking.k8s.io/v1/gateways",
			[]string{albGatewayStack, nlbGatewayStack},
			owners.addGateway,
		},
	}
	if !controller {
		lists = lists[:1]
	}
	for i, l := range lists {
		items, err := client.List(ctx, l.path)
		var status *apiclient.StatusError
		if i > 0 && errors.As(err, &status) &&
			(status.StatusCode == http.StatusForbidden || status.StatusCode == http.StatusNotFound) {
			continue
		}
		if i == 0 && err == nil && len(items) == 0 {
			err = errors.New("there are none, and each cluster has default/kubernetes")
		}
		if err != nil {
			return Owners{}, fmt.Errorf("list %s: %w", path.Base(l.path), err)
		}
		for _, item := range items {
			var o object
			if err := json.Unmarshal(item, &o); err != nil {
				return Owners{}, fmt.Errorf("list %s: %w", path.Base(l.path), err)
			}
			for _, i := range o.Status.LoadBalancer.Ingress {
				owners.claims[claim{hostname, strings.ToLower(i.Hostname)}] = true
			}
			l.add(o)
		}
		for _, kind := range l.kinds {
			owners.kinds[kind] = true
		}
	}
	return owners, nil
}

func (o object) id() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// balancer is the name of a load balancer of the cloud controller (DefaultLoadBalancerName in k8s.io/cloud-provider).
func (o object) balancer() string {
	name := "a" + strings.ReplaceAll(o.Metadata.UID, "-", "")
	return name[:min(len(name), 32)]
}

var notAlphanumeric = regexp.MustCompile("[[:^alnum:]]")

// group is the name, without its hash, of the security group of a network load balancer (GetSecurityGroupNameForNLB in
// cloud-provider-aws).
func (o object) group() string {
	return fmt.Sprintf(
		"k8s-%.8s-%.8s", notAlphanumeric.ReplaceAllString(o.Metadata.Namespace, ""),
		notAlphanumeric.ReplaceAllString(o.Metadata.Name, ""),
	)
}

// addService: the cloud controller finds and deletes only the kind that the annotation names at the moment (isNLB,
// isLBExternal and EnsureLoadBalancerDeleted in cloud-provider-aws). A Service with its finalizer still has one,
// whatever its type.
func (o Owners) addService(s object) {
	o.claims[claim{serviceStack, s.id()}] = true
	o.ports[s.Spec.HealthCheckNodePort] = true
	for _, p := range s.Spec.Ports {
		o.ports[p.NodePort] = true
	}
	delete(o.ports, 0)
	if s.Spec.Type != "LoadBalancer" && !slices.Contains(s.Metadata.Finalizers, cleanup) {
		return
	}
	kind := s.Metadata.Annotations[typeAnnotation]
	external, class := kind == "external" || kind == "nlb-ip", s.Spec.LoadBalancerClass != nil
	if class || kind != "nlb" && !external {
		o.claims[claim{Classic, s.balancer()}] = true
	}
	if class || kind == "nlb" {
		o.claims[claim{Network, s.balancer()}] = true
		o.claims[claim{networkTargets, s.id()}] = true
		o.claims[claim{networkGroup, s.group()}] = true
	}
}

// addIngress: an Ingress has a load balancer of its own or shares that of a group, and keeps the finalizer of a group
// that it has left until the load balancer is changed.
func (o Owners) addIngress(i object) {
	o.claims[claim{ingressStack, i.id()}] = true
	if group := i.Metadata.Annotations[groupAnnotation]; group != "" {
		o.claims[claim{ingressStack, group}] = true
	}
	for _, f := range i.Metadata.Finalizers {
		if group, ok := strings.CutPrefix(f, groupFinalizer); ok {
			o.claims[claim{ingressStack, group}] = true
		}
	}
}

func (o Owners) addGateway(g object) {
	o.claims[claim{albGatewayStack, g.id()}] = true
	o.claims[claim{nlbGatewayStack, g.id()}] = true
}
