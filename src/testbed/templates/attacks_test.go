package templates

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// ofNodes are those of root on the node mine, with the certificates of kubelet, which flannel, network-policy and the
// drain have too, and of kube-proxy: what permissions and policies of the release could allow, and one of each that the
// Node authorizer and the admission plugin NodeRestriction of Kubernetes refuse.
func ofNodes() []attack {
	const core, others, theirs = "/api/v1", "/api/v1/namespaces/other", "/api/v1/nodes/theirs"
	return []attack{
		{"node", "reads all Secrets", "GET", core + "/secrets", ""},
		{"node", "reads a Secret of a pod elsewhere", "GET", others + "/secrets/password", ""},
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
		{"node", "detaches a volume", "DELETE", "/apis/storage.k8s.io/v1/volumeattachments/theirs", ""},
		{"node", "approves a request", "PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval",
			`{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"}}`},
		{"node", "sets a pod subnet", "PATCH", core + "/nodes/mine", `{"spec": {"podCIDR": "169.254.169.254/32"}}`},
		{"node", "takes another's provider ID", "PATCH", core + "/nodes/mine",
			`{"spec": {"providerID": "aws:///us-east-1a/i-other"}}`},
		{"node", "joins another instance group", "PATCH", core + "/nodes/mine",
			`{"metadata": {"labels": {"bosh.io/instance-group": "control"}}}`},
		{"node", "takes another's address", "PATCH", core + "/nodes/mine/status",
			`{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}`},
		{"node", "has others routed to itself", "PATCH", core + "/nodes/mine/status",
			`{"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": "10.0.0.9"}}}`},
		{"kube-proxy", "reads a Secret", "GET", others + "/secrets/password", ""},
		{"kube-proxy", "deletes a Node", "DELETE", theirs, ""},
	}
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
	s.seed()
	attacks := ofNodes()
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

// seed creates what the attacks are about.
func (s *tenants) seed() {
	s.t.Helper()
	for _, object := range []attack{
		{path: "/api/v1/nodes", body: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"},
			"spec": {"taints": [{"key": "example.com/gpu", "effect": "NoSchedule"}]}}`},
		{path: "/api/v1/nodes", body: `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "theirs"}}`},
		{path: "/api/v1/namespaces", body: `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}`},
		{path: "/api/v1/namespaces/other/secrets",
			body: `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}}`},
		{path: "/api/v1/namespaces/other/pods", body: podBody("web", `"nodeName": "theirs"`)},
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
}
