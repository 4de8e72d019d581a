package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// podNaming is a pod with these ports.
func podNaming(namespace, name, ip string, ports map[string]int32) *corev1.Pod {
	pod := podWithPorts(namespace, name, ip)
	var container corev1.Container
	for name, number := range ports {
		container.Ports = append(container.Ports, corev1.ContainerPort{
			Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP,
		})
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

// permitted returns the addresses to which the rules of policies permit connections at a port, sorted.
func permitted(rules, sets string, port int) []string {
	filled, members := map[string][]string{}, map[string][]string{} // a set is filled under another name, and swapped
	for _, line := range strings.Split(sets, "\n") {
		switch fields := strings.Fields(line); {
		case len(fields) > 1 && fields[0] == "flush":
			filled[fields[1]] = nil
		case len(fields) > 2 && fields[0] == "add":
			filled[fields[1]] = append(filled[fields[1]], fields[2])
		case len(fields) > 2 && fields[0] == "swap":
			members[fields[2]] = filled[fields[1]]
		}
	}
	var addresses []string
	rule := regexp.MustCompile(fmt.Sprintf(`(?m)^-A KUBE-NWPLCY-.* --dport %d .*RETURN`, port))
	destination := regexp.MustCompile(`--match-set (\S+) dst`)
	for _, line := range rule.FindAllString(rules, -1) {
		set := destination.FindStringSubmatch(line)
		if set == nil {
			addresses = append(addresses, "everywhere")
			continue
		}
		addresses = append(addresses, members[set[1]]...)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// TestNamesOpenThePodsThatHaveThem are pods that share a port, only some of which have another: a policy that permits
// this one by its name opened it on all of them, because the controller keeps the addresses of the ports of a pod in
// one list. For egress it opened ports to all destinations, if a rule has none.
func TestNamesOpenThePodsThatHaveThem(t *testing.T) {
	objects := []kruntime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}}
	var both []string
	for i := range 9 { // the controller takes the list of the first pod, whichever that is
		both = append(both, fmt.Sprintf("10.200.0.%d", i+1))
		ports := map[string]int32{"web": 80, "admin": 9000}
		objects = append(objects, podNaming("team", fmt.Sprint("both", i), both[i], ports))
	}
	const web, other = "10.200.1.1", "10.200.1.2"
	objects = append(
		objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dns"}},
		podNaming("dns", "dns", "10.200.1.3", map[string]int32{"dns": 53}),
		podNaming("team", "web", web, map[string]int32{"web": 80}),
		podNaming("team", "other", other, map[string]int32{"web": 81}),
	)
	named := func(names ...string) (ports []networkingv1.NetworkPolicyPort) {
		for _, name := range names {
			ports = append(ports, networkPortOf(intstr.FromString(name)))
		}
		return ports
	}
	egress := func(to ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
		policy := ingressPolicy("team", "egress", nil)
		policy.Spec.PolicyTypes, policy.Spec.Ingress = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, nil
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: to, Ports: named("admin", "web", "dns")}}
		return policy
	}
	block := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}
	one := ingressPolicy("team", "one", named("web"))
	one.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for what, test := range map[string]struct {
		policy *networkingv1.NetworkPolicy
		want   map[int][]string
	}{
		"ingress": {ingressPolicy("team", "admin", named("admin")), map[int][]string{9000: both, 80: nil}},
		"ingress from peers": {
			ingressPolicy("team", "admin", named("admin"), everywhere()), map[int][]string{9000: both},
		},
		"ingress from a block": {ingressPolicy("team", "admin", named("admin"), block), map[int][]string{9000: both}},
		"two names": {
			ingressPolicy("team", "two", named("web", "admin", "web")),
			map[int][]string{9000: both, 80: append(slices.Clone(both), web), 81: {other}},
		},
		"a name and a number": {
			ingressPolicy("team", "two", append(named("admin"), networkPortOf(intstr.FromInt32(7)))),
			map[int][]string{9000: both, 7: append(slices.Clone(both), web, other)},
		},
		"a pod alone": {one, map[int][]string{80: {web}, 81: nil}},
		"egress to pods": {
			egress(everywhere()),
			map[int][]string{9000: both, 80: append(slices.Clone(both), web), 81: {other}, 53: {"10.200.1.3"}},
		},
		"egress":           {egress(), map[int][]string{9000: both, 81: {other}, 53: {"10.200.1.3"}}},
		"egress to blocks": {egress(everywhere(), block), map[int][]string{9000: both, 81: {other}}},
	} {
		t.Run(what, func(t *testing.T) {
			rules, sets := written(t, append(slices.Clone(objects), test.policy)...)
			for port, want := range test.want {
				if got := permitted(rules, sets, port); !slices.Equal(got, want) {
					t.Errorf("port %d is open to %v, want %v", port, got, want)
				}
			}
		})
	}
}

// TestPortsOfPodsCostLittle is a tenant whose pods have thousands of ports with names, and a policy for each of them
// that names none, or one: the controller looked at each port of each pod for each policy, and kept all in memory.
func TestPortsOfPodsCostLittle(t *testing.T) {
	objects := []kruntime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}}
	for i := range 100 {
		pod := podWithPorts("team", fmt.Sprint("web", i), fmt.Sprintf("10.200.0.%d", i+1))
		for j := range 8 {
			var container corev1.Container
			for k := range 1000 {
				container.Ports = append(container.Ports, corev1.ContainerPort{
					Name: fmt.Sprint("p", k), ContainerPort: int32(1 + 1000*j + k), Protocol: corev1.ProtocolTCP,
				})
			}
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
		objects = append(objects, pod)
	}
	stored, err := withoutUnused(objects[1])
	if err != nil {
		t.Fatal(err)
	}
	if pod, ok := stored.(*corev1.Pod); !ok || len(pod.Labels) != 1+maxPorts || len(pod.Spec.Containers) > 0 {
		t.Errorf("a pod with 8000 ports has %d labels and %d containers", len(pod.Labels), len(pod.Spec.Containers))
	}
	plain := ingressPolicy("team", "plain", []networkingv1.NetworkPolicyPort{networkPortOf(intstr.FromInt32(80))})
	for i := range 40 {
		policy := plain.DeepCopy()
		policy.Name, policy.CreationTimestamp = fmt.Sprint("plain", i), metav1.Unix(int64(i), 0)
		objects = append(objects, policy)
	}
	measured(t, "40 policies for 100 pods", func() {
		if rules, _ := written(t, objects...); !strings.Contains(rules, "--dport 80 ") {
			t.Error("port 80 has no rule")
		}
	})
	var ports []networkingv1.NetworkPolicyPort
	for range 100 {
		ports = append(ports, networkPortOf(intstr.FromString("p1")))
	}
	for i := range 100 { // the labels of 100 pods are 100,000, and can be looked at fifty times
		policy := ingressPolicy("team", fmt.Sprint("named", i), ports)
		policy.CreationTimestamp = metav1.Unix(int64(100+i), 0)
		objects = append(objects, policy)
	}
	seen, log := listed(t, objects...)
	wantRules(t, seen, map[string]bool{"team/plain0": true, "team/named0": true, "team/named99": false})
	if !strings.Contains(log, "labels and named ports") {
		t.Errorf("the log has %q", log)
	}
}

// TestLabelsOfPortsAreNotTheTenants is a tenant whose pod has the label of a port that it does not have.
func TestLabelsOfPortsAreNotTheTenants(t *testing.T) {
	pod := podWithPorts("team", "web", "10.200.0.2", 80)
	pod.Labels[endpoint{"admin", corev1.ProtocolTCP, 22}.label()] = ""
	rules, sets := written(
		t, pod, ingressPolicy("team", "web", []networkingv1.NetworkPolicyPort{
			networkPortOf(intstr.FromString("admin")), networkPortOf(intstr.FromString("web")),
		}),
	)
	if got := permitted(rules, sets, 22); len(got) > 0 {
		t.Errorf("port 22 is open to %v", got)
	}
	if got := permitted(rules, sets, 80); len(got) != 1 {
		t.Errorf("port 80 is open to %v", got)
	}
}
