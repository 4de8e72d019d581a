package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// isolatedPods keeps a file with the addresses of this node's pods that policies for egress select. The job
// node-local-dns reads it: it answers queries on the node, where the rules of these policies, which are for forwarded
// packets, do not see them.
type isolatedPods struct {
	file, node string
	pods       corelisters.PodLister
	policies   networkinglisters.NetworkPolicyLister
	// changed has an element when the file may be out of date.
	changed chan struct{}
}

// handler notes each change.
func (p isolatedPods) handler() cache.ResourceEventHandler {
	note := func() {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { note() }, UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() },
	}
}

// keep writes the file whenever it changes, until ctx ends. It stays then, as the rules do.
func (p isolatedPods) keep(ctx context.Context) {
	for {
		if err := p.write(); err != nil {
			klog.Errorf("Pods with policies for egress: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		}
		select { // many changes come together
		case <-ctx.Done():
			return
		case <-time.After(readyInterval):
		}
	}
}

// write replaces the file if it is out of date.
func (p isolatedPods) write() error {
	addresses, err := p.addresses()
	if err != nil {
		return err
	}
	content := []byte(strings.Join(append(addresses, ""), "\n"))
	if old, err := os.ReadFile(p.file); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.WriteFile(p.file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(p.file+".new", p.file)
}

// addresses returns the addresses, sorted.
func (p isolatedPods) addresses() ([]string, error) {
	policies, err := p.policies.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, policy := range policies {
		if !forEgress(policy) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil {
			return nil, err
		}
		pods, err := p.pods.Pods(policy.Namespace).List(selector)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			if pod.Spec.NodeName != p.node || pod.Spec.HostNetwork || finished(pod) {
				continue
			}
			for _, ip := range pod.Status.PodIPs {
				addresses = append(addresses, ip.IP)
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// forEgress is what the API server's default for policyTypes says too.
func forEgress(policy *networkingv1.NetworkPolicy) bool {
	return slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// finished reports whether another pod can have the address.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
