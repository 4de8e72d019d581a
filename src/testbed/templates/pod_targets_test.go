package templates

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// TestPodTargets: without addresses of the VPC, the controller registers pods as targets and opens nothing for them.
// Only a TargetGroupBinding has an Event, as docs/load-balancers.md says.
func TestPodTargets(t *testing.T) {
	b := startBalancers(t)
	b.startController()
	b.service("pods", nil)
	b.pod("10.244.0.5")
	b.mustKubectl(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: pods, namespace: default, annotations: {alb.ingress.kubernetes.io/target-type: ip}}
spec: {ingressClassName: alb, defaultBackend: {service: {name: pods, port: {number: 8080}}}}
`, "apply", "-f", "-")
	b.hostOf("the Ingress", b.ingressHost("pods"))
	eventually.Succeeds(t, time.Minute, "the pod is a target", func() error {
		for _, g := range b.sim.World().TargetGroups {
			if slices.ContainsFunc(g.Targets, func(t store.GroupTarget) bool { return t.ID == "10.244.0.5" }) {
				return nil
			}
		}
		return fmt.Errorf("%+v", b.sim.World().TargetGroups)
	})
	eventually.Succeeds(t, time.Minute, "an Event of the TargetGroupBinding", func() error {
		const path = `{range .items[*]}{.involvedObject.kind} {.reason} {.message}{"\n"}{end}`
		events, err := b.kubectl("", "get", "events", "-o", "jsonpath="+path)
		if err == nil && !strings.Contains(events, "TargetGroupBinding FailedNetworkReconcile") {
			err = errors.New(events)
		}
		return err
	})
	w := b.sim.World()
	if rules := store.Find(w.SecurityGroups, awssim.LabSecurityGroup).Ingress; len(rules) != 1 {
		t.Errorf("the nodes' group admits %+v: the load balancer reaches pods after all", rules)
	}
	b.mustKubectl("", "delete", "ingress", "pods")
	b.empty()
}

// pod is a ready pod of the Service pods, with this address.
func (b *balancers) pod(address string) {
	b.Helper()
	if _, err := b.client.CoreV1().ServiceAccounts("default").Create(
		b.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{},
	); err != nil {
		b.Fatal(err)
	}
	pod, err := b.client.CoreV1().Pods("default").Create(b.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Labels: map[string]string{"app": "pods"}},
		Spec:       corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
	}
	if _, err := b.client.CoreV1().Pods("default").UpdateStatus(b.Context(), pod, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	port, ready := int32(80), true
	name := ""
	if _, err := b.client.DiscoveryV1().EndpointSlices("default").Create(b.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "pods", Labels: map[string]string{discoveryv1.LabelServiceName: "pods"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			NodeName:  &pod.Spec.NodeName,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod", UID: pod.UID},
		}},
	}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}
