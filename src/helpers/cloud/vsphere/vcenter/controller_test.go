package vcenter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/cloud/controller"
	"kubernetes-release/cloud/controller/controllertest"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestCloudControllerManagerInPods has the real cloud controller manager initialize a Node, with vcsim as its
// vCenter, and with the arguments, the configuration and the permissions of the release's manifests. In addition to
// kubetest's requirements it needs VSPHERE_CLOUD_CONTROLLER_MANAGER_BIN.
func TestCloudControllerManagerInPods(t *testing.T) {
	program := os.Getenv("VSPHERE_CLOUD_CONTROLLER_MANAGER_BIN")
	if program == "" {
		t.Skip("needs the real cloud controller: set VSPHERE_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	api := kubetest.Start(t, kubetest.Options{})
	client := api.Admin()
	w := newWorld(t)
	w.start()
	host, port, err := net.SplitHostPort(w.address)
	if err != nil {
		t.Fatal(err)
	}
	// As the ops-file sets it.
	w.config["server"], w.config["port"], w.config["thumbprint"] = host, json.RawMessage(port), w.thumb
	content, err := json.Marshal(map[string]any{"vcenter": map[string]any{"vc": w.config}})
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "cloud.conf")
	if err := os.WriteFile(conf, content, 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := controllertest.InPods(t, api, (&vsphere.Provider{}).About(), conf, func(s *controller.Settings) {
		s.LogLevel = 4
	})
	// As in a cluster: kubelet may not set the provider ID, and node-controller sets what vCenter says.
	uninitializedNode(t, client, "worker-0a1b2c3d")
	log := start(t, program, arguments)
	eventually.Succeeds(t, time.Minute, "the cloud controller has seen the Node", func() error {
		text, err := os.ReadFile(log)
		if err == nil && !strings.Contains(string(text), "worker-0a1b2c3d") {
			err = errors.New("not in its log")
		}
		return err
	})
	setAttributes(w.vm, ofInstance())
	location, err := w.locate()
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"spec": {"providerID": %q}}`, location.ProviderID)
	if _, err := client.CoreV1().Nodes().Patch(
		t.Context(), "worker-0a1b2c3d", ktypes.MergePatchType, []byte(patch), metav1.PatchOptions{},
	); err != nil {
		t.Fatal(err)
	}
	n := kubetest.AwaitInitialized(t, client, "worker-0a1b2c3d", "vsphere://"+vmUUID, address)
	if n.Labels[corev1.LabelInstanceTypeStable] == "" {
		t.Errorf("labels %v", n.Labels)
	}
	// It lists the Secrets of all namespaces, for a password of NSX-T, which the manifests do not let it.
	controllertest.CheckPermissions(t, log, `cannot list resource "secrets"`, "secrets is forbidden")
}

// uninitializedNode creates the Node of the VM. The controller looks for a VM only when it sees a new Node.
func uninitializedNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	kubetest.CreateUninitializedNode(t, client, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"alpha.kubernetes.io/provided-node-ip": address},
		},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{SystemUUID: "56492e42-22ad-3911-6d72-59cc8f26bc90"},
		},
	})
}

// start starts the program and returns the path of its log.
func start(t *testing.T, program string, arguments []string) (log string) {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Env = []string{"HOME=" + t.TempDir()}
	log, _ = kubetest.StartProgram(t, command)
	return log
}
