package awssim_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// oneOfTwo is a cluster with one Node, and with a Service default/web that has a load balancer.
type oneOfTwo struct {
	name, instance, address, group string
	client                         kubernetes.Interface
}

// TestTwoClustersInOneVPC has the real cloud controllers of two clusters in one account, which section 6 of
// docs/first-cluster.md describes: neither changes the other's Node, load balancer or security group, not even when its
// own load balancer is deleted and its own instance is terminated.
func TestTwoClustersInOneVPC(t *testing.T) {
	ccm := os.Getenv("AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	if ccm == "" {
		t.Skip("needs the real cloud controller: set AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	first := &oneOfTwo{name: cluster, instance: controlID, address: "127.0.0.1", group: awssim.LabSecurityGroup}
	second := &oneOfTwo{
		name: "staging", instance: "i-0000000000000c002", address: "127.0.0.2", group: "sg-0a0b0c0d0e0f00002",
	}
	world := ccmWorld()
	enforceGeneratedPolicies(t, world)
	second.join(t, world)
	b := start(t, world, awssim.Options{})
	for _, c := range []*oneOfTwo{first, second} {
		c.run(t, ccm, b)
	}
	for _, c := range []*oneOfTwo{first, second} {
		eventually.Succeeds(t, time.Minute, "load balancer of "+c.name, func() error { return c.check(t, b) })
	}

	if err := first.client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "no load balancer of "+first.name, func() error {
		if w := b.sim.World(); len(w.ClassicLoadBalancers) > 1 || len(w.SecurityGroups) > 3 {
			return fmt.Errorf("%d load balancers, %d groups", len(w.ClassicLoadBalancers), len(w.SecurityGroups))
		}
		return nil
	})
	if err := second.check(t, b); err != nil {
		t.Error(err)
	}

	if err := b.sim.Update(func(w *store.World) error {
		store.Find(w.Instances, first.instance).State = store.Terminated
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*oneOfTwo{second, first} { // the cloud controller asks EC2 about Nodes that are not ready
		c.setReady(t, corev1.ConditionUnknown)
	}
	eventually.Succeeds(t, time.Minute, "no Node of "+first.name, func() error {
		_, err := first.client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Node is there: %w", err)
		}
		return nil
	})
	if _, err := second.client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, c := range b.sim.Calls("") {
		if c.Code == "UnauthorizedOperation" || c.Code == "AccessDenied" {
			t.Errorf("a generated policy denies a call: %s %s %v", c.Service, c.Action, c.Params)
		}
	}
}

// join adds the cluster to the account of another one: with roles, a security group and an instance of its own, on the
// same subnets.
func (c *oneOfTwo) join(t *testing.T, w *store.World) {
	t.Helper()
	tag := "kubernetes.io/cluster/" + c.name
	for i := range w.Subnets {
		w.Subnets[i].Tags[clusterTag], w.Subnets[i].Tags[tag] = "shared", "shared"
	}
	w.SecurityGroups = append(w.SecurityGroups, store.SecurityGroup{
		ID: c.group, Name: "kubernetes-" + c.name, VPC: awssim.LabVPC, Tags: store.Tags{tag: "owned"},
		Ingress: []store.Rule{{Protocol: "-1", Group: c.group}},
		Egress:  []store.Rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}},
	})
	role := "kubernetes-control-" + c.name
	w.Roles = append(w.Roles, store.Role{Name: role})
	w.InstanceProfiles = append(w.InstanceProfiles, store.InstanceProfile{Name: role, Role: role})
	setGeneratedPolicy(t, w, role, preflight.Control, c.name)
	w.Instances = append(w.Instances, store.Instance{
		ID: c.instance, Subnet: awssim.LabNodeSubnet(1), Address: netip.MustParseAddr(c.address),
		InstanceProfile: role, SecurityGroups: []string{c.group}, Tags: store.Tags{tag: "owned"},
	})
}

// run starts the cluster, its cloud controller with the metadata of the cluster's instance, and creates the Service.
func (c *oneOfTwo) run(t *testing.T, ccm string, b *bed) {
	t.Helper()
	api := kubetest.Start(t, kubetest.Options{})
	c.client = api.Admin()
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + c.instance},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.setReady(t, corev1.ConditionTrue)
	if _, err := c.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 8080, NodePort: 31080}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	metadata := b.sim.MetadataServer()
	answer := metadata.Handler
	metadata.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = c.address + ":1"
		answer.ServeHTTP(w, r)
	})
	from := &bed{t: t, sim: b.sim, api: b.api, metadata: "http://" + serve(t, metadata)}
	logged(t, startCCM(
		t, ccm, from, api.Kubeconfig("ccm", "system:masters"), "--configure-cloud-routes=false",
		"--cluster-name="+c.name,
	))
}

func (c *oneOfTwo) setReady(t *testing.T, ready corev1.ConditionStatus) {
	t.Helper()
	nodes := c.client.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	if _, err := nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// check expects a load balancer with the cluster's tag and no other's, to which only the cluster's instance belongs,
// and from whose group and no other's the cluster's security group has a rule.
func (c *oneOfTwo) check(t *testing.T, b *bed) error {
	service, err := c.client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		return errors.New("no ingress yet")
	}
	w := b.sim.World()
	at := slices.IndexFunc(w.ClassicLoadBalancers, func(l store.ClassicLoadBalancer) bool {
		return l.DNSName == service.Status.LoadBalancer.Ingress[0].Hostname
	})
	if at < 0 {
		return fmt.Errorf("no load balancer has the name of %v", service.Status)
	}
	l := w.ClassicLoadBalancers[at]
	group := store.Find(w.SecurityGroups, c.group)
	var from []string
	for _, rule := range group.Ingress {
		if rule.Group != c.group {
			from = append(from, rule.Group)
		}
	}
	if !slices.Equal(l.Instances, []string{c.instance}) || !slices.Equal(from, l.SecurityGroups) ||
		!slices.Equal(tagged(l.Tags), []string{c.name}) || !slices.Equal(tagged(group.Tags), []string{c.name}) {
		return fmt.Errorf("load balancer %+v, security group %+v", l, group)
	}
	return nil
}

// tagged are the clusters in tags.
func tagged(tags store.Tags) (clusters []string) {
	for key := range tags {
		if name, found := strings.CutPrefix(key, "kubernetes.io/cluster/"); found {
			clusters = append(clusters, name)
		}
	}
	return clusters
}
