// Package leftbehind finds what the controllers of load balancers have created for a cluster and will not delete,
// because no object of the cluster owns it any more. A miss is better than something named that is in use.
package leftbehind

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/owners"
)

// Account is what a VPC has for load balancers, whoever has created it.
type Account struct {
	Balancers    []Balancer
	TargetGroups []TargetGroup
	Groups       []Group
}

// Balancer is a load balancer of either API.
type Balancer struct {
	Name    string
	ARN     string // empty for a classic one
	DNSName string
	Kind    string // Classic, Network, or another that AWS has
	Scheme  string
	Groups  []string // ids of its security groups
	Created time.Time
	Tags    clustertags.Tags
}

// TargetGroup is one of the second API.
type TargetGroup struct {
	Name, ARN string
	Balancers []string // ARNs of those that send to it
	Tags      clustertags.Tags
}

// Group is a security group.
type Group struct {
	ID, Name, Description string
	Rules                 []Rule // for incoming traffic, one for each source
	Tags                  clustertags.Tags
}

// Rule admits one source. It has either a Source or a CIDR; rules with other sources are not of controllers.
type Rule struct {
	Group       string // that has the rule
	Protocol    string // as EC2 names it: -1 is any
	From, To    int    // -1: any
	Source      string // id of a security group
	CIDR        string
	Description string
}

// Thing is a load balancer that is left behind with what belongs to it, or a part that is left without one.
type Thing struct {
	Balancer     *Balancer
	TargetGroups []TargetGroup
	Rules        []Rule // in groups that stay
	Groups       []Group
}

// Cluster is the one whose things are looked for.
type Cluster struct {
	Name   string
	VPC    string
	Groups []string // ids of the security groups of its nodes
}

// API is what Sweep asks of AWS.
type API interface {
	LoadBalancing(ctx context.Context, vpc string) (Account, error)
}

// CallError is the error of a call of AWS.
type CallError struct {
	Action string
	Err    error
}

func (e *CallError) Error() string { return e.Action + ": " + awserr.Describe(e.Err) }

func (e *CallError) Unwrap() error { return e.Err }

// Sweep asks AWS and the cluster, and changes nothing.
func Sweep(ctx context.Context, aws API, list owners.Lister, cluster Cluster, now time.Time) ([]Thing, error) {
	var account Account
	objects, err := list.Around(ctx, func() (err error) {
		account, err = aws.LoadBalancing(ctx, cluster.VPC)
		return err
	})
	if err != nil {
		return nil, err
	}
	return find(account, claimsOf(objects), cluster, now), nil
}

// settled is the age from which a load balancer can be left behind.
const settled = 15 * time.Minute

// Tags and names of the two controllers: TagNameKubernetesService and buildELBSecurityGroupList in pkg/providers/v1 of
// cloud-provider-aws, pkg/shared_constants/tag_keys.go of the AWS Load Balancer Controller. There, what serves all of
// a cluster, such as the backend security group, has no stack.
const (
	serviceTag    = "kubernetes.io/service-name"
	clusterTag    = "elbv2.k8s.aws/cluster"
	stackTag      = "/stack" // after the prefix of a kind
	classicGroup  = "k8s-elb-"
	managedGroup  = "[k8s] Managed SecurityGroup for LoadBalancer"
	managedPrefix = "k8s-"
	clientRule    = "kubernetes.io/rule/nlb/client="
	healthRule    = "kubernetes.io/rule/nlb/health="
	owned         = "owned" // value of the cluster's tag
)

// balancerName is the form of DefaultLoadBalancerName in k8s.io/cloud-provider.
var balancerName = regexp.MustCompile(`^a[0-9a-f]{31}$`)

// claim is what the owner of something would have.
type claim struct{ kind, name string }

// Kinds of load balancers.
const (
	Classic = "classic"
	Network = "network"
)

// Kinds of claims, besides those of load balancers and the prefixes of the AWS Load Balancer Controller's tags. Target
// groups and security groups of network load balancers of the cloud controller do not tell its Service's UID.
const (
	networkTargets = "targets" // NAMESPACE/NAME
	networkGroup   = "group"   // the name without its hash
)

// Prefixes of tags of the AWS Load Balancer Controller (serviceTagPrefix, ingressTagPrefix, ALBGatewayTagPrefix and
// NLBGatewayTagPrefix in its source).
const (
	serviceStack    = "service.k8s.aws"
	ingressStack    = "ingress.k8s.aws"
	albGatewayStack = "gateway.k8s.aws.alb"
	nlbGatewayStack = "gateway.k8s.aws.nlb"
)

// stacks are what objects of these prefixes are.
var stacks = map[string]string{
	serviceStack: "Service", ingressStack: "Ingress", albGatewayStack: "Gateway", nlbGatewayStack: "Gateway",
}

// stackClaim returns the claim to what has the tags of the AWS Load Balancer Controller.
func (c Cluster) stackClaim(tags clustertags.Tags) (claim, bool) {
	for prefix := range stacks {
		if name := tags[prefix+stackTag]; name != "" && tags[clusterTag] == c.Name {
			return claim{prefix, name}, true
		}
	}
	return claim{}, false
}

// Object names the object that a controller has created something for; "" if the tags do not tell.
func Object(tags clustertags.Tags) string {
	for prefix, kind := range stacks {
		if name := tags[prefix+stackTag]; name != "" {
			return kind + " " + name
		}
	}
	if name := tags[serviceTag]; name != "" {
		return "Service " + name
	}
	return ""
}

// created reports whether a controller of the cluster has created what has these tags. Operators give theirs the value
// shared, or none of the other tags and names.
func (c Cluster) created(tags clustertags.Tags) bool { return tags[clustertags.Prefix+c.Name] == owned }

func (c Cluster) claimToBalancer(b Balancer) (claim, bool) {
	switch {
	case !c.created(b.Tags):
		return claim{}, false
	case b.Tags.Has(clusterTag):
		return c.stackClaim(b.Tags)
	}
	ok := b.Tags.Has(serviceTag) && balancerName.MatchString(b.Name) && (b.Kind == Classic || b.Kind == Network)
	return claim{b.Kind, b.Name}, ok
}

func (c Cluster) claimToTargetGroup(g TargetGroup) (claim, bool) {
	switch {
	case !c.created(g.Tags):
		return claim{}, false
	case g.Tags.Has(clusterTag):
		return c.stackClaim(g.Tags)
	}
	return claim{networkTargets, g.Tags[serviceTag]}, g.Tags.Has(serviceTag)
}

func (c Cluster) claimToGroup(g Group) (claim, bool) {
	name, classic := strings.CutPrefix(g.Name, classicGroup)
	switch {
	case !c.created(g.Tags):
		return claim{}, false
	case g.Tags.Has(clusterTag):
		return c.stackClaim(g.Tags)
	case classic:
		return claim{Classic, name}, balancerName.MatchString(name)
	}
	hash := strings.LastIndex(g.Name, "-")
	managed := g.Description == managedGroup && strings.HasPrefix(g.Name, managedPrefix)
	return claim{networkGroup, g.Name[:max(hash, 0)]}, managed
}

// search is one comparison.
type search struct {
	Cluster
	owned  claims
	things []*Thing
	// by name and ARN, of load balancers that are in use or not of this cluster
	inUse map[string]bool
	// by id, of security groups that these have
	inUseGroups map[string]bool
}

// find looks for load balancers first, because parts belong to them, and for rules last, because they refer to groups.
func find(account Account, owned claims, cluster Cluster, now time.Time) []Thing {
	s := &search{Cluster: cluster, owned: owned, inUse: map[string]bool{}, inUseGroups: map[string]bool{}}
	for _, b := range account.Balancers {
		s.addBalancer(b, now)
	}
	for _, g := range account.TargetGroups {
		s.addTargetGroup(g)
	}
	for _, g := range account.Groups {
		s.addGroup(g)
	}
	s.addRules(account.Groups)
	result := make([]Thing, 0, len(s.things))
	for _, t := range s.things {
		result = append(result, *t)
	}
	return result
}

func (s *search) addBalancer(b Balancer, now time.Time) {
	claim, ok := s.claimToBalancer(b)
	if ok && !s.owned.has(claim) && !s.owned.serve(b) && now.Sub(b.Created) >= settled {
		s.things = append(s.things, &Thing{Balancer: &b})
		return
	}
	s.inUse[b.Kind+"/"+b.Name], s.inUse[b.ARN] = true, true
	for _, id := range b.Groups {
		s.inUseGroups[id] = true
	}
}

// of returns the thing that a part belongs to: a new one if there is none.
func (s *search) of(owns func(*Thing) bool) *Thing {
	if i := slices.IndexFunc(s.things, owns); i >= 0 {
		return s.things[i]
	}
	s.things = append(s.things, &Thing{})
	return s.things[len(s.things)-1]
}

func (s *search) addTargetGroup(g TargetGroup) {
	claim, ok := s.claimToTargetGroup(g)
	sent := func(t *Thing) bool { return t.Balancer != nil && slices.Contains(g.Balancers, t.Balancer.ARN) }
	switch {
	case !ok, slices.ContainsFunc(g.Balancers, func(arn string) bool { return s.inUse[arn] }):
		return
	case len(g.Balancers) > 0 && !slices.ContainsFunc(s.things, sent): // its load balancer is in another VPC, or new
		return
	case len(g.Balancers) == 0 && s.owned.has(claim):
		return
	}
	t := s.of(sent)
	t.TargetGroups = append(t.TargetGroups, g)
}

// addGroup adds a security group that no load balancer in use has.
func (s *search) addGroup(g Group) {
	claim, ok := s.claimToGroup(g)
	if !ok || s.inUseGroups[g.ID] || s.owned.has(claim) || claim.kind == Classic && s.inUse[Classic+"/"+claim.name] {
		return
	}
	t := s.of(func(t *Thing) bool {
		return t.Balancer != nil && (slices.Contains(t.Balancer.Groups, g.ID) ||
			t.Balancer.Kind == Classic && t.Balancer.Name == claim.name)
	})
	t.Groups = append(t.Groups, g)
}

func (s *search) addRules(groups []Group) {
	alone := map[string]*Thing{} // by the name of the load balancer
	for _, g := range groups {
		for _, r := range g.Rules {
			s.addRule(g, r, alone)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(alone)) {
		s.things = append(s.things, alone[name])
	}
}

// addRule adds a rule that refers to a group that is left behind, which cannot be deleted before, or that the cloud
// controller has opened the nodes with for a network load balancer.
func (s *search) addRule(g Group, r Rule, alone map[string]*Thing) {
	has := func(id string) func(*Thing) bool {
		return func(t *Thing) bool {
			return slices.ContainsFunc(t.Groups, func(other Group) bool { return other.ID == id })
		}
	}
	if i := slices.IndexFunc(s.things, has(r.Source)); r.Source != "" && i >= 0 {
		if g.ID != r.Source {
			s.things[i].Rules = append(s.things[i].Rules, r)
		}
		return
	}
	name, opened := strings.CutPrefix(r.Description, clientRule)
	if !opened {
		name, opened = strings.CutPrefix(r.Description, healthRule)
	}
	switch {
	case !opened, r.CIDR == "", !balancerName.MatchString(name), !s.isOfNodes(g):
		return
	case s.owned.has(claim{Network, name}), s.inUse[Network+"/"+name]:
		return
	case s.owned.opens(r): // the rule of a Service that got the port later, too, since a group has each rule once
		return
	}
	balancer := func(t *Thing) bool {
		return t.Balancer != nil && t.Balancer.Kind == Network && t.Balancer.Name == name
	}
	if i := slices.IndexFunc(s.things, balancer); i >= 0 {
		s.things[i].Rules = append(s.things[i].Rules, r)
		return
	}
	if alone[name] == nil {
		alone[name] = &Thing{}
	}
	alone[name].Rules = append(alone[name].Rules, r)
}

// isOfNodes reports whether the cloud controller opens a group for load balancers of this cluster only.
func (s *search) isOfNodes(g Group) bool {
	if clusters := g.Tags.Clusters(); len(clusters) > 0 {
		return len(clusters) == 1 && clusters[0] == s.Name
	}
	return slices.Contains(s.Groups, g.ID)
}
