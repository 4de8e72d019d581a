package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// portLabel and NAME.PROTOCOL.NUMBER is a label that the controller and this command see, of pods with such a port.
	// The controller sees no ports: of pods that share one it keeps all addresses with each of their ports
	// (grabNamedPortFromPod in pkg/controllers/netpol/policy.go of kube-router), and would open a port of one that
	// only another has by the name. It also looks at each port of each pod for each policy, also if none is named.
	portLabel = "port.network-policy.kubernetes.bosh.io/"
	// maxPorts is how many ports of a pod can be named, so that pods with thousands do not use up the memory of nodes.
	maxPorts = 1000
)

// endpoint is a port of pods.
type endpoint struct {
	name     string
	protocol corev1.Protocol
	number   int32
}

func (p endpoint) label() string {
	return portLabel + p.name + "." + string(p.protocol) + "." + strconv.Itoa(int(p.number))
}

func (p endpoint) port() networkingv1.NetworkPolicyPort {
	number := intstr.FromInt32(p.number)
	return networkingv1.NetworkPolicyPort{Protocol: &p.protocol, Port: &number}
}

func (p endpoint) compare(o endpoint) int {
	return cmp.Or(
		cmp.Compare(p.name, o.name), cmp.Compare(p.protocol, o.protocol), cmp.Compare(p.number, o.number),
	)
}

// withPorts returns the labels of a pod, and those of its ports. Its own cannot be such.
func withPorts(pod *corev1.Pod) map[string]string {
	labels := map[string]string{}
	for key, value := range pod.Labels {
		if !strings.HasPrefix(key, portLabel) {
			labels[key] = value
		}
	}
	count := 0
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			label := endpoint{port.Name, port.Protocol, port.ContainerPort}.label()
			if _, seen := labels[label]; port.Name != "" && !seen && count < maxPorts {
				labels[label] = ""
				count++
			}
		}
	}
	return labels
}

// parseEndpoint returns the port of a label.
func parseEndpoint(label string) (endpoint, bool) {
	text, ok := strings.CutPrefix(label, portLabel)
	parts := strings.Split(text, ".")
	if !ok || len(parts) != 3 {
		return endpoint{}, false
	}
	number, err := strconv.ParseInt(parts[2], 10, 32)
	return endpoint{parts[0], corev1.Protocol(parts[1]), int32(number)}, err == nil
}

// portsOf returns the ports of a pod that have names.
func (c *cluster) portsOf(pod *corev1.Pod) []endpoint {
	ports, known := c.ports[pod]
	if !known {
		for label := range pod.Labels {
			if port, ok := parseEndpoint(label); ok {
				ports = append(ports, port)
			}
		}
		c.ports[pod] = ports
	}
	return ports
}

// namedPorts are the ports of some pods, with how many of the pods have each.
type namedPorts struct {
	pods   int
	counts map[networkPort]map[endpoint]int
}

type networkPort struct {
	name     string
	protocol corev1.Protocol
}

// named looks at the ports of pods.
func (e *evaluation) named(pods []*corev1.Pod) namedPorts {
	of := namedPorts{len(pods), map[networkPort]map[endpoint]int{}}
	for _, pod := range pods {
		ports := e.portsOf(pod)
		if e.spent.looked += 1 + len(ports); e.exceeded() != "" {
			return of
		}
		for _, port := range ports {
			key := networkPort{port.name, port.protocol}
			if of.counts[key] == nil {
				of.counts[key] = map[endpoint]int{}
			}
			of.counts[key][port]++
		}
	}
	return of
}

// split returns the ports of a rule with numbers, among them those that all pods have by a name, and the ports that
// some of the pods have. A pod that comes before the controller reads them may be one more without the port, until the
// next sync, which it causes.
func split(ports []networkingv1.NetworkPolicyPort, pods func() namedPorts) (
	all []networkingv1.NetworkPolicyPort, some map[endpoint]int,
) {
	some = map[endpoint]int{}
	seen := map[networkPort]bool{}
	for _, port := range ports {
		if !hasName(port) {
			all = append(all, port)
			continue
		}
		key := networkPort{port.Port.StrVal, corev1.ProtocolTCP}
		if port.Protocol != nil {
			key.protocol = *port.Protocol
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		of := pods()
		for _, found := range ordered(of.counts[key]) {
			if count := of.counts[key][found]; count == of.pods {
				all = append(all, found.port())
			} else {
				some[found] = count
			}
		}
	}
	return all, some
}

func ordered(ports map[endpoint]int) []endpoint {
	return slices.SortedFunc(maps.Keys(ports), endpoint.compare)
}

// having is a selector of those pods that also have a port.
func having(selector *metav1.LabelSelector, port endpoint) *metav1.LabelSelector {
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{
		MatchLabels: selector.MatchLabels,
		MatchExpressions: append(slices.Clone(selector.MatchExpressions), metav1.LabelSelectorRequirement{
			Key: port.label(), Operator: metav1.LabelSelectorOpExists,
		}),
	}
}
