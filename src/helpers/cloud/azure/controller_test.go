package azure

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/cloud/controller"
	"kubernetes-release/cloud/controller/controllertest"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/node"
)

// TestCloudNodeManagerInPods has the real cloud-node-manager, which initializes Nodes on Azure, do so with the name
// that the VM joined with, and with the arguments, the permissions and the admission policy of the release's manifests.
// In addition to kubetest's requirements it needs AZURE_CLOUD_NODE_MANAGER_BIN.
func TestCloudNodeManagerInPods(t *testing.T) {
	program := os.Getenv("AZURE_CLOUD_NODE_MANAGER_BIN")
	if program == "" {
		t.Skip("needs the real cloud-node-manager: set AZURE_CLOUD_NODE_MANAGER_BIN")
	}
	cluster := startWithManifests(t)
	// It looks at the first network interface only.
	p := serve(t, 0, strings.NewReplacer("10.1.0.5", "10.0.0.5", "10.0.0.5", "10.1.0.5").Replace(answer))
	id, err := p.Identify(t.Context(), node.VM{Address: "10.0.0.5"})
	if err != nil {
		t.Fatal(err)
	}
	set, err := cluster.Admin().AppsV1().DaemonSets(controller.Namespace).
		Get(t.Context(), "cloud-node-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := cluster.Kubeconfig("kubernetes-admin", "system:masters")
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range kubeconfig.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = nodeManager.UserName, nodeManager.Groups
		user.ImpersonateUserExtra = nodeManager.Extra
	}
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"--kubeconfig=" + path}
	for _, argument := range set.Spec.Template.Spec.Containers[0].Args {
		arguments = append(arguments, strings.ReplaceAll(argument, "$(NODE_NAME)", id.Name))
	}
	command := exec.Command(program, arguments...)
	// The proxy is the metadata service.
	command.Env = []string{"HOME=" + t.TempDir(), "NODE_NAME=" + id.Name, "HTTP_PROXY=" + p.MetadataEndpoint}
	log, _ := kubetest.StartProgram(t, command)
	n := kubetest.AwaitInitialized(t, cluster.Admin(), id.Name, id.ProviderID, id.Address)
	if n.Labels[corev1.LabelTopologyZone] != id.Zone || n.Labels[corev1.LabelTopologyRegion] != id.Region ||
		n.Labels[corev1.LabelInstanceTypeStable] != "Standard_D2s_v5" {
		t.Errorf("the labels are %v", n.Labels)
	}
	controllertest.CheckPermissions(t, log)
}
