package main

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
)

// measured calls a function, and logs the time and memory that it takes.
func measured(t *testing.T, what string, call func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	call()
	runtime.ReadMemStats(&after)
	const mega = 1 << 20
	t.Logf("%s: %.1f s, %d MB allocated, %d MB from the system", what, time.Since(start).Seconds(),
		(after.TotalAlloc-before.TotalAlloc)/mega, after.Sys/mega)
}

// team is a namespace with pods that have no ports.
func team(name string, network, pods int) []kruntime.Object {
	objects := []kruntime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	for i := range pods {
		ip := fmt.Sprintf("10.%d.%d.%d", network, i/200, i%200+1)
		objects = append(objects, podWithPorts(name, fmt.Sprint("web", i), ip))
	}
	return objects
}

func everywhere() networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}
}

// without selects the pods of all namespaces that do not have one of the names.
func without(names ...string) networkingv1.NetworkPolicyPeer {
	peer := everywhere()
	peer.PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: names},
	}}
	return peer
}

// TestTenantsHaveLimitedPeers is a tenant with policies that the API server accepts, whose thousands of peers each
// select all pods of the cluster: millions for the controller to list, in memory on every node.
func TestTenantsHaveLimitedPeers(t *testing.T) {
	const pods = 300
	equal, distinct := make([]networkingv1.NetworkPolicyPeer, 10000), make([]networkingv1.NetworkPolicyPeer, 10000)
	for i := range equal {
		equal[i], distinct[i] = everywhere(), without(fmt.Sprint("other", i))
	}
	objects := append(team("tenant", 200, pods), team("other", 201, 1)...)
	objects = append(objects, ingressPolicy("tenant", "equal", nil, equal...),
		ingressPolicy("tenant", "distinct", nil, distinct...), ingressPolicy("other", "friend", nil, everywhere()))
	var rules, sets string
	measured(t, "two policies", func() { rules, sets = written(t, objects...) })
	if count := strings.Count(sets, "\nadd "); count > 10*pods {
		t.Errorf("sets of %d pods have %d addresses", pods, count)
	}
	const open = "from source pods to dest pods selected by policy name /%s namespace %s"
	for policy, namespace := range map[string]string{"equal": "tenant", "friend": "other"} {
		if !strings.Contains(rules, fmt.Sprintf(open, policy, namespace)) {
			t.Errorf("policy %s permits nothing", policy)
		}
	}
	if strings.Contains(rules, fmt.Sprintf(open, "distinct", "tenant")) {
		t.Error("policy distinct has its rules")
	}
	if jumps := strings.Count(rules, "run through nw policy /distinct"); jumps != pods {
		t.Errorf("policy distinct isolates %d pods, want %d", jumps, pods)
	}
}

// TestPodsHavePortsOnce is a tenant with a pod whose containers have the same port, which the API server accepts: for
// each of them the controller doubled the addresses of the pod, in memory, with any policy for the pod.
func TestPodsHavePortsOnce(t *testing.T) {
	same := make([]int32, 17)
	for i := range same {
		same[i] = 80
	}
	var rules, sets string
	measured(t, "one pod", func() {
		rules, sets = written(t, podWithPorts("tenant", "web", "10.200.0.2", same...), ingressPolicy(
			"tenant", "web", []networkingv1.NetworkPolicyPort{networkPortOf(intstr.FromString("web"))},
		))
	})
	if count := strings.Count(sets, "10.200.0.2 "); count < 1 || count > 3 {
		t.Errorf("sets have the address of the pod %d times", count)
	}
	if !strings.Contains(rules, "--dport 80 ") {
		t.Error("port web has no rule")
	}
}

// listed returns the policies that the controller sees, by namespace and name, and the log.
func listed(t *testing.T, objects ...kruntime.Object) (map[string]*networkingv1.NetworkPolicy, string) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	for _, object := range objects {
		indexer := pods.Informer().GetIndexer()
		switch object.(type) {
		case *corev1.Namespace:
			indexer = namespaces.Informer().GetIndexer()
		case *networkingv1.NetworkPolicy:
			indexer = policies.GetIndexer()
		}
		kept, err := withoutUnused(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := indexer.Add(kept); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	t.Cleanup(func() { klog.LogToStderr(true) })
	seen := map[string]*networkingv1.NetworkPolicy{}
	measured(t, "the list of policies", func() {
		for _, object := range (boundedPolicies{policies, pods.Lister(), namespaces.Lister()}).GetIndexer().List() {
			if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
				seen[policy.Namespace+"/"+policy.Name] = policy
			}
		}
	})
	klog.Flush()
	return seen, log.String()
}

// wantRules compares which policies have their rules.
func wantRules(t *testing.T, seen map[string]*networkingv1.NetworkPolicy, want map[string]bool) {
	t.Helper()
	for name, kept := range want {
		policy := seen[name]
		if policy == nil {
			t.Errorf("policy %s is gone, which opens its pods", name)
			continue
		}
		if got := len(policy.Spec.Ingress)+len(policy.Spec.Egress) > 0; got != kept {
			t.Errorf("policy %s has its rules: %t, want %t", name, got, kept)
		}
	}
}

// TestOthersCannotUseUpPeers are the peers of a tenant while another creates pods: each of fifty can be all pods.
func TestOthersCannotUseUpPeers(t *testing.T) {
	var objects []kruntime.Object
	for i := range 5 {
		objects = append(objects, team(fmt.Sprint("other", i), 100+i, 1000)...)
	}
	objects = append(objects, team("tenant", 200, 10)...)
	want := map[string]bool{}
	for i := range maxEach + 1 {
		policy := ingressPolicy("tenant", fmt.Sprint("policy", i), nil, everywhere())
		policy.CreationTimestamp = metav1.Unix(int64(i), 0)
		objects, want["tenant/"+policy.Name] = append(objects, policy), i < maxEach
	}
	seen, log := listed(t, objects...)
	wantRules(t, seen, want)
	if !strings.Contains(log, "of namespace tenant have more than 250500 pods as peers") {
		t.Errorf("the log has %q", log)
	}
}

// TestTenantsCompareFewLabels is a tenant whose policies have every label of the cluster compared with many.
func TestTenantsCompareFewLabels(t *testing.T) {
	names := make([]string, 30000)
	for i := range names {
		names[i] = fmt.Sprint("other", i)
	}
	objects := append(team("tenant", 200, 300), team("other", 201, 300)...)
	want := map[string]bool{"tenant/block": true, "tenant/attack0": true, "other/friend": true}
	for i := range 20 {
		policy := ingressPolicy("tenant", fmt.Sprint("attack", i), nil, without(names[:5000]...))
		policy.CreationTimestamp = metav1.Unix(int64(i), 0)
		objects, want["tenant/"+policy.Name] = append(objects, policy), i == 0
	}
	block := ingressPolicy("tenant", "block", nil, networkingv1.NetworkPolicyPeer{
		IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"},
	})
	block.CreationTimestamp = metav1.Unix(100, 0)
	objects = append(objects, block, ingressPolicy("other", "friend", nil, without("web1")))
	seen, log := listed(t, objects...)
	wantRules(t, seen, want)
	if !strings.Contains(log, "of namespace tenant have more than 5000000 labels") ||
		!strings.Contains(log, "the 19 youngest") {
		t.Errorf("the log has %q", log)
	}
}

// TestTenantsHaveLimitedPolicies is a tenant with many policies that select all pods: a rule for each of both on every
// node that has these pods.
func TestTenantsHaveLimitedPolicies(t *testing.T) {
	const pods, policies = 300, 1000
	objects := append(team("tenant", 200, pods), team("other", 201, 1)...)
	objects = append(objects, ingressPolicy("other", "friend", nil, everywhere()))
	for i := range policies {
		policy := ingressPolicy("tenant", fmt.Sprint("policy", i), nil)
		policy.CreationTimestamp = metav1.Unix(int64(i), 0)
		objects = append(objects, policy)
	}
	var rules string
	measured(t, fmt.Sprint(policies, " policies"), func() { rules, _ = written(t, objects...) })
	// 166 policies select 49,800 pods.
	for policy, want := range map[string]int{
		"/policy0": pods, "/policy165": pods, "/policy166": 0, "//": pods, "/friend": 1,
	} {
		if got := strings.Count(rules, "run through nw policy "+policy+"\""); got != want {
			t.Errorf("policy %s selects %d pods, want %d", policy, got, want)
		}
	}
	const open = "to dest pods selected by policy name: %s namespace tenant"
	if !strings.Contains(rules, fmt.Sprintf(open, "/policy0")) || strings.Contains(rules, fmt.Sprintf(open, "//")) {
		t.Error("the oldest policy has no rules, or the one of all pods has some")
	}
}
