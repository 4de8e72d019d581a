package templates

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// counted are what kube-state-metrics 2.18.0, which prometheus-boshrelease has, lists and watches by default
// (DefaultResources of pkg/options/resource.go, in the versions of internal/store), except Secrets and ConfigMaps.
var counted = []string{
	"/api/v1/limitranges", "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/persistentvolumeclaims",
	"/api/v1/persistentvolumes", "/api/v1/pods", "/api/v1/replicationcontrollers", "/api/v1/resourcequotas",
	"/api/v1/services",
	"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
	"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
	"/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/apis/apps/v1/statefulsets",
	"/apis/autoscaling/v2/horizontalpodautoscalers",
	"/apis/batch/v1/cronjobs", "/apis/batch/v1/jobs",
	"/apis/certificates.k8s.io/v1/certificatesigningrequests",
	"/apis/coordination.k8s.io/v1/leases",
	"/apis/discovery.k8s.io/v1/endpointslices",
	"/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/networkpolicies",
	"/apis/policy/v1/poddisruptionbudgets",
	"/apis/storage.k8s.io/v1/storageclasses", "/apis/storage.k8s.io/v1/volumeattachments",
}

// TestRoleOfKubeStateMetrics requests what kube-state-metrics does, with its role of config/prometheus.
// A version of an API that Kubernetes no longer has is not found.
func TestRoleOfKubeStateMetrics(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	kubeStateMetricsRole(t, cluster)
	user := cluster.ClientFor("kube-state-metrics").Discovery().RESTClient()
	eventually.Succeeds(t, 30*time.Second, "waiting for the role", func() error {
		return begin(t, user, counted[0], false)
	})
	for _, path := range counted {
		for _, watch := range []bool{false, true} {
			if err := begin(t, user, path, watch); err != nil {
				t.Errorf("%s, watch %v: %v", path, watch, err)
			}
		}
	}
	for _, path := range []string{"/api/v1/secrets", "/api/v1/configmaps", "/apis/rbac.authorization.k8s.io/v1/roles"} {
		kubetest.MustForbid(t, path, begin(t, user, path, false))
	}
}

// begin lists or watches, and reads no more than the status of the answer.
func begin(t *testing.T, user rest.Interface, path string, watch bool) error {
	t.Helper()
	request := user.Get().AbsPath(path)
	if watch {
		request = request.Param("watch", "true")
	}
	body, err := request.Stream(t.Context())
	if err != nil {
		return err
	}
	return body.Close()
}

// kubeStateMetricsRole creates the ClusterRole of config/prometheus and its binding.
func kubeStateMetricsRole(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	role, err := os.ReadFile(filepath.Join(root, "config/prometheus/rbac-kube-state-metrics.yml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := addons.Load([]string{addonstest.Dir(t, map[string][]byte{"role.yml": role})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{Objects: objects})
}
