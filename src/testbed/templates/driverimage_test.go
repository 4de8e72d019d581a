package templates

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/driver"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestPoliciesAllowTheDriverInPods: with the rules of restrict-tenants, which refuse such pods to tenants, the
// controllers of the CSI driver get pods, and its part for nodes on control VMs too.
func TestPoliciesAllowTheDriverInPods(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{
		ControllerManager: true, APIServerFlags: append(admissionFlags(t), "--allow-privileged"),
	})
	client := cluster.Admin()
	taint := corev1.Taint{Key: controlTaint, Effect: corev1.TaintEffectNoSchedule}
	for name, taints := range map[string][]corev1.Taint{"control-plane": {taint}, "worker": nil} {
		if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelOSStable: "linux", "node-role.kubernetes.io/" + name: "",
			}},
			Spec: corev1.NodeSpec{Taints: taints},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	rendered := mustRender(t, "restrict-tenants", inputFor(t, "restrict-tenants"))
	applyRendered(t, cluster, rendered, "10-namespaces.yml", "20-policies.yml")
	about := (&vsphere.Provider{}).About()
	images := map[string]string{}
	names, err := driver.Images(about)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		images[name] = "registry.example/" + name + ":v1"
	}
	m, err := driver.Render(about, driver.Settings{
		Replicas: 2, Images: images, MaxVolumes: 57, Config: cloud.DriverConfig{Files: map[string]string{"f": "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{
		Objects: addonstest.Objects(m.GetResources()), KeepObsolete: true, // of the policies
	})
	eventually.Succeeds(t, time.Minute, "pods of the driver", func() error {
		pods, err := client.CoreV1().Pods(driver.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		count := map[string]int{}
		for _, pod := range pods.Items {
			count[pod.Labels["k8s-app"]]++
		}
		if count["vsphere-csi-node"] != 2 || count["vsphere-csi-controller"] != 2 {
			return fmt.Errorf("there are %v, and the last Events are %s", count, warnings(t, cluster, driver.Namespace))
		}
		return nil
	})
	// They are there: the same gets no pod on the control VM in a namespace of a tenant.
	source, err := client.AppsV1().DaemonSets(driver.Namespace).
		Get(t.Context(), "vsphere-csi-node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(
		t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	same := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "same"}, Spec: *source.Spec.DeepCopy()}
	same.Spec.Template.Spec.ServiceAccountName, same.Spec.Template.Spec.DeprecatedServiceAccount = "", ""
	if _, err := client.AppsV1().DaemonSets("tenant").Create(t.Context(), same, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "the same in another namespace is refused", func() error {
		if text := warnings(t, cluster, "tenant"); !strings.Contains(text, "ValidatingAdmissionPolicy") {
			return errors.New("the Events are: " + text)
		}
		return nil
	})
}

// warnings returns the messages of Events about pods that could not be created.
func warnings(t *testing.T, cluster *kubetest.Cluster, namespace string) string {
	t.Helper()
	events, err := cluster.Admin().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for _, event := range events.Items {
		if event.Reason == "FailedCreate" {
			text += event.Message + "\n"
		}
	}
	return text
}
