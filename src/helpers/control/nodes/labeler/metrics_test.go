package labeler

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/nodestatus"
)

// TestMetrics compares Nodes in the cache with records. TestNodesCannotRelabelThemselves has labels of a real API.
func TestMetrics(t *testing.T) {
	records := filepath.Join(t.TempDir(), "records.json")
	content := `{"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain"],
		"record_infos": [
		["a", "control", "z1", "private", "kube", "10.0.0.1", "bosh"],
		["b", "worker", "z1", "private", "kube", "10.0.0.2", "bosh"],
		["b", "worker", "z1", "storage", "kube", "10.1.0.2", "bosh"],
		["c", "worker", "z1", "private", "kube", "10.0.0.3", "bosh"],
		["d", "etcd", "z1", "private", "kube", "10.0.0.4", "bosh"],
		["e", "worker", "z1", "private", "other", "10.0.0.5", "bosh"]]}`
	if err := os.WriteFile(records, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	keeper := NewKeeper(
		client, &Instances{Deployment: deployment("kube", records)}, slog.New(slog.DiscardHandler),
	)
	for name, labels := range map[string]map[string]string{
		"control":  {"bosh.io/instance-group": "control", "bosh.io/instance-id": "a"},
		"worker":   {"bosh.io/instance-group": "worker", "bosh.io/instance-id": "b"},
		"deleted":  {"bosh.io/instance-group": "worker", "bosh.io/instance-id": "gone"},
		"stranger": {"bosh.io/instance-group": "worker", "bosh.io/instance-id": "e"},
		"unknown":  {},
	} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if name == "unknown" {
			object.Spec.Taints = []corev1.Taint{{Key: nodestatus.UninitializedTaint}}
		}
		if err := keeper.informer().GetIndexer().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	var text exposition.Text
	if keeper.WriteMetrics(&text); text.String() != "" {
		t.Errorf("before the Nodes are known:\n%s", &text)
	}
	keeper.writeMetrics(&text)
	var got []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimPrefix(strings.TrimSpace(line), "kubernetes_bosh_"))
		}
	}
	want := []string{
		`node_has_instance{node="control"} 1`,
		`node_has_instance{node="deleted"} 0`,
		`node_has_instance{node="stranger"} 0`,
		`node_has_instance{node="unknown"} 0`,
		`node_has_instance{node="worker"} 1`,
		`node_initialized{node="control"} 1`,
		`node_initialized{node="deleted"} 1`,
		`node_initialized{node="stranger"} 1`,
		`node_initialized{node="unknown"} 0`,
		`node_initialized{node="worker"} 1`,
		`instance_has_node{instance_group="control",instance_id="a"} 1`,
		`instance_has_node{instance_group="worker",instance_id="b"} 1`,
		`instance_has_node{instance_group="worker",instance_id="c"} 0`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := os.Remove(records); err != nil {
		t.Fatal(err)
	}
	text = exposition.Text{}
	if keeper.writeMetrics(&text); text.String() != "" {
		t.Errorf("without records:\n%s", &text)
	}
}
