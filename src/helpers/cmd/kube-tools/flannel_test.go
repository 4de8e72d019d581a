package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/nodestatus"
)

// TestFlannelIsNotStartedApartFromOtherNodes is a VM with the address 127.0.0.1, which has no other in its subnet.
func TestFlannelIsNotStartedApartFromOtherNodes(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	for name, address := range map[string]string{"control-00000001": "127.0.0.1", "other": "192.0.2.7"} {
		if _, err := cluster.Admin().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{nodestatus.AddressesLabel: address},
			},
			Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24"}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	identity := write("node.json", `{"instance_group": "control", "instance_id": "00000001-0000-4000-8000-000000000001",
		"address": "127.0.0.1"}`)
	for backend, want := range map[string]string{"host-gw": "Node other (192.0.2.7)", "alloc": ""} {
		config := write("net-conf.json", fmt.Sprintf(
			`{"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"Type": %q}}`, backend,
		))
		code, _, stderr := run(
			t, "prepare-flannel", "--node", identity, "--config", config,
			"--kubeconfig", cluster.Kubeconfig("flannel", "system:masters"),
		)
		if (code != 0) != (want != "") || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d: %s", backend, code, stderr)
		}
	}
}
