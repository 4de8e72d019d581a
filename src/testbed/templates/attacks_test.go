package templates

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// attack is a request that must be refused.
type attack struct {
	who, what string
	verb      string // of HTTP; PATCH is a merge patch
	path      string
	body      string
}

// send makes a request as this client.
func send(ctx context.Context, client kubernetes.Interface, a attack) error {
	request := client.CoreV1().RESTClient().Verb(a.verb).RequestURI(a.path)
	if a.body != "" {
		contentType := "application/json"
		if a.verb == "PATCH" {
			contentType = "application/merge-patch+json"
		}
		request = request.SetHeader("Content-Type", contentType).Body([]byte(a.body))
	}
	return request.Do(ctx).Error()
}

// podBody is a pod with these fields of its specification instead of the usual.
func podBody(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {
		"containers": [{"name": "main", "image": "example"}], %s}}`, name, spec)
}

// mirrorBody is the object of a static pod.
func mirrorBody(uid, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static-mine", "annotations":
		{"kubernetes.io/config.mirror": "a"}, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "mine",
		"uid": %q, "controller": true}]}, "spec": {"nodeName": "mine", %s}}`, uid, spec)
}

// ofNodes are those of root on the node mine, with the certificates of kubelet, which flannel, network-policy and the
// drain have too, and of kube-proxy.
func ofNodes(uid string) []attack {
	const core, others, theirs = "/api/v1", "/api/v1/namespaces/other", "/api/v1/nodes/theirs"
	const rbac, storage = "/apis/rbac.authorization.k8s.io/v1", "/apis/storage.k8s.io/v1"
	const leases = "/apis/coordination.k8s.io/v1/namespaces/"
	token := func(audiences string) string {
		return `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"spec": {"audiences": [` + audiences +
			`], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "` + uid + `"}}}`
	}
	role := `"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]`
	image := `"containers": [{"name": "main", "image": "example"}]`
	attacks := []attack{
		{"node", "reads all Secrets", "GET", core + "/secrets", ""},
		{"node", "reads a Secret of a pod elsewhere", "GET", others + "/secrets/password", ""},
		{"node", "reads a ConfigMap of a pod elsewhere", "GET", others + "/configmaps/settings", ""},
		{"node", "reads a pod's logs by the API", "GET", others + "/pods/web/log", ""},
		{"node", "runs a command in a pod elsewhere", "POST", others + "/pods/web/exec?command=id", ""},
		{"node", "gets a token of an account elsewhere", "POST", others + "/serviceaccounts/default/token", token("")},
		{"node", "gets a token for another service", "POST",
			others + "/serviceaccounts/default/token", token(`"vault"`)},
		{"node", "moves a pod to itself", "POST", others + "/pods/waiting/binding",
			`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waiting"},
			"target": {"kind": "Node", "name": "mine"}}`},
		{"node", "creates a pod on another node", "POST", others + "/pods", podBody("a", `"nodeName": "theirs"`)},
		{"node", "reports a pod elsewhere as failed", "PATCH", others + "/pods/web/status",
			`{"status": {"phase": "Failed"}}`},
		{"node", "deletes a pod elsewhere", "DELETE", others + "/pods/web", ""},
		{"node", "evicts a pod elsewhere", "POST", others + "/pods/web/eviction",
			`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}`},
		{"node", "changes a pod's image", "PATCH", others + "/pods/web",
			`{"spec": {"containers": [{"name": "main", "image": "attack"}]}}`},
		{"node", "changes another Node", "PATCH", theirs, `{"metadata": {"labels": {"disk": "slow"}}}`},
		{"node", "reports another Node as not ready", "PATCH", theirs + "/status",
			`{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`},
		{"node", "deletes another Node", "DELETE", theirs, ""},
		{"node", "removes its taint", "PATCH", core + "/nodes/mine", `{"spec": {"taints": null}}`},
		{"node", "becomes a control VM", "PATCH", core + "/nodes/mine",
			`{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`},
		{"node", "takes a label for isolation", "PATCH", core + "/nodes/mine",
			`{"metadata": {"labels": {"node-restriction.kubernetes.io/tenant": "a"}}}`},
		{"node", "connects to another kubelet by the API", "GET", theirs + "/proxy/pods", ""},
		{"node", "lets another Node's lease expire", "PATCH",
			leases + "kube-node-lease/leases/theirs", `{"spec": {"leaseDurationSeconds": 1}}`},
		{"node", "becomes the leader of the controllers", "PATCH",
			leases + "kube-system/leases/kube-controller-manager",
			`{"spec": {"holderIdentity": "mine"}}`},
		{"node", "changes another node's CSINode", "PATCH", storage + "/csinodes/theirs", `{"spec": {"drivers": []}}`},
		{"node", "deletes another node's CSINode", "DELETE", storage + "/csinodes/theirs", ""},
		{"node", "detaches a volume", "DELETE", storage + "/volumeattachments/theirs", ""},
		{"node", "reads a claim elsewhere", "GET", others + "/persistentvolumeclaims/data", ""},
		{"node", "reports a claim elsewhere as larger", "PATCH", others + "/persistentvolumeclaims/data/status",
			`{"status": {"capacity": {"storage": "1Ti"}}}`},
		{"node", "creates a volume", "POST", core + "/persistentvolumes",
			`{"apiVersion": "v1", "kind": "PersistentVolume",
			"metadata": {"name": "a"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi":
			{"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}}`},
		{"node", "approves a request", "PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"}}`},
		{"node", "becomes administrator", "POST", rbac + "/clusterrolebindings", `{"apiVersion":
			"rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "a"}, ` + role + `}`},
		{"node", "removes a policy", "DELETE",
			"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" +
				"node-network.kubernetes.bosh.io", ""},
		{"node", "changes cluster DNS", "PATCH", core + "/namespaces/kube-system/configmaps/coredns",
			`{"data": {"Corefile": ""}}`},
		{"node", "takes the cluster DNS's Service", "PATCH", core + "/namespaces/kube-system/services/kube-dns",
			`{"spec": {"selector": {"app": "attack"}}}`},
		{"node", "becomes an endpoint", "POST", "/apis/discovery.k8s.io/v1/namespaces/other/endpointslices",
			`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a", "labels":
			{"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
			"endpoints": [{"addresses": ["10.0.0.9"]}]}`},
		{"node", "gives a static pod a Secret", "POST", core + "/namespaces/kube-system/pods", mirrorBody(uid, image+
			`, "volumes": [{"name": "a", "secret": {"secretName": "a"}}]`)},
		{"node", "gives a static pod an account", "POST", core + "/namespaces/kube-system/pods",
			mirrorBody(uid, image+`, "serviceAccountName": "coredns"`)},
		{"node", "reads metrics of the API server", "GET", "/metrics", ""},
		{"node", "sets a pod subnet", "PATCH", core + "/nodes/mine", `{"spec": {"podCIDR": "169.254.169.254/32"}}`},
		{"node", "takes another's provider ID", "PATCH", core + "/nodes/mine",
			`{"spec": {"providerID": "aws:///us-east-1a/i-other"}}`},
		{"node", "joins another instance group", "PATCH", core + "/nodes/mine",
			`{"metadata": {"labels": {"bosh.io/instance-group": "control"}}}`},
		{"node", "takes another's address", "PATCH", core + "/nodes/mine/status",
			`{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}`},
		{"node", "has others routed to itself", "PATCH", core + "/nodes/mine/status",
			`{"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.9"}}}`},
		{"node", "creates a Namespace", "POST", core + "/namespaces",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "com"}}`},
	}
	for _, proxied := range []attack{
		{"", "reads a Secret", "GET", others + "/secrets/password", ""},
		{"", "reports a Node", "PATCH", theirs + "/status", `{"status": {"addresses": null}}`},
		{"", "deletes a Node", "DELETE", theirs, ""},
		{"", "changes an endpoint", "DELETE", "/apis/discovery.k8s.io/v1/namespaces/other/endpointslices/web", ""},
		{"", "gives a Service an address", "PATCH", others + "/services/web/status",
			`{"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}}`},
		{"", "reads pods", "GET", core + "/pods", ""},
	} {
		proxied.who = "kube-proxy"
		attacks = append(attacks, proxied)
	}
	return attacks
}

// TestNodesAreConfined makes the requests of someone who has a node to an API server with the admission plugins,
// policies and permissions of the release. Each must be forbidden: an object that does not exist or is invalid is
// another error.
func TestNodesAreConfined(t *testing.T) {
	t.Parallel()
	s := startTenants(t, append(admissionFlags(t), "--allow-privileged")...)
	ctx := t.Context()
	applyManifests(t, s.Cluster, nil, "10-nodes.yml", "20-components.yml")
	clients := map[string]kubernetes.Interface{
		"node":       s.ClientFor("system:node:mine", "system:nodes", "system:authenticated"),
		"kube-proxy": s.ClientFor("system:kube-proxy"),
	}
	attacks := ofNodes(s.seed())
	for _, a := range attacks {
		err := send(ctx, clients[a.who], a)
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s %s (%s %s): %v, want it forbidden", a.who, a.what, a.verb, a.path, err)
		}
	}
	t.Logf("%d attacks were tried", len(attacks))
	err := clients["node"].CoreV1().RESTClient().Get().AbsPath("/api/v1/secrets").
		SetHeader("Impersonate-User", "admin").SetHeader("Impersonate-Group", "system:masters").Do(ctx).Error()
	kubetest.MustForbid(t, "a node impersonates", err)
}

// seed creates what the attacks are about, and returns the UID of the Node mine.
func (s *tenants) seed() string {
	s.t.Helper()
	for _, object := range []attack{
		{path: "/api/v1/nodes", body: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"},
			"spec": {"taints": [{"key": "example.com/gpu", "effect": "NoSchedule"}]}}`},
		{path: "/api/v1/nodes", body: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "theirs"}}`},
		{path: "/api/v1/namespaces", body: `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}`},
		{path: "/api/v1/namespaces/other/secrets",
			body: `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}}`},
		{path: "/api/v1/namespaces/other/configmaps",
			body: `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}`},
		{path: "/apis/storage.k8s.io/v1/csinodes",
			body: `{"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "theirs"},
			"spec": {"drivers": []}}`},
		{path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
			body: `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "theirs"}}`},
		{path: "/api/v1/namespaces/other/persistentvolumeclaims",
			body: `{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec":
			{"accessModes": ["ReadWriteOnce"], "resources": {"requests":
			{"storage": "1Gi"}}}}`},
		{path: "/api/v1/namespaces/tenant/services", body: `{"apiVersion": "v1", "kind": "Service", "metadata":
			{"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}`},
		{path: "/api/v1/namespaces/other/services", body: `{"apiVersion": "v1", "kind": "Service", "metadata":
			{"name": "web"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}`},
		{path: "/api/v1/namespaces/tenant/pods", body: podBody("web", `"restartPolicy": "Always"`)},
		{path: "/api/v1/namespaces/other/pods", body: podBody("web", `"nodeName": "theirs"`)},
		{path: "/api/v1/namespaces/other/pods", body: podBody("waiting", `"restartPolicy": "Always"`)},
	} {
		object.verb = "POST"
		eventually.Succeeds(s.t, time.Minute, "create an object of "+object.path, func() error {
			err := send(s.t.Context(), s.admin, object)
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	node, err := s.admin.CoreV1().Nodes().Get(s.t.Context(), "mine", metav1.GetOptions{})
	s.must(err)
	return string(node.UID)
}
