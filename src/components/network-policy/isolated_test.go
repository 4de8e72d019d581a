package main

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
)

func TestIsolatedPods(t *testing.T) {
	index := func(objects ...any) cache.Indexer {
		indexer := cache.NewIndexer(
			cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		)
		for _, object := range objects {
			if err := indexer.Add(object); err != nil {
				t.Fatal(err)
			}
		}
		return indexer
	}
	pod := func(name, namespace, app, node, ip string, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{NodeName: node},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: ip}}},
		}
		if change != nil {
			change(pod)
		}
		return pod
	}
	pods := index(
		pod("selected", "a", "web", "own", "10.0.0.3", nil),
		pod("selected twice", "a", "db", "own", "10.0.0.2", nil),
		pod("other namespace", "b", "web", "own", "10.0.0.4", nil),
		pod("other node", "a", "web", "other", "10.0.0.5", nil),
		pod("other labels", "a", "none", "own", "10.0.0.6", nil),
		pod("host", "a", "web", "own", "10.0.0.7", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		pod("finished", "a", "web", "own", "10.0.0.8", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("no address yet", "a", "web", "own", "", func(p *corev1.Pod) { p.Status.PodIPs = nil }),
	)
	policy := func(name, app string, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, PolicyTypes: types,
			},
		}
	}
	policies := index(
		policy("web", "web", networkingv1.PolicyTypeEgress),
		policy("db", "db", networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress),
		policy("db again", "db", networkingv1.PolicyTypeEgress),
		policy("ingress", "none", networkingv1.PolicyTypeIngress),
	)
	p := isolatedPods{
		file: filepath.Join(t.TempDir(), "isolated"), node: "own", pods: corelisters.NewPodLister(pods),
		policies: networkinglisters.NewNetworkPolicyLister(policies),
	}
	for range 2 {
		if err := p.write(); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(p.file)
		if err != nil {
			t.Fatal(err)
		}
		if want := "10.0.0.2\n10.0.0.3\n"; string(content) != want {
			t.Errorf("the file contains %q, want %q", content, want)
		}
	}
}
