package openstacksim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/preflight"
)

const idAnnotation = "loadbalancer.openstack.org/load-balancer-id"

// services are those of a cluster with a cloud controller.
type services struct {
	typedcorev1.ServiceInterface
	t *testing.T
}

func (s services) create(name string, port int32, annotations map[string]string) {
	s.t.Helper()
	if _, err := s.Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// balancers waits until each Service has an address and the id of its load balancer, and returns the ids by name.
func (s services) balancers() map[string]string {
	s.t.Helper()
	ids := map[string]string{}
	eventually.Succeeds(s.t, time.Minute, "load balancers", func() error {
		list, err := s.List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, service := range list.Items {
			id := service.Annotations[idAnnotation]
			if service.Spec.Type == corev1.ServiceTypeLoadBalancer &&
				(id == "" || len(service.Status.LoadBalancer.Ingress) == 0) {
				return fmt.Errorf("%s has none", service.Name)
			}
			ids[service.Name] = id
		}
		return nil
	})
	return ids
}

func (s services) patch(name, patch string) {
	s.t.Helper()
	_, err := s.Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s services) delete(name string) {
	s.t.Helper()
	if err := s.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	eventually.Succeeds(s.t, time.Minute, "a deleted Service", func() error {
		if _, err := s.Get(s.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// TestLeftBehindByCloudController has the real cloud controller leave behind the load balancer of a Service that named
// another one by its id when it was deleted, and, without their finalizers, those of a Service of its own and of one
// that shares. The errand, which asks as the kubelet, names them and nothing that is in use, and its commands delete
// them. In addition to kubetest's requirements it needs COMPONENTS_DIR.
func TestLeftBehindByCloudController(t *testing.T) {
	program := controllerProgram(t)
	api := kubetest.Start(t, kubetest.Options{})
	const groups = "manage-security-groups = true\n"
	b := newBed()
	b.thorough, b.settle = true, 50*time.Millisecond
	b.NodeKubeconfig = api.Kubeconfig("system:node:node-a", "system:nodes")
	b.now = func() time.Time { return time.Now().Add(time.Hour) }
	run := b.start(t)
	kubetest.CreateUninitializedNode(t, api.Admin(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: corev1.NodeSpec{ProviderID: "openstack:///" + b.id},
	})
	stop := startController(
		t, program, cloudConfig(t, b.endpoint, groups), api.Kubeconfig("ccm", "system:masters"),
	)
	s := services{api.Admin().CoreV1().Services("default"), t}
	sweep := func(want ...string) (commands []string) {
		t.Helper()
		outcome, err := run(preflight.Control)
		if err != nil {
			t.Fatal(err)
		}
		got := result(outcome, leftBehindCheck)
		var named []string
		for _, f := range got.Findings {
			named = append(named, f.Resource)
			commands = append(commands, f.Fix[0].Commands...)
		}
		if got.Status == preflight.Skipped || len(named) != len(want) {
			t.Fatalf("%s %s: named are %q, want %q", got.Status, got.Note, named, want)
		}
		for i := range want {
			if !strings.HasPrefix(named[i], want[i]) {
				t.Fatalf("named are %q, want %q", named, want)
			}
		}
		return commands
	}

	s.create("stays", 8081, nil)
	s.create("moved", 8082, nil)
	s.create("released", 8083, nil)
	stays := s.balancers()["stays"]
	sweep()

	s.patch("moved", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, idAnnotation, stays))
	eventually.Succeeds(t, time.Minute, "a load balancer that is shared", func() error {
		for _, balancer := range b.sim.World().LoadBalancers {
			if balancer.ID == stays && slices.Contains(balancer.Tags, "kube_service_prod_default_moved") {
				return nil
			}
		}
		return fmt.Errorf("it lacks the tag of the other Service")
	})
	sweep()
	s.delete("moved")
	sweep("load balancer kube_service_prod_default_moved, floating IP 127.0.101.")

	s.create("part", 8084, map[string]string{idAnnotation: stays})
	s.balancers()
	stop()
	for _, name := range []string{"part", "released"} {
		s.patch(name, `{"metadata": {"finalizers": null}}`)
		s.delete(name)
	}
	commands := sweep(
		"load balancer kube_service_prod_default_moved, floating IP 127.0.101.",
		"its part of the load balancer kube_service_prod_default_stays, which others use, security group lb-sg-",
		"load balancer kube_service_prod_default_released, floating IP 127.0.101.",
	)
	o := newOperator(t, b.endpoint)
	for _, line := range commands {
		if err := o.run(t.Context(), line); err != nil {
			t.Error(err)
		}
	}
	sweep()
	w, tags := b.sim.World(), []string{"kube_service_prod_default_stays"}
	if len(w.LoadBalancers) != 1 || !slices.Equal(w.LoadBalancers[0].Tags, tags) ||
		len(w.Listeners) != 1 || len(w.Pools) != 1 || len(w.FloatingIPs) != 1 || len(w.SecurityGroups) != 2 {
		t.Errorf(
			"left are %+v, %d listeners, %d pools, %d floating IPs, %d security groups", w.LoadBalancers,
			len(w.Listeners), len(w.Pools), len(w.FloatingIPs), len(w.SecurityGroups),
		)
	}
}
