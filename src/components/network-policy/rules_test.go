package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// written returns what the controller gives to iptables-restore and to ipset restore for these objects.
func written(t *testing.T, objects ...runtime.Object) (rules, sets string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range map[string]string{
		"iptables":         `case "$*" in *--version*) echo "iptables v1.8.10 (nf_tables)";; esac`,
		"iptables-save":    `printf '*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n'`,
		"iptables-restore": `[ "$1" = --help ] || { cat >"$0.part"; mv "$0.part" "$0.in"; }`,
		"ipset":            `[ "$1" != restore ] || cat >"$0.in"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	client := fake.NewClientset(append(objects, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "own"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
		}},
	})...)
	ctx, stop := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutUnused))
	s := settings{node: "own", serviceCIDR: "10.96.0.0/12", nodePorts: "30000-32767", syncPeriod: time.Hour}
	options := s.options()
	options.MetricsEnabled = false // registers them once in a process
	controller, _, err := newController(client, factory, options)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Add(1)
	heartbeats := make(chan *healthcheck.ControllerHeartbeat, 100)
	go controller.Run(heartbeats, ctx.Done(), &running)
	defer func() {
		stop()
		running.Wait()
	}()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		content, err := os.ReadFile(filepath.Join(dir, "iptables-restore.in"))
		if err != nil {
			continue
		}
		restored, err := os.ReadFile(filepath.Join(dir, "ipset.in"))
		if err != nil {
			t.Fatal(err)
		}
		return string(content), string(restored)
	}
	t.Fatal("the controller has written no rules for two minutes")
	return "", ""
}

// podWithPorts is a pod of the node in whose containers each of these numbers has the name.
func podWithPorts(namespace, name, ip string, numbers ...int32) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "own"},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, HostIP: "127.0.0.1", PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		},
	}
	for i, number := range numbers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i),
			Ports: []corev1.ContainerPort{
				{Name: "web", ContainerPort: number, Protocol: corev1.ProtocolTCP},
			},
		})
	}
	return pod
}

// ingressPolicy permits these ports of pods to the peers.
func ingressPolicy(
	namespace, name string, ports []networkingv1.NetworkPolicyPort, peers ...networkingv1.NetworkPolicyPeer,
) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}},
		},
	}
}

func networkPortOf(port intstr.IntOrString) networkingv1.NetworkPolicyPort {
	protocol := corev1.ProtocolTCP
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port}
}

// TestTenantsHaveLimitedRules is a tenant with one pod of 300 containers and one policy, which the API server accepts:
// its ports by their names would be 300,000 rules and sets, more than the kernel has, on every node.
func TestTenantsHaveLimitedRules(t *testing.T) {
	var numbers []int32
	for number := range int32(300) {
		numbers = append(numbers, 1000+number)
	}
	many := make([]networkingv1.NetworkPolicyPort, 1000)
	for i := range many {
		many[i] = networkPortOf(intstr.FromString("web"))
	}
	block := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}
	few := []networkingv1.NetworkPolicyPort{
		networkPortOf(intstr.FromString("web")), networkPortOf(intstr.FromInt32(81)),
	}
	attack := ingressPolicy("tenant", "attack", many, block)
	attack.CreationTimestamp = metav1.Unix(2, 0)
	before := ingressPolicy("tenant", "before", few, block)
	before.CreationTimestamp = metav1.Unix(1, 0)
	rules, sets := written(t,
		podWithPorts("tenant", "web", "10.200.0.2", numbers...), attack, before,
		podWithPorts("other", "web", "10.200.0.3", 80), ingressPolicy("other", "friend", few, block),
	)
	if count := strings.Count(sets, "\nswap "); count > 1000 {
		t.Errorf("the tenant has %d sets of the kernel's", count)
	}
	if count := strings.Count(rules, " RETURN"); count > 1000 {
		t.Errorf("the tenant has %d rules", count)
	}
	for what, port := range map[string]string{
		"another tenant's name": "80", "another tenant's number": "81", "the tenant's older policy": "1299",
	} {
		if !strings.Contains(rules, "-p TCP --dport "+port+" -m mark") {
			t.Errorf("%s, port %s, has no rule", what, port)
		}
	}
}

// TestUnknownPortsAreClosed are policies that permit a port by a name that no pod has: it is no other port either.
func TestUnknownPortsAreClosed(t *testing.T) {
	clients := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{"app": "client"},
	}}
	unknown := []networkingv1.NetworkPolicyPort{networkPortOf(intstr.FromString("metrics"))}
	known := []networkingv1.NetworkPolicyPort{networkPortOf(intstr.FromString("web"))}
	egress := ingressPolicy("tenant", "egress", nil)
	egress.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	egress.Spec.Ingress = nil
	egress.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{}, PodSelector: clients.PodSelector,
	}}, Ports: unknown}}
	rules, _ := written(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}},
		podWithPorts("tenant", "web", "10.200.0.2", 80), podWithPorts("tenant", "client", "10.200.0.3"),
		ingressPolicy("tenant", "unknown", unknown, clients), ingressPolicy("tenant", "known", known, clients), egress,
	)
	accepting := regexp.MustCompile(`(?m)^-A KUBE-NWPLCY-.*rule to ACCEPT traffic from source pods.*$`)
	open := accepting.FindAllString(rules, -1)
	for _, rule := range open {
		if !strings.Contains(rule, "--dport 80 ") {
			t.Errorf("opens all ports: %s", rule)
		}
	}
	if len(open) != 2 {
		t.Errorf("port web has %d rules, want 2", len(open))
	}
}

// TestOldestPoliciesKeepTheirRules is a tenant with more policies than fit: the youngest have no rules, and isolate.
func TestOldestPoliciesKeepTheirRules(t *testing.T) {
	objects := []runtime.Object{podWithPorts("tenant", "web", "10.200.0.2")}
	for i := range 6 {
		ports := make([]networkingv1.NetworkPolicyPort, 1000)
		for j := range ports {
			ports[j] = networkPortOf(intstr.FromInt32(int32(1000*(i+1) + j)))
		}
		policy := ingressPolicy("tenant", fmt.Sprintf("policy%d", 9-i), ports)
		policy.CreationTimestamp = metav1.Unix(int64(i), 0)
		objects = append(objects, policy)
	}
	rules, _ := written(t, objects...)
	for i := range 6 {
		want := 1000
		if i >= 4 { // of 5000 rules each policy has one more
			want = 0
		}
		got := len(regexp.MustCompile(fmt.Sprintf(`--dport %d\d{3} .* RETURN`, i+1)).FindAllString(rules, -1))
		if got != want {
			t.Errorf("policy %d has %d rules, want %d", i, got, want)
		}
	}
	if jumps := strings.Count(rules, "run through nw policy"); jumps != 6 {
		t.Errorf("the pod goes through %d policies, want 6", jumps)
	}
}
