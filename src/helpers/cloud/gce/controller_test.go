package gce

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/cloud/controller/controllertest"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/node"
)

// TestCloudControllerManagerInPods has Google's code initialize the Nodes of VMs that node-controller has found, with
// the arguments, the configuration and the permissions of the release's manifests. In its own zone it looks for the
// name of the Node, and writes the provider ID that node-controller would; elsewhere it needs that provider ID. In
// addition to kubetest's requirements the test needs GCE_CLOUD_CONTROLLER_MANAGER_BIN.
func TestCloudControllerManagerInPods(t *testing.T) {
	program := os.Getenv("GCE_CLOUD_CONTROLLER_MANAGER_BIN")
	if program == "" {
		t.Skip("needs the cloud controller: set GCE_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	api := kubetest.Start(t, kubetest.Options{})
	nodes := api.Admin().CoreV1().Nodes()
	p := &Provider{
		MetadataEndpoint: serve(t, healthy().with(service{
			"instance/network-interfaces/0/network": "projects/123456/networks/default",
		})),
		ComputeEndpoint: serve(t, &compute{t: t, vms: []vm{
			machine(vmName, "europe-west1-b", instance, "10.0.0.7"),
			machine("vm-far", "europe-west1-c", "far", "10.0.0.8"),
		}}),
	}
	config := filepath.Join(t.TempDir(), "cloud.conf")
	text := "[global]\napi-endpoint = " + p.ComputeEndpoint + "/compute/v1/\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, controllertest.InPods(t, api, p.About(), config, nil)...)
	command.Env = []string{
		"HOME=" + t.TempDir(), "GCE_METADATA_HOST=" + strings.TrimPrefix(p.MetadataEndpoint, "http://"),
	}
	log, _ := kubetest.StartProgram(t, command)
	for id, want := range map[string]struct{ address, zone string }{
		instance: {"10.0.0.7", "europe-west1-b"}, "far": {"10.0.0.8", "europe-west1-c"},
	} {
		location, err := p.NewLocator(config).Locate(t.Context(), node.Instance{
			ID: id, Addresses: []netip.Addr{netip.MustParseAddr(want.address)},
		})
		if err != nil {
			t.Fatal(err)
		}
		kubetest.CreateUninitializedNode(t, api.Admin(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: location.Node, Annotations: map[string]string{"alpha.kubernetes.io/provided-node-ip": want.address},
		}})
		if id == "far" {
			patch := fmt.Appendf(nil, `{"spec": {"providerID": %q}}`, location.ProviderID)
			if _, err := nodes.Patch(
				t.Context(), location.Node, types.MergePatchType, patch, metav1.PatchOptions{},
			); err != nil {
				t.Fatal(err)
			}
		}
		n := kubetest.AwaitInitialized(t, api.Admin(), location.Node, location.ProviderID, want.address)
		if n.Labels[corev1.LabelTopologyZone] != want.zone || n.Labels[corev1.LabelTopologyRegion] != "europe-west1" ||
			n.Labels[corev1.LabelInstanceTypeStable] != "e2-small" {
			t.Errorf("%s has the labels %v", n.Name, n.Labels)
		}
	}
	controllertest.CheckPermissions(t, log)
}
