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

const (
	targetsPolicy = "load-balancer-targets.kubernetes.bosh.io"

	annotatedService = `
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, annotations: {%s}}
spec: {type: LoadBalancer, loadBalancerClass: service.k8s.aws/nlb, ports: [{port: 80}]}
`
	annotatedIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %s, namespace: default, annotations: {%s}}
spec: {ingressClassName: alb, defaultBackend: {service: {name: pods, port: {number: 8080}}}}
`
	classParameters = `
apiVersion: elbv2.k8s.aws/v1beta1
kind: IngressClassParams
metadata: {name: parameters}
spec: {%s}
`
	targetGroupConfiguration = `
apiVersion: gateway.k8s.aws/v1beta1
kind: TargetGroupConfiguration
metadata: {name: pods, namespace: default}
spec: {targetReference: {name: pods}, %s}
`
	ofIngress = "alb.ingress.kubernetes.io/target-type: "
	ofService = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type: "
	ofType    = "service.beta.kubernetes.io/aws-load-balancer-type: "
)

// allowPodTargets removes the policy on targets, as pod_targets does.
func (b *balancers) allowPodTargets() {
	b.Helper()
	b.mustKubectl("", "delete", "validatingadmissionpolicybinding", targetsPolicy)
	eventually.Succeeds(b, 30*time.Second, "without the policy, an Ingress with pods as targets", func() error {
		return b.try(fmt.Sprintf(annotatedIngress, "allowed", ofIngress+"ip"))
	})
}

// try writes an object in a dry run.
func (b *balancers) try(manifest string) error {
	_, err := b.kubectl(manifest, "apply", "--dry-run=server", "-f", "-")
	return err
}

// TestPodTargets: the controller registers pods without addresses of the VPC, but opens nothing for them, and only a
// TargetGroupBinding has an Event. The policy refuses such targets before, wherever they can be named.
func TestPodTargets(t *testing.T) {
	b := startBalancers(t, "enable-gateway-api.yml")
	b.startController()
	b.service("pods", nil)
	b.AwaitPolicies()
	annotation := func(name string) string { return "annotation " + strings.TrimSuffix(name, ": ") + ":" }
	const defaults = "spec.defaultConfiguration.targetType:"
	const ofRoutes = "spec.routeConfigurations.targetGroupProps.targetType:"
	for manifest, word := range map[string]string{
		fmt.Sprintf(annotatedIngress, "a", ofIngress+"ip"):  annotation(ofIngress),
		fmt.Sprintf(annotatedService, "a", ofIngress+"ip"):  annotation(ofIngress),
		fmt.Sprintf(annotatedService, "a", ofService+"ip"):  annotation(ofService),
		fmt.Sprintf(annotatedService, "a", ofType+"nlb-ip"): "aws-load-balancer-type: nlb-ip:",
		fmt.Sprintf(classParameters, "targetType: ip"):      "spec.targetType:",
		fmt.Sprintf(
			targetGroupConfiguration, "defaultConfiguration: {targetType: ip}",
		): defaults,
		fmt.Sprintf(targetGroupConfiguration, `routeConfigurations: [{routeIdentifier: {kind: HTTPRoute},
			targetGroupProps: {targetType: ip}}]`): ofRoutes,
	} {
		if err := b.try(manifest); err == nil || !strings.Contains(err.Error(), targetsPolicy) ||
			!strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "use instance, with Services") {
			t.Errorf("want a refusal with %q: %v\n%s", word, err, manifest)
		}
	}
	for _, manifest := range []string{
		fmt.Sprintf(annotatedIngress, "b", ofIngress+"instance"), fmt.Sprintf(annotatedIngress, "b", ""),
		fmt.Sprintf(annotatedService, "b", ofType+"external, "+ofService+"instance"),
		fmt.Sprintf(classParameters, "targetType: instance"), fmt.Sprintf(classParameters, "scheme: internal"),
		fmt.Sprintf(targetGroupConfiguration, "defaultConfiguration: {targetType: instance}"),
	} {
		if err := b.try(manifest); err != nil {
			t.Errorf("%v\n%s", err, manifest)
		}
	}

	b.allowPodTargets()
	b.pod("10.244.0.5")
	b.mustKubectl(fmt.Sprintf(annotatedIngress, "pods", ofIngress+"ip"), "apply", "-f", "-")
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

	// What is older than the policy can change otherwise.
	b.mustKubectl(fmt.Sprintf(annotatedIngress, "old", ofIngress+"ip"), "apply", "-f", "-")
	b.mustKubectl(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: `+targetsPolicy+`}
spec: {policyName: `+targetsPolicy+`, validationActions: [Deny]}
`, "apply", "-f", "-")
	eventually.Succeeds(t, 30*time.Second, "the policy again", func() error {
		if err := b.try(fmt.Sprintf(annotatedIngress, "new", ofIngress+"ip")); err == nil {
			return errors.New("an Ingress with pods as targets was accepted")
		}
		return nil
	})
	b.mustKubectl("", "annotate", "ingress", "old", "example.com/note=a")
	b.mustKubectl("", "delete", "ingress", "old")
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
