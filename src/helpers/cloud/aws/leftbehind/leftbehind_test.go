package leftbehind

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/owners"
	"kubernetes-release/internal/apiclient"
)

const cleanup = "service.kubernetes.io/load-balancer-cleanup" // a finalizer

const (
	otherUID = "89abcdef-0000-4000-8000-000000000001"
	goneUID  = "0123abcd-0000-4000-8000-000000000002"
	gone     = "a0123abcd00004000800000000000000" // of a Service with goneUID
	nodes    = "sg-nodes"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// ofController are the tags that the cloud controller sets.
func ofController(service string) clustertags.Tags {
	return clustertags.Tags{"kubernetes.io/cluster/prod": "owned", "kubernetes.io/service-name": service}
}

// ofStack are the tags that the AWS Load Balancer Controller sets.
func ofStack(prefix, name string) clustertags.Tags {
	return clustertags.Tags{
		"kubernetes.io/cluster/prod": "owned", "elbv2.k8s.aws/cluster": "prod", prefix + "/stack": name,
	}
}

func balancer(kind, name string, tags clustertags.Tags, groups ...string) Balancer {
	b := Balancer{
		Name: name, DNSName: "Internal-" + name + ".example", Kind: kind, Groups: groups,
		Created: now.Add(-time.Hour), Tags: tags,
	}
	if kind != Classic {
		b.ARN = "arn:" + name
	}
	return b
}

func classicSecurityGroup(id, name string) Group {
	return Group{ID: id, Name: "k8s-elb-" + name, Tags: clustertags.Tags{"kubernetes.io/cluster/prod": "owned"}}
}

func nodesGroup(tags clustertags.Tags, rules ...Rule) Group {
	for i := range rules {
		rules[i].Group = nodes
	}
	return Group{ID: nodes, Name: "nodes", Tags: tags, Rules: rules}
}

func client(name string, port int) Rule {
	return Rule{
		Protocol: "tcp", From: port, To: port, CIDR: "0.0.0.0/0", Description: "kubernetes.io/rule/nlb/client=" + name,
	}
}

var shared = clustertags.Tags{"kubernetes.io/cluster/prod": "shared"}

// service is one of the API server's answers.
func service(name, uid, kind, more string) string {
	return fmt.Sprintf(
		`{"metadata": {"namespace": "default", "name": %q, "uid": %q, "annotations": {%q: %q}%s`,
		name, uid, typeAnnotation, kind, more,
	)
}

const balanced = `}, "spec": {"type": "LoadBalancer", "ports": [{"nodePort": 30080}]}}`

// cluster serves lists of objects; of paths without one it answers 403.
type cluster map[string][]string

func (c cluster) start(t *testing.T) *apiclient.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		items, ok := c[name]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		first, next := 0, ""
		_, _ = fmt.Sscanf(r.URL.Query().Get("continue"), "from-%d", &first)
		last := min(first+1, len(items)) // pages of one object
		if last < len(items) {
			next = fmt.Sprintf("from-%d", last)
		}
		_, _ = fmt.Fprintf(
			w, `{"kind": "List", "metadata": {"continue": %q}, "items": [%s]}`, next,
			strings.Join(items[first:last], ","),
		)
	}))
	t.Cleanup(server.Close)
	return &apiclient.Client{Server: server.URL, HTTP: server.Client()}
}

type accountOf struct {
	Account
	asked func()
	err   error
}

func (a accountOf) LoadBalancing(context.Context, string) (Account, error) {
	if a.asked != nil {
		a.asked()
	}
	return a.Account, a.err
}

// plain is what no controller of load balancers has created for.
func plain(name string) string {
	return service(name, "1-"+name, "", `}, "spec": {"type": "ClusterIP"}}`)
}

func (t Thing) String() string {
	var parts []string
	if t.Balancer != nil {
		parts = append(parts, t.Balancer.Kind+" "+t.Balancer.Name)
	}
	for _, g := range t.TargetGroups {
		parts = append(parts, "targets "+g.Name)
	}
	for _, r := range t.Rules {
		parts = append(parts, fmt.Sprintf("rule %s %s%s:%d", r.Group, r.Source, r.CIDR, r.From))
	}
	for _, g := range t.Groups {
		parts = append(parts, "group "+g.ID)
	}
	return strings.Join(parts, ", ")
}

// TestSweep: what is named together, and what is not named at all.
func TestSweep(t *testing.T) {
	classic := Account{
		Balancers: []Balancer{balancer(Classic, gone, ofController("default/web"), "sg-elb")},
		Groups: []Group{
			classicSecurityGroup("sg-elb", gone), nodesGroup(shared, Rule{Protocol: "-1", From: -1, Source: "sg-elb"}),
		},
	}
	const classicThing = "classic " + gone + ", rule sg-nodes sg-elb:-1, group sg-elb"
	network := Account{
		Balancers: []Balancer{balancer(Network, gone, ofController("default/web"))},
		TargetGroups: []TargetGroup{
			{Name: "k8s-default-web-1", Balancers: []string{"arn:" + gone}, Tags: ofController("default/web")},
		},
		Groups: []Group{nodesGroup(shared, client(gone, 30001), Rule{Protocol: "tcp", From: 22, CIDR: "10.0.0.0/8"})},
	}
	const networkThing = "network " + gone + ", targets k8s-default-web-1, rule sg-nodes 0.0.0.0/0:30001"
	goneIs := func(kind, more string) cluster {
		return cluster{"services": {plain("kubernetes"), service("web", goneUID, kind, more)}}
	}
	withoutBalancer := func(a Account) Account { a.Balancers = nil; return a }
	noServices := cluster{"services": {plain("kubernetes")}}
	ingress := Account{
		Balancers: []Balancer{
			balancer("application", "k8s-shop", ofStack("ingress.k8s.aws", "default/shop"), "sg-alb"),
		},
		TargetGroups: []TargetGroup{
			{Name: "k8s-shop-1", Balancers: []string{"arn:k8s-shop"}, Tags: ofStack("ingress.k8s.aws", "default/shop")},
		},
		Groups: []Group{
			{ID: "sg-alb", Name: "k8s-shop", Tags: ofStack("ingress.k8s.aws", "default/shop")},
			{
				ID: "sg-backend", Name: "k8s-traffic-prod-1",
				Tags: clustertags.Tags{
					"kubernetes.io/cluster/prod": "owned", "elbv2.k8s.aws/cluster": "prod",
					"elbv2.k8s.aws/resource": "backend-sg",
				},
			},
			nodesGroup(shared, Rule{
				Protocol: "tcp", From: 30000, To: 32767, Source: "sg-backend",
				Description: "elbv2.k8s.aws/targetGroupBinding=shared",
			}),
		},
	}
	const ingressThing = "application k8s-shop, targets k8s-shop-1, group sg-alb"
	grouped := Account{
		Balancers: []Balancer{balancer("application", "k8s-team", ofStack("ingress.k8s.aws", "team"))},
	}
	gateway := func(prefix string) Account {
		return Account{Balancers: []Balancer{balancer(Network, "k8s-gw", ofStack(prefix, "default/gw"))}}
	}
	withIngresses := func(ingresses ...string) cluster {
		return cluster{"services": {plain("kubernetes")}, "ingresses": ingresses, "gateways": nil}
	}
	shop := func(more string) string { return `{"metadata": {"namespace": "default", "name": "shop"` + more + `}}` }

	for name, test := range map[string]struct {
		account Account
		cluster cluster
		want    []string
	}{
		"classic":                          {classic, noServices, []string{classicThing}},
		"classic of a Service":             {classic, goneIs("", balanced), nil},
		"classic of a Service that is nlb": {classic, goneIs("nlb", balanced), []string{classicThing}},
		"classic of a Service that is nlb, and has its address": {
			classic, goneIs("nlb", balanced[:len(balanced)-1]+
				`, "status": {"loadBalancer": {"ingress": [{"hostname": "internal-`+gone+`.example"}]}}}`), nil,
		},
		"classic of a Service of the other controller": {
			classic, goneIs("external", balanced), []string{classicThing},
		},
		"classic of a Service with a class": {
			classic, goneIs("external", `}, "spec": {"type": "LoadBalancer", "loadBalancerClass": "x"}}`), nil,
		},
		"classic of a Service that is ClusterIP now": {
			classic, goneIs("", `}, "spec": {"type": "ClusterIP"}}`), []string{classicThing},
		},
		"classic of a Service that is ClusterIP now, with its finalizer": {
			classic,
			goneIs("", `, "finalizers": ["`+cleanup+`"]}, "spec": {"type": "ClusterIP"}}`), nil,
		},
		"classic of a Service that is being deleted": {
			classic,
			goneIs("", `, "deletionTimestamp": "2026-11-30T11:00:00Z", "finalizers": ["`+cleanup+`"]`+balanced), nil,
		},
		"classic of a Service with the same name and another UID": {
			classic, cluster{"services": {service("web", otherUID, "", balanced)}}, []string{classicThing},
		},
		"network":                              {network, noServices, []string{networkThing}},
		"network of a Service":                 {network, goneIs("nlb", balanced), nil},
		"network of a Service that is classic": {network, goneIs("", balanced), []string{networkThing}},
		"network whose port has a Service now": {network, cluster{"services": {service("new", otherUID, "nlb",
			`}, "spec": {"type": "LoadBalancer", "ports": [{"nodePort": 30001}]}}`)}},
			[]string{"network " + gone + ", targets k8s-default-web-1"}},
		"security group alone": {
			withoutBalancer(classic), noServices, []string{"rule sg-nodes sg-elb:-1, group sg-elb"},
		},
		"security group before its balancer": {withoutBalancer(classic), goneIs("", balanced), nil},
		"target group alone": {
			Account{TargetGroups: []TargetGroup{{Name: "tg", Tags: ofController("default/web")}}}, noServices,
			[]string{"targets tg"},
		},
		"target group before its balancer": {
			Account{TargetGroups: []TargetGroup{{Name: "tg", Tags: ofController("default/web")}}},
			goneIs("nlb", balanced), nil,
		},
		"target group of a balancer in another VPC": {
			Account{TargetGroups: []TargetGroup{
				{Name: "tg", Balancers: []string{"arn:x"}, Tags: ofController("default/web")},
			}}, noServices, nil,
		},
		"rule alone": {
			Account{Groups: network.Groups}, noServices, []string{"rule sg-nodes 0.0.0.0/0:30001"},
		},
		"rule in an untagged group of the nodes": {
			Account{Groups: []Group{nodesGroup(nil, client(gone, 30001))}}, noServices,
			[]string{"rule sg-nodes 0.0.0.0/0:30001"},
		},
		"rule in a group of two clusters": {
			Account{Groups: []Group{nodesGroup(
				clustertags.Tags{"kubernetes.io/cluster/prod": "shared", "kubernetes.io/cluster/b": "shared"},
				client(gone, 30001),
			)}}, noServices, nil,
		},
		"rule for a balancer of another cluster": {
			Account{
				Balancers: []Balancer{balancer(Network, gone, clustertags.Tags{"kubernetes.io/cluster/b": "owned"})},
				Groups:    []Group{nodesGroup(nil, client(gone, 30001))},
			}, noServices, nil,
		},
		"managed group of a network load balancer": {
			Account{Groups: []Group{{
				ID: "sg-m", Name: "k8s-default-web-0123456789", Description: managedGroup,
				Tags: clustertags.Tags{"kubernetes.io/cluster/prod": "owned"},
			}}}, noServices, []string{"group sg-m"},
		},
		"managed group of a Service": {
			Account{Groups: []Group{{
				ID: "sg-m", Name: "k8s-default-web-0123456789", Description: managedGroup,
				Tags: clustertags.Tags{"kubernetes.io/cluster/prod": "owned"},
			}}}, goneIs("nlb", balanced), nil,
		},
		"another cluster's": {
			Account{
				Balancers: []Balancer{balancer(Classic, gone, clustertags.Tags{
					"kubernetes.io/cluster/b": "owned", "kubernetes.io/service-name": "default/web",
				})},
				Groups: []Group{{ID: "sg-b", Name: "k8s-elb-" + gone, Tags: clustertags.Tags{
					"kubernetes.io/cluster/b": "owned",
				}}},
			}, noServices, nil,
		},
		"created a minute ago": {
			Account{
				Balancers: []Balancer{{
					Name: gone, Kind: Classic, Created: now.Add(-time.Minute), Tags: ofController("default/web"),
				}},
				Groups: classic.Groups,
			}, noServices, nil,
		},
		"an operator's own": {
			Account{
				Balancers: []Balancer{
					balancer(Classic, "shop", clustertags.Tags{"kubernetes.io/cluster/prod": "owned"}, "sg-own"),
					balancer(Network, "a0123abcd", ofController("default/web")),
					balancer("application", "front", shared),
				},
				TargetGroups: []TargetGroup{
					{Name: "bound", Tags: clustertags.Tags{"kubernetes.io/cluster/prod": "owned"}},
				},
				Groups: []Group{
					{ID: "sg-own", Name: "shop", Tags: clustertags.Tags{"kubernetes.io/cluster/prod": "owned"}},
					nodesGroup(shared, Rule{Protocol: "-1", Source: "sg-own"}),
				},
			}, noServices, nil,
		},
		"a group that an operator's load balancer uses": {
			Account{
				Balancers: []Balancer{balancer(Classic, "shop", nil, "sg-elb")},
				Groups:    classic.Groups,
			}, noServices, nil,
		},
		"of an Ingress that is gone":             {ingress, withIngresses(), []string{ingressThing}},
		"of an Ingress":                          {ingress, withIngresses(shop("")), nil},
		"of an Ingress, which may not be listed": {ingress, noServices, nil},
		"of a group that is gone":                {grouped, withIngresses(shop("")), []string{"application k8s-team"}},
		"of a group": {
			grouped, withIngresses(shop(`, "annotations": {"alb.ingress.kubernetes.io/group.name": "team"}`)), nil,
		},
		"of a group that an Ingress is leaving": {
			grouped, withIngresses(shop(`, "finalizers": ["group.ingress.k8s.aws/team"]`)), nil,
		},
		"of a Gateway that is gone": {
			gateway("gateway.k8s.aws.nlb"), withIngresses(), []string{"network k8s-gw"},
		},
		"of a Gateway": {
			gateway("gateway.k8s.aws.alb"),
			cluster{
				"services": {plain("kubernetes")}, "gateways": {`{"metadata": {"namespace": "default", "name": "gw"}}`},
			},
			nil,
		},
		"of another cluster's Ingress": {
			Account{Balancers: []Balancer{balancer("application", "k8s-b", clustertags.Tags{
				"kubernetes.io/cluster/prod": "owned", "elbv2.k8s.aws/cluster": "b",
				"ingress.k8s.aws/stack": "default/b",
			})}}, withIngresses(), nil,
		},
		"of a Service that is gone, of the other controller": {
			Account{Balancers: []Balancer{balancer(Network, "k8s-svc", ofStack("service.k8s.aws", "default/svc"))}},
			noServices, []string{"network k8s-svc"},
		},
		"of a Service, of the other controller": {
			Account{Balancers: []Balancer{balancer(Network, "k8s-svc", ofStack("service.k8s.aws", "default/svc"))}},
			cluster{"services": {plain("svc")}}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := test.cluster.start(t)
			things, err := Sweep(
				t.Context(), accountOf{Account: test.account},
				func(ctx context.Context) (owners.Objects, error) {
					return owners.List(ctx, api, owners.Ingresses, owners.Gateways)
				},
				Cluster{Name: "prod", VPC: "vpc-1", Groups: []string{nodes}}, now,
			)
			var got []string
			for _, thing := range things {
				got = append(got, thing.String())
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestSweepWhileObjectsChange: an object that was there before or after AWS answered is an owner.
func TestSweepWhileObjectsChange(t *testing.T) {
	account := Account{Balancers: []Balancer{balancer(Classic, gone, ofController("default/web"))}}
	with := []string{plain("kubernetes"), service("web", goneUID, "", balanced)}
	for name, test := range map[string]struct{ before, after []string }{
		"created": {with[:1], with}, "deleted": {with, with[:1]},
	} {
		objects := cluster{"services": test.before}
		api := objects.start(t)
		things, err := Sweep(
			t.Context(), accountOf{Account: account, asked: func() { objects["services"] = test.after }},
			func(ctx context.Context) (owners.Objects, error) { return owners.List(ctx, api) },
			Cluster{Name: "prod"}, now,
		)
		if err != nil || len(things) > 0 {
			t.Errorf("%s: %v, %v", name, things, err)
		}
	}
}

// TestSweepFails if AWS or the cluster does not answer.
func TestSweepFails(t *testing.T) {
	failed := errors.New("no answer")
	fails := func(context.Context) (owners.Objects, error) { return nil, failed }
	if _, err := Sweep(t.Context(), accountOf{}, fails, Cluster{}, now); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	api := cluster{"services": {plain("kubernetes")}}.start(t)
	list := func(ctx context.Context) (owners.Objects, error) { return owners.List(ctx, api) }
	if _, err := Sweep(t.Context(), accountOf{err: failed}, list, Cluster{}, now); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}
