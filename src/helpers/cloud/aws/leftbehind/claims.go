package leftbehind

import (
	"fmt"
	"regexp"
	"strings"

	"kubernetes-release/cloud/owners"
)

// claims is what the objects of a cluster have in the cloud, or will have. Of kinds that could not be listed it has
// everything.
type claims struct {
	claims map[claim]bool
	kinds  map[string]bool // that were listed
	ports  map[int]bool    // of Services on nodes
}

func (c claims) has(some claim) bool { return !c.kinds[some.kind] || c.claims[some] }

// hostname is the kind of claims by what users of a Service connect to.
const hostname = "hostname"

// serve reports whether an object has the load balancer's name in its status. After a change of the kind, the cloud
// controller leaves the Service as it is, with the load balancer of before (validateServiceAnnotations in
// cloud-provider-aws).
func (c claims) serve(b Balancer) bool { return c.claims[claim{hostname, strings.ToLower(b.DNSName)}] }

// opens reports whether a rule opens the port of a Service.
func (c claims) opens(r Rule) bool {
	for port := range c.ports {
		if r.From <= port && port <= r.To {
			return true
		}
	}
	return false
}

// Annotations and finalizers that the controllers read and set.
const (
	typeAnnotation  = "service.beta.kubernetes.io/aws-load-balancer-type"
	groupAnnotation = "alb.ingress.kubernetes.io/group.name"
	groupFinalizer  = "group.ingress.k8s.aws/" // ExplicitGroupFinalizerPrefix
)

func claimsOf(objects owners.Objects) claims {
	c := claims{claims: map[claim]bool{}, kinds: map[string]bool{}, ports: map[int]bool{}}
	add := map[owners.Kind]func(owners.Object){
		owners.Services: c.addService, owners.Ingresses: c.addIngress, owners.Gateways: c.addGateway,
	}
	kinds := map[owners.Kind][]string{
		owners.Services:  {Classic, Network, networkTargets, networkGroup, serviceStack},
		owners.Ingresses: {ingressStack},
		owners.Gateways:  {albGatewayStack, nlbGatewayStack},
	}
	for kind, list := range objects {
		for _, o := range list {
			for _, i := range o.Status.LoadBalancer.Ingress {
				c.claims[claim{hostname, strings.ToLower(i.Hostname)}] = true
			}
			add[kind](o)
		}
		for _, k := range kinds[kind] {
			c.kinds[k] = true
		}
	}
	return c
}

// balancerOf is the name of a load balancer of the cloud controller (DefaultLoadBalancerName in k8s.io/cloud-provider).
func balancerOf(s owners.Object) string {
	name := "a" + strings.ReplaceAll(s.Metadata.UID, "-", "")
	return name[:min(len(name), 32)]
}

var notAlphanumeric = regexp.MustCompile("[[:^alnum:]]")

// groupOf is the name, without its hash, of the security group of a network load balancer (GetSecurityGroupNameForNLB
// in cloud-provider-aws).
func groupOf(s owners.Object) string {
	return fmt.Sprintf(
		"k8s-%.8s-%.8s", notAlphanumeric.ReplaceAllString(s.Metadata.Namespace, ""),
		notAlphanumeric.ReplaceAllString(s.Metadata.Name, ""),
	)
}

// addService: the cloud controller finds and deletes only the kind that the annotation names at the moment (isNLB,
// isLBExternal and EnsureLoadBalancerDeleted in cloud-provider-aws).
func (c claims) addService(s owners.Object) {
	c.claims[claim{serviceStack, s.ID()}] = true
	c.ports[s.Spec.HealthCheckNodePort] = true
	for _, p := range s.Spec.Ports {
		c.ports[p.NodePort] = true
	}
	delete(c.ports, 0)
	if !s.Balanced() {
		return
	}
	kind := s.Metadata.Annotations[typeAnnotation]
	external, class := kind == "external" || kind == "nlb-ip", s.Spec.LoadBalancerClass != nil
	if class || kind != "nlb" && !external {
		c.claims[claim{Classic, balancerOf(s)}] = true
	}
	if class || kind == "nlb" {
		c.claims[claim{Network, balancerOf(s)}] = true
		c.claims[claim{networkTargets, s.ID()}] = true
		c.claims[claim{networkGroup, groupOf(s)}] = true
	}
}

// addIngress: an Ingress has a load balancer of its own or shares that of a group, and keeps the finalizer of a group
// that it has left until the load balancer is changed.
func (c claims) addIngress(i owners.Object) {
	c.claims[claim{ingressStack, i.ID()}] = true
	if group := i.Metadata.Annotations[groupAnnotation]; group != "" {
		c.claims[claim{ingressStack, group}] = true
	}
	for _, f := range i.Metadata.Finalizers {
		if group, ok := strings.CutPrefix(f, groupFinalizer); ok {
			c.claims[claim{ingressStack, group}] = true
		}
	}
}

func (c claims) addGateway(g owners.Object) {
	c.claims[claim{albGatewayStack, g.ID()}] = true
	c.claims[claim{nlbGatewayStack, g.ID()}] = true
}
